"""Where a tile's sums lie in the accumulators: what COMPUTE and STORE must agree on."""

import numpy as np

from cores.arch.instruction import Instruction
from cores.arch.isa import WordForm

from ..errors import HazardError
from ..machine import Machine

__all__ = ["sum_places"]


def sum_places(machine: Machine, index: int, geometry: Instruction, rows: int, cols: int, base: int = 0) -> np.ndarray:
    """(output pixels, groups of output lanes that make one) places of a tile's sums in an accumulator bank.

    ``base``: the tile's first word. Those of transformed tiles are read as `sim.winograd.tile_places` says.
    """
    accumulators = machine.accumulators
    spread, alternate = geometry["words"] == WordForm.SPREAD, geometry["words"] == WordForm.ALTERNATE
    if alternate and not machine.config.groups_alternate:
        raise HazardError(index, "rows alternate between two groups of output lanes that reach every channel")
    machine.check_words(index, base + accumulators.words(rows, cols, spread=spread, alternate=alternate))
    if spread:
        places = accumulators.spread_places(rows, cols)
    else:
        places = accumulators.alternate_places(rows, cols) if alternate else accumulators.places(rows, cols)
    return places + base * machine.config.word_places
