"""Multipliers and block RAMs of a machine, counted."""

import math
from collections.abc import Sequence

from cores.arch.numerics import TABLE_BYTES
from cores.compute.mac_array import packed_products
from cores.config import NpuConfig
from cores.store.value_table import ValueTable

__all__ = ["counted"]

#: Family -> depth and width of a block RAM in each of its forms, and what part of one a form is.
_RAMB = tuple((512 << step, width, 0.5) for step, width in enumerate((36, 18, 9, 4, 2, 1)))
_FORMS: dict[str, tuple[tuple[int, int, float], ...]] = {
    "xcup": (*_RAMB, (4096, 9, 1.0)), "xc7": (*_RAMB, (4096, 9, 1.0)),
    "cyclonev": tuple((512 << step, width, 1.0) for step, width in enumerate((20, 10, 5, 2, 1))),
    "ecp5": tuple((512 << step, width, 1.0) for step, width in enumerate((36, 18, 9, 4, 2, 1))),
}

#: Where Yosys makes memories whose lanes are written apart of one memory for each.
_LANES_APART = ("cyclonev",)
#: Where Yosys takes the shallowest form that is as deep as the memory.
_NEVER_STACKED = ("cyclonev",)


def counted(component: str, config: NpuConfig, family: str) -> dict[str, float]:
    """``dsp``: multipliers, ``ram``: block RAMs of a component of the machine, from widths and depths alone.

    In proportion: what one of them costs in the family, and what else takes any, `gen.hw.area` has from its table.
    """
    if component == "compute":
        # Input buffer and the two banks of accumulators, each one memory or one of every output lane.
        apart = config.oc_lanes if family in _LANES_APART else 1
        memories = [(config.entry_bits, config.input_depth)] * config.banks
        memories += [(config.acc_lanes * config.acc_width // apart, config.acc_depth)] * (2 * apart)
        shared = config.pixel_lanes if packed_products(config) else 1
        return {"dsp": config.macs / shared, "ram": _blocks(memories, family)}
    if component == "store":
        # The value table's memories, one for each two lanes.
        tables = [(8 * ValueTable.WORD, TABLE_BYTES // ValueTable.WORD)] * (config.ic_lanes // ValueTable.SHARED)
        return {"dsp": config.ic_lanes, "ram": _blocks(tables, family) if config.table else 0}
    if component in ("weight_ring", "side_ring"):
        depth = config.weight_depth if component == "weight_ring" else config.side_depth
        return {"dsp": 0, "ram": _blocks([(config.beat_bits, depth)], family)}
    if component == "load":
        return {"dsp": config.gather, "ram": 1 + 2 * config.winograd}
    return {"dsp": 0, "ram": 0}


def _blocks(memories: Sequence[tuple[int, int]], family: str) -> float:
    """Of memories of some bits and words each, every one in the form that takes the fewest."""
    return sum(min(math.ceil(bits / width) * math.ceil(depth / words) * part
                   for words, width, part in _forms(depth, family)) for bits, depth in memories)


def _forms(depth: int, family: str) -> tuple[tuple[int, int, float], ...]:
    deep = [form for form in _FORMS[family] if form[0] >= depth]
    return (min(deep),) if family in _NEVER_STACKED and deep else _FORMS[family]
