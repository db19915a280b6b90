"""Layers whose sums are made of streams of bits (docs/stochastic.md)."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike

from cores.arch.stochastic import Circuit

from .fast import accumulate
from .streams import Streams

__all__ = ["conv2d_streams", "largest_sums"]


def conv2d_streams(x: ArrayLike, weights: ArrayLike, stride: tuple[int, int], pads: tuple[int, int, int, int],
                   circuit: Circuit, streams: Streams, fan_in: int) -> np.ndarray:
    """Sums of a convolution by streams: of each tap and each ``fan_in`` channels a unit's sum, added up.

    ``x`` int8 (..., C, H, W), padded with 0; ``weights`` int (OC, C, KH, KW) in -128..127; ``pads`` top, left, bottom,
    right. Channels that a unit lacks are zeros. Returns int64 (..., OC, OH, OW).
    """
    x, weights = np.asarray(x, np.int8), np.asarray(weights).astype(np.int8)
    outputs, channels, *kernel = weights.shape
    top, left, bottom, right = pads
    padded = np.pad(x, [(0, 0)] * (x.ndim - 2) + [(top, bottom), (left, right)])
    windows = sliding_window_view(padded, tuple(kernel), axis=(-2, -1))[..., ::stride[0], ::stride[1], :, :]
    *lead, _, height, width = windows.shape[:-2]
    sums = np.zeros((int(np.prod(lead)) * height * width, outputs), np.int64)
    for ky, kx in np.ndindex(*kernel):
        values = np.moveaxis(windows[..., ky, kx], -3, -1).reshape(-1, channels)
        sums += accumulate(circuit, values, weights[:, :, ky, kx], streams, fan_in=fan_in)
    return np.moveaxis(sums.reshape(*lead, height, width, outputs), -1, -3)


def largest_sums(weights: ArrayLike, circuit: Circuit, streams: Streams, fan_in: int) -> np.ndarray:
    """(OC,) what sums of `conv2d_streams` cannot exceed, above or below 0, partial ones neither."""
    weights = np.asarray(weights)
    units = -(-weights.shape[1] // fan_in) * weights[0, 0].size
    whole = streams.made * streams.weight
    if circuit in (Circuit.AND_LOOP, Circuit.AND_ACC):
        # No product has more ones than its weight's stream: as many as with -128, whose stream is nothing but ones.
        ones = accumulate(Circuit.AND_LOOP, np.full((1, 1), -128), -np.arange(129)[:, None], streams, fan_in=4)[0]
        return ones[np.abs(weights)].sum(axis=(1, 2, 3))
    each = fan_in * whole if circuit == Circuit.XNOR_MUX else whole
    return np.full(len(weights), units * each)
