"""Multipliers and block RAMs of a machine, counted."""

import math
from collections.abc import Sequence

from cores.arch.numerics import TABLE_BYTES
from cores.arch.rows import ENTRY_BITS, FACTOR_BITS, FACTOR_TABLE
from cores.config import NpuConfig
from cores.timing.compute import packed_products
from cores.timing.store import ValueTableTiming
from gen.families.family import BlockRam
from gen.families.registry import get_family

__all__ = ["counted"]

#: Of the row unit, for a row's mean, variance and factor, in slices of 18 x 25 bits.
_ROW_MULTIPLIERS = 5


def counted(component: str, config: NpuConfig, family: str) -> dict[str, float]:
    """``dsp``: multipliers, ``ram``: block RAMs of a component of the machine, from widths and depths alone.

    In proportion: what one of them costs in the family, and what else takes any, `gen.hw.area` has from its table.
    """
    block_ram = get_family(family).block_ram
    if component == "compute":
        # Input buffer and the two banks of accumulators, each one memory or one of every output lane.
        apart = config.oc_lanes if block_ram.lanes_apart else 1
        memories = [(config.entry_bits, config.input_depth)] * config.banks
        memories += [(config.acc_lanes * config.acc_width // apart, config.acc_depth)] * (2 * apart)
        shared, others = config.pixel_lanes if packed_products(config) else 1, 0
        if config.rows:     # a multiplier a lane and some of a row's numbers; exponentials of two lanes each, factors
            others = config.ic_lanes + _ROW_MULTIPLIERS
            memories += [(ENTRY_BITS, 256)] * (config.ic_lanes // 2) + [(FACTOR_BITS, len(FACTOR_TABLE))]
        return {"dsp": config.macs / shared + others, "ram": _blocks(memories, block_ram)}
    if component == "store":
        # The value table's memories, one for each two lanes.
        word, count = ValueTableTiming.WORD, config.ic_lanes // ValueTableTiming.SHARED
        tables = [(8 * word, TABLE_BYTES // word)] * count
        # Those of second stages are as wide as one of the device; that of a sum may be two.
        wide = 1 if config.acc_width <= config.multiplier_width else 2
        multipliers = config.ic_lanes / config.store_parts * (1 + max(0, config.store_multipliers - 1) / wide)
        return {"dsp": multipliers, "ram": _blocks(tables, block_ram) if config.table else 0}
    if component in ("weight_ring", "side_ring"):
        depth = config.weight_depth if component == "weight_ring" else config.side_depth
        return {"dsp": 0, "ram": _blocks([(config.beat_bits, depth)], block_ram)}
    if component == "load":
        return {"dsp": config.gather + config.turn, "ram": 1 + 2 * config.winograd}
    return {"dsp": 0, "ram": 0}


def _blocks(memories: Sequence[tuple[int, int]], block_ram: BlockRam) -> float:
    """Of memories of some bits and words each, every one in the form that takes the fewest."""
    return sum(min(math.ceil(bits / width) * math.ceil(depth / words) * part
                   for words, width, part in _forms(depth, block_ram)) for bits, depth in memories)


def _forms(depth: int, block_ram: BlockRam) -> tuple[tuple[int, int, float], ...]:
    deep = [form for form in block_ram.forms if form[0] >= depth]
    return (min(deep),) if deep and not block_ram.stacked else block_ram.forms
