"""Signs as bits (docs/binary.md): how they lie in beats, and what a COMPUTE with ``binary`` adds."""

import numpy as np

from cores.arch.isa import Instruction
from cores.arch.numerics import MAP_PIXELS

from . import golden
from .errors import HazardError
from .machine import Machine

__all__ = ["check_binary", "multiply_binary", "pack_map", "pack_signs", "unpack_map"]


def pack_signs(values: np.ndarray) -> np.ndarray:
    """int8 (..., tn) -> uint8 (..., tn / 8), bit 1 where the value is 0 or more, channel 0 lowest."""
    return np.packbits(values >= 0, axis=-1, bitorder="little")


def pack_map(values: np.ndarray) -> np.ndarray:
    """int8 (rows, cols, tn) -> uint8 (rows, ceil(cols / 8), tn): eight pixels' signs to a beat, unused bytes zero."""
    rows, cols, tn = values.shape
    beats = -(-cols // MAP_PIXELS)
    signs = np.zeros((rows, beats * MAP_PIXELS, tn // MAP_PIXELS), np.uint8)
    signs[:, :cols] = pack_signs(values)
    return signs.reshape(rows, beats, tn)


def unpack_map(beats: np.ndarray, cols: int) -> np.ndarray:
    """uint8 (..., ceil(cols / 8), tn) -> int8 (..., cols, tn) of -1 and +1."""
    *lead, count, tn = beats.shape
    bits = np.unpackbits(beats, axis=-1, bitorder="little").reshape(*lead, count * MAP_PIXELS, tn)
    return (2 * bits[..., :cols, :].astype(np.int8) - 1).astype(np.int8)


def check_binary(machine: Machine, index: int, geometry: Instruction, instruction: Instruction) -> None:
    """Raise HazardError for a binary COMPUTE whose fields have no meaning together."""
    config = machine.config
    groups = config.binary_groups
    for wrong, message in [
        (instruction["indexed"], "binary weights have no indices"),
        (any(geometry[name] for name in ("spread", "window", "alternate", "shift")), "binary words are plain"),
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
