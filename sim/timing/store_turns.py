"""When pixels of a STORE start, as far as the store engine's multipliers allow it."""

from dataclasses import dataclass

from cores.config import NpuConfig
from cores.timing.store import RequantizerTiming, StoreSequencerTiming

__all__ = ["Turns", "turns_of"]


@dataclass(frozen=True)
class Turns:
    """``cycles``: from a pixel to the next. ``apart``: pixels set out multiples of that apart. ``in_bursts``: in those
    of pixels with STORE_LEAKY. ``after``: cycles after a pixel's own that are still its work.

    ``ahead``: cycles by which a pixel may set out before its residual can be taken. ``keep_parameters``: the last pixel
    of a block needs them, not the first alone.
    """

    cycles: int
    apart: int
    after: int
    ahead: int
    in_bursts: bool
    keep_parameters: bool


def turns_of(config: NpuConfig, *, add: bool, leaky: bool, tiles: bool, signs: bool, common: bool) -> Turns:
    """``add``: the chain has a second stage, that ``leaky`` or has a residual, ``common`` to the pixels of a block."""
    if not config.own_stage:
        parts = config.store_parts > 1
        in_bursts = leaky and not tiles and not signs and not parts
        cycles = RequantizerTiming.ADD_CYCLES if add and not in_bursts else 1
        return Turns(cycles, cycles, RequantizerTiming.ADD_CYCLES - 1 if add else 0, 0, in_bursts,
                     add or parts)
    adds = add and not leaky
    cycles = config.residual_cycles if adds else 1
    return Turns(cycles, 1 if tiles else cycles, cycles - 1, StoreSequencerTiming.RESIDUAL_CYCLES, False,
                 adds and not common)
