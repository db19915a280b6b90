"""Golden integer layers: the one statement of the arithmetic.

Everything is exact. Feature maps are (C, H, W) int8 arrays of raw values: zero points are not subtracted but folded
into the bias (``bias - zero_point * sum(w)``), and padding is done with the zero point.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike

from cores.arch.numerics import (
    COUNT_SHIFT,
    FIRST_BITS,
    MAX_SHIFT,
    MIN_SHIFT,
    MULTIPLIER_BITS,
    PRODUCT_MULTIPLIER_BITS,
    half_of,
)

__all__ = [
    "binary_popcount", "binary_sums", "conv2d_accumulate", "pool_accumulate", "quantize_multiplier", "quantize_product",
    "quantize_residual", "requantize", "round_shift", "run_epilogue", "run_layer", "run_stages", "upsample",
    "winograd_accumulate",
    "winograd_input", "winograd_output", "winograd_tiles", "winograd_weights",
]


#: Largest unfolded input (in values) of a convolution that is made in one matrix product; larger ones go tap by tap.
_UNFOLDED_ELEMENTS = 1 << 24
#: Weights that are made float at once: the pages of a larger array take longer than the product.
_FLOAT_WEIGHTS = 1 << 20


def round_shift(value: np.ndarray, shift: np.ndarray | int) -> np.ndarray:
    """``value / 2**shift`` rounded to the nearest integer, halves towards plus infinity. The one rounding rule."""
    value = np.asarray(value, np.int64)
    shift = np.asarray(shift, np.int64)
    return (value + (np.int64(1) << (shift - 1))) >> shift


def quantize_multiplier(scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positive real scales -> (multiplier, shift) with ``scale ~ multiplier / 2**shift``.

    The multiplier has MULTIPLIER_BITS bits, its top bit set unless the scale is too small for MAX_SHIFT.
    Raises ValueError for a scale of 2**(MULTIPLIER_BITS - MIN_SHIFT) and more, or one that is not positive and finite.
    """
    scale = np.asarray(scale, np.float64)
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        raise ValueError("scales must be positive and finite")
    mantissa, exponent = np.frexp(scale)
    multiplier = np.round(mantissa * (1 << MULTIPLIER_BITS)).astype(np.int64)
    carry = multiplier == 1 << MULTIPLIER_BITS
    multiplier = np.where(carry, multiplier >> 1, multiplier)
    shift = MULTIPLIER_BITS - (exponent + carry)
    over = np.maximum(shift - MAX_SHIFT, 0)
    multiplier = np.where(over > 0, np.round(np.minimum(scale, 1) * 2.0**MAX_SHIFT).astype(np.int64), multiplier)
    shift = np.minimum(shift, MAX_SHIFT)
    if (shift < MIN_SHIFT).any():
        raise ValueError(f"scales must be below {2.0 ** (MULTIPLIER_BITS - MIN_SHIFT):g}, not {scale.max():g}")
    return multiplier, shift.astype(np.int64)


def quantize_residual(scale_a: float, scale_b: float) -> tuple[int, int, int]:
    """Real scales of a sum's operands -> (multiplier_a, multiplier_b, shift), one shift for both.

    Raises ValueError as `quantize_multiplier` does.
    """
    if not min(scale_a, scale_b) > 0:
        raise ValueError("scales must be positive and finite")
    _, shift = quantize_multiplier(np.array(max(scale_a, scale_b)))
    return round(scale_a * 2.0 ** int(shift)), round(scale_b * 2.0 ** int(shift)), int(shift)


def quantize_product(scale: float) -> tuple[int, int]:
    """Real scale of a product -> (multiplier, shift), the multiplier of PRODUCT_MULTIPLIER_BITS.

    Raises ValueError for one that is not finite and positive, or too large.
    """
    if not 0 < scale < 1 << PRODUCT_MULTIPLIER_BITS - MIN_SHIFT:
        raise ValueError(f"scales of products must be above 0 and below {1 << PRODUCT_MULTIPLIER_BITS - MIN_SHIFT}, "
                         f"not {scale:g}")
    largest = (1 << PRODUCT_MULTIPLIER_BITS) - 1
    shift = min(PRODUCT_MULTIPLIER_BITS - int(np.frexp(scale)[1]), MAX_SHIFT)
    return min(round(scale * 2.0**shift), largest), shift


def requantize(acc: ArrayLike, bias: ArrayLike, multiplier: ArrayLike, shift: ArrayLike, zero_point: int, low: int,
               high: int) -> np.ndarray:
    """Accumulators to activations: ``clip(round_shift((acc + bias) * multiplier, shift) + zero_point, low, high)``.

    ``acc`` int (..., C, H, W); ``bias``, ``multiplier``, ``shift`` (C,). In front of the zero point values saturate
    at -256 and 256, which shows only if a clip bound is that far from it. Returns int8 (..., C, H, W), or int16 where
    the bounds are beyond int8.
    """
    column = (slice(None), None, None)
    total = np.asarray(acc, np.int64) + np.asarray(bias, np.int64)[column]
    scaled = round_shift(total * np.asarray(multiplier, np.int64)[column], np.asarray(shift, np.int64)[column])
    limit = 1 << FIRST_BITS - 1
    result = np.clip(np.clip(scaled, -limit, limit) + zero_point, low, high)
    return result.astype(np.int8 if -128 <= low and high <= 127 else np.int16)


def upsample(x: np.ndarray, factors: tuple[int, int]) -> np.ndarray:
    """(..., H, W) with every row and every column as often as ``factors`` say: the nearest neighbour."""
    return x if factors == (1, 1) else x.repeat(factors[0], axis=-2).repeat(factors[1], axis=-1)


def _windows(x: np.ndarray, kernel: tuple[int, int], stride: tuple[int, int], pads: tuple[int, int, int, int],
             pad_value: int) -> np.ndarray:
    """A view (..., C, OH, OW, KH, KW) of the padded input's windows."""
    top, left, bottom, right = pads
    widths = [(0, 0)] * (x.ndim - 2) + [(top, bottom), (left, right)]
    padded = np.pad(x, widths, constant_values=pad_value) if any(pads) else x
    return sliding_window_view(padded, kernel, axis=(-2, -1))[..., ::stride[0], ::stride[1], :, :]


def _multiplied(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``a @ b`` of finite numbers. BLAS libraries may raise the processor's flag for invalid operations by what lies
    beside the operands in a vector register; it is not in the result.
    """
    with np.errstate(invalid="ignore"):
        return a @ b


def conv2d_accumulate(x: ArrayLike, weights: ArrayLike, depthwise: bool, stride: tuple[int, int],
                      pads: tuple[int, int, int, int], pad_value: int) -> np.ndarray:
    """Exact sums of products of raw values.

    ``x`` int8 (..., C, H, W); ``weights`` int (OC, C, KH, KW), or (C, 1, KH, KW) if ``depthwise``; ``pads`` top, left,
    bottom, right. Returns int64 (..., OC, OH, OW).
    """
    x, weights = np.asarray(x), np.asarray(weights)
    oc, _, *kernel = weights.shape
    # A float product is exact while every partial sum is an integer below 2**(mantissa bits).
    bound = 128 * max((int(np.abs(row, dtype=np.int64).sum()) for row in weights), default=0)
    number = np.float32 if bound < 1 << 24 else np.float64
    windows = _windows(x.astype(number), (kernel[0], kernel[1]), stride, pads, pad_value)
    *lead, channels, height, width = windows.shape[:-2]
    taps = [(ky, kx) for ky in range(kernel[0]) for kx in range(kernel[1])]
    acc = np.zeros((*lead, oc, height, width), number)
    if depthwise:
        for ky, kx in taps:
            acc += weights[:, 0, ky, kx, None, None].astype(number) * windows[..., ky, kx]
    elif len(taps) * windows[..., 0, 0].size <= _UNFOLDED_ELEMENTS:
        columns = np.moveaxis(windows, (-2, -1), (-4, -3)).reshape(*lead, channels * len(taps), height * width)
        rows = max(1, _FLOAT_WEIGHTS // max(1, weights[:1].size))
        for first in range(0, oc, rows):
            some = weights[first:first + rows]
            sums = _multiplied(some.reshape(len(some), -1).astype(number), columns)
            acc[..., first:first + rows, :, :] = sums.reshape(*lead, len(some), height, width)
    else:
        for ky, kx in taps:
            columns = windows[..., ky, kx].reshape(*lead, channels, height * width)
            acc += _multiplied(weights[:, :, ky, kx].astype(number), columns).reshape(acc.shape)
    return acc.astype(np.int64)


def binary_popcount(x: np.ndarray, weights: np.ndarray, zeros: np.ndarray) -> np.ndarray:
    """How many bits of each pixel equal each row's: ``x`` (..., K), ``weights`` (O, K) of 0 and 1 -> int64 (..., O).

    Of a pixel's halves (`cores.arch.numerics.half_of`) those marked in ``zeros`` (..., 2) count half their bits: as if
    each of them were worth 0 between -1 and +1.
    """
    marked = zeros[..., half_of(np.arange(x.shape[-1]), x.shape[-1])]
    signs = np.where(marked, 0, 2 * x.astype(np.float32) - 1)
    dot = signs @ (2 * weights.astype(np.float32) - 1).T
    return (dot.astype(np.int64) + x.shape[-1]) // 2


def binary_sums(x: np.ndarray, weights: np.ndarray, zeros: np.ndarray) -> np.ndarray:
    """What a step of a binary COMPUTE adds to accumulators: `binary_popcount` times 2**COUNT_SHIFT."""
    return binary_popcount(x, weights, zeros) << COUNT_SHIFT


def pool_accumulate(x: ArrayLike, maximum: bool, kernel: tuple[int, int], stride: tuple[int, int],
                    pads: tuple[int, int, int, int], pad_value: int) -> np.ndarray:
    """Maximum or sum of each window; ``x`` int8 (..., C, H, W). Returns int64 (..., C, OH, OW)."""
    windows = _windows(np.asarray(x), kernel, stride, pads, pad_value)
    return windows.max(axis=(-2, -1)).astype(np.int64) if maximum else windows.sum(axis=(-2, -1), dtype=np.int64)


# -- Winograd F(2x2, 3x3) --------------------------------------------------------------------------------------------

#: Input, weight and output transforms: V = B^T d B, U = (2G) g (2G)^T, sums = A^T M A.
_INPUT = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
_WEIGHT = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]])
_OUTPUT = np.array([[1, 1, 1, 0], [0, 1, -1, -1]])


def winograd_input(tiles: ArrayLike, shifts: ArrayLike | None = None) -> np.ndarray:
    """Tiles (..., 4, 4) of int8 pixels, transformed: 10 bits each, position ``4 * i + j`` at (..., i, j); int16.

    Narrow with ``shifts`` (16,), one of 0..2 for each position: ``clip(round_shift(v, shift), -128, 127)``.
    """
    values = _INPUT.astype(np.int16) @ np.asarray(tiles, np.int16) @ _INPUT.T.astype(np.int16)
    if shifts is None:
        return values
    shifts = np.asarray(shifts, np.int16).reshape(4, 4)
    return np.clip((values + ((1 << shifts) >> 1).astype(np.int16)) >> shifts, -128, 127)


def winograd_weights(weights: ArrayLike) -> np.ndarray:
    """Kernels (..., 3, 3) of integers, transformed and times four, so that they stay integers: (..., 4, 4) int64."""
    return _WEIGHT @ np.asarray(weights, np.int64) @ _WEIGHT.T


def winograd_output(sums: ArrayLike) -> np.ndarray:
    """Sums of products (..., 4, 4), one for each position, to those of 2x2 output pixels (..., 2, 2)."""
    return _OUTPUT @ np.asarray(sums, np.int64) @ _OUTPUT.T


def winograd_tiles(x: np.ndarray, pads: tuple[int, int, int, int], pad_value: int) -> np.ndarray:
    """A view (..., C, TY, TX, 4, 4) of the padded input's tiles, one for each 2x2 outputs of a 3x3 kernel.

    Where the output's height or width is odd, the last tiles reach a pixel beyond the padding.
    """
    top, left, bottom, right = pads
    odd = [(size + before + after) % 2
           for size, before, after in zip(x.shape[-2:], (top, left), (bottom, right), strict=True)]
    return _windows(x, (4, 4), (2, 2), (top, left, bottom + odd[0], right + odd[1]), pad_value)


def winograd_accumulate(x: ArrayLike, weights: ArrayLike, pads: tuple[int, int, int, int], pad_value: int,
                        shifts: ArrayLike | None = None) -> np.ndarray:
    """Sums of a 3x3 convolution with stride 1 through transformed tiles.

    ``x`` int8 (..., C, H, W); ``weights`` int (OC, C, 4, 4) as `winograd_weights` gives them, or for the narrow form
    (``shifts``) rounded to int8. Returns int64 (..., OC, OH, OW): without ``shifts`` exactly four times what
    `conv2d_accumulate` does.
    """
    x, weights = np.asarray(x), np.asarray(weights)
    tiles = winograd_input(winograd_tiles(x, pads, pad_value), shifts)
    *lead, channels, rows, cols, _, _ = tiles.shape
    largest = 512 if shifts is None else 128
    bound = largest * int(np.abs(weights.astype(np.int64)).sum(axis=1).max(initial=0))
    number = np.float32 if bound < 1 << 24 else np.float64
    # Position by position a matrix product over the channels.
    columns = np.moveaxis(tiles.astype(number), (-2, -1), (0, 1)).reshape(4, 4, *lead, channels, rows * cols)
    factors = np.moveaxis(weights.astype(number), (2, 3), (0, 1)).reshape(4, 4, *[1] * len(lead), *weights.shape[:2])
    products = np.moveaxis(_multiplied(factors, columns), (0, 1), (-2, -1)).astype(np.int64)
    sums = winograd_output(products).reshape(*lead, len(weights), rows, cols, 2, 2)
    sums = np.moveaxis(sums, -2, -3).reshape(*lead, len(weights), 2 * rows, 2 * cols)
    height, width = (size + pads[axis] + pads[axis + 2] - 2 for axis, size in enumerate(x.shape[-2:]))
    return sums[..., :height, :width]


# -- layers ----------------------------------------------------------------------------------------------------------


def run_stages(layer: Any, x: np.ndarray, others: Sequence[np.ndarray] = (), *, zero_point: int = 0
               ) -> list[np.ndarray]:
    """Results of a layer's first stage, and of each operation of its epilogue.

    ``layer`` is one of `gen.ir.layers`, ``x`` its input (..., C, H, W) int8, ``zero_point`` its zero point (a layer
    without ``pad_value`` pads with it), ``others`` the tensors that it reads beside.
    Raises ValueError where those are too few or too many.
    """
    wanted, operands = len(layer.reads) - 1, len(layer.operands) - 1
    if len(others) != wanted:
        raise ValueError(f"layer {layer.name}: reads {wanted} tensors beside its input, not {len(others)}")
    acc = layer.accumulate((x, *others[:operands]), zero_point)
    first = layer.requantize
    values = requantize(acc, first.bias, first.multiplier, first.shift, first.zero_point, first.low, first.high)
    return run_epilogue(layer, values, others[operands:])


def run_epilogue(layer: Any, values: np.ndarray, others: Sequence[np.ndarray] = ()) -> list[np.ndarray]:
    """The result of a layer's first stage, ``values``, and that of each operation of its epilogue; see `run_stages`."""
    results, rest = [values], iter(others)
    for op in layer.epilogue:
        results.append(op.eval(results[-1], [next(rest) for _ in op.others], layer.requantize.zero_point))
    return results


def run_layer(layer: Any, x: np.ndarray, others: Sequence[np.ndarray] = (), *, zero_point: int = 0) -> np.ndarray:
    """Output (..., C, H, W) int8 of a layer; see `run_stages`."""
    return run_stages(layer, x, others, zero_point=zero_point)[-1]
