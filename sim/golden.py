"""Golden integer layers: the one statement of the arithmetic.

Everything is exact. Feature maps are (C, H, W) int8 arrays of raw values: zero points are not subtracted but folded into
the bias (``bias - zero_point * sum(w)``), and padding is done with the zero point.
"""

import numpy as np

from cores.numerics import MAX_SHIFT, MIN_SHIFT, MULTIPLIER_BITS

__all__ = ["quantize_multiplier", "requantize", "residual_add"]


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
    multiplier = np.where(over > 0, np.round(scale * 2.0**MAX_SHIFT).astype(np.int64), multiplier)
    shift = np.minimum(shift, MAX_SHIFT)
    if (shift < MIN_SHIFT).any():
        raise ValueError(f"scales must be below {2.0 ** (MULTIPLIER_BITS - MIN_SHIFT):g}, not {scale.max():g}")
    return multiplier, shift.astype(np.int64)


def requantize(acc, bias, multiplier, shift, zero_point: int, low: int, high: int) -> np.ndarray:
    """Accumulators to activations: ``clip(round_shift((acc + bias) * multiplier, shift) + zero_point, low, high)``.

    ``acc`` int (C, H, W); ``bias``, ``multiplier``, ``shift`` (C,). Returns int8 (C, H, W).
    """
    column = (slice(None), None, None)
    total = np.asarray(acc, np.int64) + np.asarray(bias, np.int64)[column]
    scaled = round_shift(total * np.asarray(multiplier, np.int64)[column], np.asarray(shift, np.int64)[column])
    return np.clip(scaled + zero_point, low, high).astype(np.int8)


def residual_add(a, b, multiplier_a: int, multiplier_b: int, constant: int, shift: int, zero_point: int,
                 low: int, high: int) -> np.ndarray:
    """Second stage of a store: int8 + int8 at different scales -> int8. ``constant`` carries both zero points."""
    total = np.asarray(a, np.int64) * multiplier_a + np.asarray(b, np.int64) * multiplier_b + constant
    return np.clip(round_shift(total, shift) + zero_point, low, high).astype(np.int8)
