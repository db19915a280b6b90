"""Golden model of gathered loads: which bytes of memory go to which bytes of the input buffer."""

from dataclasses import dataclass

import numpy as np

from cores.arch.instruction import Instruction
from cores.arch.numerics import half_of
from cores.config import NpuConfig

__all__ = ["Gathered", "gather_box", "gather_row"]


@dataclass(frozen=True, eq=False)
class Gathered:
    """What a LOAD_ACT after LOAD_GATHER writes; arrays go by block, row and output.

    ``banks`` (outputs,), ``entries`` (blocks, rows, outputs), ``places`` (blocks,): the first byte in the entry;
    ``values`` int8 (blocks, rows, outputs, bytes), of which the first ``widths[b]`` bytes have a place in block b;
    ``padding`` bool (blocks, rows, outputs, 2): all of the run that goes to that half of its entry is.
    """

    banks: np.ndarray
    entries: np.ndarray
    places: np.ndarray
    widths: np.ndarray
    values: np.ndarray
    padding: np.ndarray


def gather_row(row: np.ndarray, gather: Instruction, pad_value: int, lanes: int) -> tuple[np.ndarray, np.ndarray]:
    """Runs of one row's bytes, int8 (bytes,) as fetched: int8 (outputs, length), and which bytes are padding."""
    length = min(gather["length"], lanes)
    at: np.ndarray = gather["start"] + np.arange(gather["outputs"])[:, None] * gather["step"] + np.arange(length)
    inside: np.ndarray = (at >= 0) & (at < min(gather["bytes"], len(row)))
    values = np.full(at.shape, pad_value, np.int8)
    values[inside] = row[at[inside]]
    return values, np.logical_not(inside)


def gather_box(config: NpuConfig, geometry: Instruction, gather: Instruction, act: Instruction,
               data: np.ndarray) -> Gathered:
    """``data`` int8 (blocks, rows, cols, lanes): the beats fetched."""
    lanes, blocks, top, rows = config.beat_bytes, act["blocks"], act["pad_top"], act["rows"]
    height, outputs = top + rows + act["pad_bottom"], gather["outputs"]
    length = min(gather["length"], lanes)
    values = np.full((blocks, height, outputs, length), geometry["pad_value"], np.int8)
    empty = np.ones(values.shape, bool)
    for block in range(blocks):
        for row in range(rows):
            values[block, top + row], empty[block, top + row] = gather_row(
                data[block, row].ravel(), gather, geometry["pad_value"], lanes)
    # From block to block along the entry, and on to the next when it is full.
    turns, places = np.zeros(blocks, np.int64), np.zeros(blocks, np.int64)
    place = gather["place"] % lanes
    for block in range(blocks):
        places[block] = place
        turns[block + 1:] += (place + length) // lanes
        place = (place + length) % lanes
    entries = (act["buf_base"] + turns[:, None, None] * geometry["buf_block_pitch"]
               + np.arange(height)[:, None] * geometry["buf_row_pitch"] + np.arange(outputs) // config.banks)
    # What is beyond the entry goes to neither half.
    at = places[:, None] + np.arange(length)
    halves = np.where(at < lanes, half_of(at, lanes), 2)
    padding = np.stack([(empty | (halves != half)[:, None, None]).all(axis=-1) for half in range(2)], axis=-1)
    return Gathered(np.arange(outputs) % config.banks, entries, places, np.minimum(length, lanes - places), values,
                    padding)
