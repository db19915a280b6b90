"""Long columns of whole numbers in a JSON document: small, and read at once by a page."""

import base64
from collections.abc import Sequence

import numpy as np

__all__ = ["pack", "unpack"]

#: Bits of a number in a byte, whose highest bit says that more follow; bytes of the longest.
_BITS, _LONGEST = 7, 5


def pack(values: np.ndarray | Sequence[int]) -> str:
    """Integers (n,) in the range of int32, as base64.

    Of each value the difference from the one before is kept, modulo 2^32; of the first, the value. Differences 0, -1,
    1, -2, 2, ... are numbered from 0, and these numbers have seven bits in a byte, the lowest first.

    Raises ValueError for values outside of int32: differences wrap around, values must not.
    """
    array = np.asarray(values, np.int64)
    if array.size and not -1 << 31 <= array.min() <= array.max() < 1 << 31:
        raise ValueError("a column of a report has 32-bit numbers")
    steps = np.diff(array, prepend=0).astype("<i4").astype(np.int64)
    numbers = np.where(steps < 0, -2 * steps - 1, 2 * steps)
    groups = numbers[:, None] >> (_BITS * np.arange(_LONGEST))
    last = np.maximum(1, (groups > 0).sum(axis=1))[:, None] - 1
    place = np.arange(_LONGEST)
    octets = (groups & 127) | np.where(place < last, 128, 0)
    return base64.b64encode(octets[place <= last].astype(np.uint8).tobytes()).decode()


def unpack(text: str) -> np.ndarray:
    """What `pack` was given, int64 (n,)."""
    octets = np.frombuffer(base64.b64decode(text), np.uint8).astype(np.int64)
    ends = np.flatnonzero(octets < 128)
    begins = np.concatenate([[0], ends[:-1] + 1])
    place = np.arange(len(octets)) - np.repeat(begins, ends - begins + 1) if len(ends) else octets
    numbers = np.add.reduceat((octets & 127) << (_BITS * place), begins) if len(ends) else octets
    steps = np.where(numbers & 1, -(numbers >> 1) - 1, numbers >> 1)
    return np.cumsum(steps.astype("<i4"), dtype="<i4").astype(np.int64)
