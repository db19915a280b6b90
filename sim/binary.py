"""What a binary COMPUTE adds (docs/binary.md)."""

import numpy as np

from cores.arch.instruction import Instruction
from cores.arch.isa import WordForm

from . import golden
from .errors import HazardError
from .machine import Machine

__all__ = ["check_binary", "multiply_binary"]


def check_binary(machine: Machine, index: int, geometry: Instruction, instruction: Instruction) -> None:
    """Raise HazardError for a binary COMPUTE whose fields have no meaning together."""
    config = machine.config
    groups = config.binary_groups
    for wrong, message in [
        (geometry["words"] != WordForm.PIXELS or geometry["shift"], "binary words are plain"),
        (instruction["groups"] != groups, f"{instruction['groups']} groups of output lanes, not {groups}"),
    ]:
        if wrong:
            raise HazardError(index, message)


def multiply_binary(machine: Machine, bank: int, places: np.ndarray, inputs: np.ndarray, first: int,
                    steps: np.ndarray) -> None:
    """Add to the accumulators how many bits equal those of the weights.

    ``inputs``: (output pixels, taps) places in the input buffer; ``steps``: uint8 (n, bytes), the first of which is the
    ``first``th of its tap; ``places``: (output pixels, groups of tn lanes) of the sums.
    """
    config = machine.config
    rows = config.binary_rows
    groups = config.binary_groups
    numbers = first + np.arange(len(steps))
    counts = np.zeros((len(inputs), config.oc_lanes), np.int64)
    weights = np.unpackbits(steps.reshape(len(steps), rows, config.beat_bytes), axis=-1, bitorder="little")
    for tap in range(inputs.shape[1]):
        pixels, zeros = machine.input[inputs[:, tap]].astype(np.uint8), machine.zeros[inputs[:, tap]]
        mine = np.flatnonzero(numbers // groups == tap)
        bits = np.unpackbits(pixels, axis=-1, bitorder="little")
        found = golden.binary_popcount(bits, weights[mine].reshape(-1, bits.shape[1]), zeros)
        start = int(numbers[mine[0]] % groups) * rows
        counts[:, start:start + found.shape[1]] += found
    sums = machine.accumulators.sums
    added = counts.reshape(-1, config.oc_groups, config.ic_lanes)
    sums[bank, places] = machine.accumulators.wrap(sums[bank, places] + added)
