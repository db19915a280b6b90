"""How feature maps lie in the device's memory: the host's packing and unpacking.

A *beat* is a word of the device's bus, ``beat_bytes`` channels of one pixel. A map (C, H, W) is blocks of so many
channels, (blocks, H, W, beat_bytes) int8; a map of signs has a bit for each value, eight pixels to a beat; an
interleaved map is (H, W, C) int8 with every row beginning a beat.
"""

from __future__ import annotations

from typing import Sequence

import numpy as np

__all__ = ["beats", "pack", "row_beats", "unpack", "unpack_map"]

#: Pixels of a beat that has a bit for each value, in place of a byte.
_BITS = 8


def row_beats(width: int, signs: bool) -> int:
    """Beats of a row of a block."""
    return -(-width // _BITS) if signs else width


def beats(shape: Sequence[int], beat_bytes: int, *, signs: bool = False, interleaved: bool = False) -> int:
    """Beats of a map (C, H, W)."""
    channels, height, width = shape
    if interleaved:
        return height * -(-channels * width // beat_bytes)
    return -(-channels // beat_bytes) * height * row_beats(width, signs)


def pack(values: np.ndarray, beat_bytes: int, *, interleaved: bool = False) -> np.ndarray:
    """int8 (C, H, W) -> uint8, one dimension; channels beyond C, and bytes after a row, are zero."""
    channels, height, width = values.shape
    if interleaved:
        rows = np.zeros((height, -(-channels * width // beat_bytes) * beat_bytes), np.int8)
        rows[:, :channels * width] = values.transpose(1, 2, 0).reshape(height, -1)
        return rows.view(np.uint8).reshape(-1)
    whole, rest = divmod(channels, beat_bytes)
    blocks = np.zeros((whole + bool(rest), height, width, beat_bytes), np.int8)
    split = whole * beat_bytes
    blocks[:whole] = values[:split].reshape(whole, beat_bytes, height, width).transpose(0, 2, 3, 1)
    if rest:
        blocks[whole, :, :, :rest] = values[split:].transpose(1, 2, 0)
    return blocks.view(np.uint8).reshape(-1)


def unpack(data: np.ndarray, shape: Sequence[int], beat_bytes: int, *, signs: bool = False,
           interleaved: bool = False) -> np.ndarray:
    """uint8 as `pack` makes it -> int8 (C, H, W); what lies beyond C in its last block is dropped."""
    channels, height, width = shape
    if interleaved:
        rows = data.view(np.int8).reshape(height, -1)[:, :width * channels]
        return np.ascontiguousarray(rows.reshape(height, width, channels).transpose(2, 0, 1))
    view = data.reshape(-1, height, row_beats(width, signs), beat_bytes)
    pixels = unpack_map(view, width) if signs else view.view(np.int8)
    return np.ascontiguousarray(pixels.transpose(0, 3, 1, 2).reshape(-1, height, width)[:channels])


def unpack_map(beats: np.ndarray, cols: int) -> np.ndarray:
    """uint8 (..., ceil(cols / 8), tn) -> int8 (..., cols, tn) of -1 and +1."""
    *lead, count, tn = beats.shape
    bits = np.unpackbits(beats, axis=-1, bitorder="little").reshape(*lead, count * _BITS, tn)
    return (2 * bits[..., :cols, :].astype(np.int8) - 1).astype(np.int8)
