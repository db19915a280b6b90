"""Tables of a function of a value (docs/architecture.md, Storing): how they lie in memory."""

import numpy as np

from cores.arch.numerics import TABLE_BYTES

__all__ = ["pack_table", "unpack_table"]


def pack_table(values: np.ndarray, beat_bytes: int) -> np.ndarray:
    """int8 (256,), of -128 first -> uint8 (beats, beat_bytes): the byte of value v in place v, or v + 256 below 0."""
    return np.roll(values, TABLE_BYTES // 2).view(np.uint8).reshape(-1, beat_bytes)


def unpack_table(beats: np.ndarray) -> np.ndarray:
    """The other way round."""
    return np.roll(np.ascontiguousarray(beats).reshape(-1).view(np.int8), TABLE_BYTES // 2)
