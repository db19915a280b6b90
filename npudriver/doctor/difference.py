"""What became of bytes on their way: a stuck or a swapped line, or bits that flip."""

from __future__ import annotations

from typing import Mapping

import numpy as np

__all__ = ["SWAPS", "difference", "pattern", "pattern_of", "swapped"]

#: Name of a swap -> (bytes of a group, width of what changes places within it).
SWAPS: Mapping[str, tuple[int, int]] = {
    "the bytes of each 32-bit word": (4, 1), "the 32-bit halves of each 64-bit word": (8, 4),
    "the bytes of each 64-bit word": (8, 1), "the bytes of each 16-bit word": (2, 1),
}
#: Data lines that are told apart.
_LINES = 128


def pattern(size: int) -> np.ndarray:
    """uint8 (size,): bytes of which no two addresses that differ in one line have the same neighbourhood."""
    return np.random.default_rng(1).integers(0, 256, size, np.uint8)


def swapped(data: np.ndarray, swap: str) -> np.ndarray:
    """Bytes, in as many whole groups as there are, in another order."""
    group, width = SWAPS[swap]
    return np.ascontiguousarray(data.reshape(-1, group // width, width)[:, ::-1]).reshape(-1)


def difference(wanted: np.ndarray, found: np.ndarray) -> str:
    """What was most likely done to ``wanted``, "" for nothing. uint8 of one size, a power of two of 16 or more."""
    return pattern_of(wanted, found) or ("" if np.array_equal(wanted, found) else _random(wanted, found))


def pattern_of(wanted: np.ndarray, found: np.ndarray) -> str:
    """As `difference`, "" also where no pattern is in it."""
    if np.array_equal(wanted, found):
        return ""
    if len(np.unique(found)) == 1:
        return f"every byte reads as {int(found[0]):#04x}: nothing answers there, or what was written never arrived"
    for swap in SWAPS:
        if np.array_equal(swapped(wanted, swap), found):
            return f"{swap} are swapped"
    return _stuck_data(wanted, found) or _stuck_address(wanted, found)


def _stuck_data(wanted: np.ndarray, found: np.ndarray) -> str:
    bits = [np.unpackbits(data, bitorder="little").reshape(-1, _LINES) for data in (wanted, found)]
    wrong = np.flatnonzero((bits[0] != bits[1]).any(axis=0))
    stuck = [line for line in wrong if len(np.unique(bits[1][:, line])) == 1]
    if len(stuck) != len(wrong):
        return ""
    if not len(wrong):
        return ""
    first, level = int(wrong[0]), int(bits[1][0, wrong[0]])
    for width in (8, 16, 32, 64, _LINES):
        if np.array_equal(wrong, np.arange(first % width, _LINES, width)):
            return f"data line {first % width} of {width} is stuck at {level}"
    return f"{len(wrong)} of {_LINES} data lines are stuck, line {first} at {level}"


def _stuck_address(wanted: np.ndarray, found: np.ndarray) -> str:
    """A line that does not reach the memory: the halves that it tells apart are one, of which either may be read."""
    places = np.arange(len(wanted))
    for line in range(len(wanted).bit_length() - 1):
        if any(np.array_equal(found, wanted[there]) for there in (places & ~(1 << line), places | 1 << line)):
            return f"address line {line} is stuck: bytes {1 << line:#x} apart are the same"
    return ""


def _random(wanted: np.ndarray, found: np.ndarray) -> str:
    flipped = int(np.unpackbits(wanted ^ found).sum())
    first = int(np.flatnonzero(wanted != found)[0])
    return (f"{flipped:,} of {8 * len(wanted):,} bits are wrong, without a pattern, the first in byte {first:#x}: "
            "timing or signal integrity of the path to memory")
