"""Maxima of 2x2 (docs/decisions/0018) in the functional simulator: which results a STORE makes them of."""

from collections.abc import Mapping

import numpy as np

from cores.arch.instruction import Instruction
from cores.arch.isa import Opcode, WordForm
from cores.arch.numerics import MAXIMUM_SIDE

from .errors import HazardError
from .machine import Machine

__all__ = ["results_of_maxima"]


def results_of_maxima(machine: Machine, index: int, geometry: Instruction, chain: Mapping[Opcode, Instruction],
                      instruction: Instruction) -> tuple[int, np.ndarray]:
    """Rows of results, and the columns of each, int64 (cols,). Raises HazardError where they do not come as maxima want
    them.
    """
    def require(passed: bool, what: str) -> None:
        if not passed:
            raise HazardError(index, f"maxima of 2x2 {what}", code="chain-hazard")

    words = geometry["words"]
    require(not instruction["pooled"] and words != WordForm.ALTERNATE,
            "are of sums whose rows are in words of their own")
    require(not geometry["local"], "are not stored to the input buffer")
    require(Opcode.STORE_ADD not in chain and Opcode.STORE_MULTIPLY not in chain, "are not of two tensors")
    require(geometry["cols"] % MAXIMUM_SIDE ** 2 == 0 and instruction["repeats"] == MAXIMUM_SIDE - 1,
            "are of two rows, a column after the other")
    across = geometry["cols"] // MAXIMUM_SIDE
    pixels = machine.config.word_columns(spread=words == WordForm.SPREAD)
    apart = 0 if words == WordForm.TILES else -(-across // pixels)
    require(chain[Opcode.STORE_MAXIMUM]["row_words"] == apart, f"are of rows {apart} words apart")
    return MAXIMUM_SIDE * geometry["rows"], np.arange(across)
