"""Signs as bits (docs/binary.md): how they lie in beats."""

import numpy as np

from cores.arch.numerics import MAP_PIXELS
from npudriver.layout import unpack_map

__all__ = ["pack_map", "pack_signs", "sign_runs", "unpack_map"]


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


def sign_runs(box: np.ndarray, padding: np.ndarray, *, pair: bool) -> tuple[np.ndarray, np.ndarray]:
    """What a load of signs writes into entries: int8 (blocks, rows, entries, bytes), and which halves are padding: bool
    (blocks, rows, entries, 2).

    The box is int8 (blocks, rows, cols, tn) with its padding, which ``padding`` marks: bool (blocks, rows, cols). With
    ``pair`` an entry has a pixel and its right neighbour, a half each.
    """
    signs = pack_signs(box).view(np.int8)
    if not pair:
        return signs, np.stack([padding] * 2, axis=-1)
    return (np.concatenate([signs[:, :, :-1], signs[:, :, 1:]], axis=-1),
            np.stack([padding[:, :, :-1], padding[:, :, 1:]], axis=-1))
