"""Resize between neighbours (mode linear), as convolutions.

Along an axis output ``y`` lies at ``x(y) = step * y + start`` of the input and is ``(1 - f) * in[i] + f * in[i + 1]``,
with ``i = floor(x(y))`` and ``f = x(y) - i`` (ONNX, Resize). Where ``step`` is a fraction ``q / p`` of small numbers,
outputs that are ``p`` apart have the same ``f``, and their inputs are ``q`` apart. So each of the ``p`` phases is a
convolution with stride ``q``, and a layer puts their results side by side as pixels.

The weights are fractions of a small denominator. For factors up to four those of both axes together are exact in eight
bits, so one layer has both. Otherwise rows are made first, and columns of these: rounded twice, which is still within a
unit. Beyond the border ONNX repeats the input's edge, which is put around it first.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import floor, lcm, prod

import numpy as np

from gen.onnx.context import Context
from gen.onnx.model import NodeError
from gen.onnx.quantise import settled
from gen.onnx.values import Pending, PendingPixels, Quantisation, Real, Value
from gen.onnx.weights import Kernel, convolved
from gen.onnx.windows import Windows

__all__ = ["MOST_PHASES", "blended", "places"]

#: Phases of an axis: factors of 2 to 16, and 3 / 2, 4 / 3, 8 / 5 and the like.
MOST_PHASES = 16
#: The largest weight, and phases of both axes: beyond these one axis is made after the other.
_LARGEST, _MOST_TOGETHER = 127, 16
#: What a scale is a fraction of, and how far rounding puts a float32 from it, in parts of it.
_LARGEST_SIZE, _ROUNDED = 1024, Fraction(1, 1 << 22)
#: Where outputs lie, by coordinate_transformation_mode: of the input's and the output's size, and the outputs an input
#: gives, the first place and the way from one to the next.
_PLACES = {
    "half_pixel": lambda size, made, scale: (1 / (2 * scale) - Fraction(1, 2), 1 / scale),
    "pytorch_half_pixel": lambda size, made, scale: (
        (1 / (2 * scale) - Fraction(1, 2), 1 / scale) if made > 1 else (Fraction(0), Fraction(0))),
    "half_pixel_symmetric": lambda size, made, scale: (
        Fraction(size, 2) * (1 - made / (scale * size)) + 1 / (2 * scale) - Fraction(1, 2), 1 / scale),
    "asymmetric": lambda size, made, scale: (Fraction(0), 1 / scale),
    "align_corners": lambda size, made, scale: (Fraction(0), Fraction(size - 1, made - 1) if made > 1 else Fraction(0)),
}


@dataclass(frozen=True)
class _Axis:
    """``weights`` (phases, taps), whole numbers of which those of a phase are ``total`` together: output n of a phase
    has the taps ``n * stride + k`` of ``inputs``, elements of the axis, of which those at an edge may be there several
    times; each phase has ``outputs``. ``where``: output of the axis -> its phase, and its number in that.
    """

    weights: np.ndarray
    total: int
    stride: int
    inputs: np.ndarray
    outputs: int
    where: np.ndarray


def places(mode: str, size: int, made: int, scale: float) -> tuple[Fraction, Fraction]:
    """Where the first of ``made`` outputs lies in an input of ``size``, and the way to the next. Raises NodeError."""
    if mode not in _PLACES:
        raise NodeError(f"has coordinate_transformation_mode {mode}, which is not supported; there are "
                        f"{', '.join(_PLACES)}", code="unsupported-form", attribute="coordinate_transformation_mode")
    return _PLACES[mode](size, made, _ratio(scale))


def _ratio(scale: float) -> Fraction:
    """The fraction of small numbers that a ``scale`` > 0 is rounded from; of none the scale itself."""
    exact = Fraction(scale)
    found = exact.limit_denominator(_LARGEST_SIZE) if scale >= 1 else 1 / (1 / exact).limit_denominator(_LARGEST_SIZE)
    return found if abs(found - exact) <= exact * _ROUNDED else exact


def _axis(size: int, made: int, start: Fraction, step: Fraction) -> _Axis:
    """Raises NodeError for phases that are too many."""
    step = step if made > 1 else Fraction(1)
    phases, stride = step.denominator, step.numerator
    if size == 1:       # whatever lies beyond the edge is the edge
        return replace(_same(made), inputs=np.zeros(made, np.int64))
    if phases > MOST_PHASES:
        raise NodeError(f"makes {made} rows or columns of {size}, whose weights do not repeat; resize by a factor that "
                        f"is a whole number, or a fraction of whole numbers up to {MOST_PHASES} (with align_corners "
                        "that of the sizes less 1)", code="unsupported-form", attribute="scales")
    at = [start + step * y for y in range(min(phases, made))]
    # The first phase is that of the first output after a whole input, so that as many as can be begin at one input.
    first = next((y for y in range(1, len(at)) if floor(at[y]) > floor(at[y - 1])), 0) - phases
    found = [start + step * (first + phase) for phase in range(phases)]
    begins = [floor(place) for place in found]
    fractions = [place - begin for place, begin in zip(found, begins, strict=True)]
    total = min(lcm(*(fraction.denominator for fraction in fractions)), _LARGEST)
    low = min(begins)
    weights = np.zeros((phases, max(begins) - low + 2), np.int64)
    for phase, (begin, fraction) in enumerate(zip(begins, fractions, strict=True)):
        weights[phase, begin - low] += total - round(fraction * total)
        weights[phase, begin - low + 1] += round(fraction * total)
    used = np.flatnonzero(weights.any(axis=0))
    weights, low = weights[:, used[0]:used[-1] + 1], low + int(used[0])
    where = np.stack(np.divmod(np.arange(made) - first, phases)[::-1], axis=1)
    skipped = int(where[:, 1].min())
    where[:, 1] -= skipped
    low += skipped * stride
    # The input from its first element to its last one: what is left over costs nothing, a part of it would be a copy.
    weights, low = np.pad(weights, ((0, 0), (max(low, 0), 0))), min(low, 0)
    last = max(low + int(where[:, 1].max()) * stride + weights.shape[1], size) - 1
    outputs = (last + 1 - low - weights.shape[1]) // stride + 1
    inputs = np.clip(np.arange(low, last + 1), 0, size - 1)
    return _Axis(weights, total, stride, inputs, outputs, where)


def blended(context: Context, value: Real, sizes: Sequence[int], at: Sequence[tuple[Fraction, Fraction]]) -> Value:
    """``value``, (1, C, W) or (1, C, H, W), in maps of ``sizes``; ``at``: of each spatial axis the place of its first
    output, and the way from one to the next. Raises NodeError.
    """
    *above, cols = (_axis(size, made, *place) for size, made, place in
                    zip(value.order.shape[2:], sizes, at, strict=True))
    rows = above[0] if above else _same(1)
    phases = len(rows.weights), len(cols.weights)
    if rows.weights.max() * cols.weights.max() > _LARGEST or (min(phases) > 1 and prod(phases) > _MOST_TOGETHER):
        made = _both(context, value, rows, _same(value.order.shape[-1]))
        value = replace(value, quantised=settled(context, made, Quantisation(value.scale, value.zero_point, False)))
        rows = _same(sizes[0])
    return _both(context, value, rows, cols)


def _same(size: int) -> _Axis:
    """An axis that stays what it is."""
    number = np.arange(size)
    return _Axis(np.ones((1, 1), np.int64), 1, 1, number, size, np.stack([np.zeros_like(number), number], axis=1))


def _both(context: Context, value: Real, rows: _Axis, cols: _Axis) -> Pending | PendingPixels:
    name, order = context.node.name, value.order
    for axis, part in zip((-2, -1) if order.ndim == 4 else (-1, ), (rows, cols) if order.ndim == 4 else (cols, ),
                          strict=True):
        order = order.take(part.inputs, axis)
    source, (channels, _, _) = context.feature_map(replace(value, quantised=replace(value.quantised, order=order)))
    parts = [_phase(context, source, channels, rows, cols, row, col)
             for row, col in product(range(len(rows.weights)), range(len(cols.weights)))]
    number = rows.where[:, None, 0] * len(cols.weights) + cols.where[:, 0]
    pixels = (number * rows.outputs + rows.where[:, None, 1]) * cols.outputs + cols.where[:, 1]
    result = np.arange(channels * pixels.size).reshape(1, channels, *pixels.shape[4 - order.ndim:])
    if len(parts) == 1 and np.array_equal(pixels.ravel(), np.arange(rows.outputs * cols.outputs)):
        return replace(parts[0], order=result)
    return PendingPixels(name=name, nodes=(name,), order=result, parts=tuple(parts), places=pixels.ravel(),
                         size=(pixels.shape[0], pixels.shape[1]), moved_by=name)


def _phase(context: Context, source: Real, channels: int, rows: _Axis, cols: _Axis, row: int, col: int) -> Pending:
    weights = np.outer(rows.weights[row], cols.weights[col]).astype(np.int16)
    kernel = Kernel(np.repeat(weights[None, None], channels, axis=0), np.full(channels, 1 / (rows.total * cols.total)),
                    np.zeros(channels), depthwise=channels > 1)
    windows = Windows((weights.shape[0], weights.shape[1]), (rows.stride, cols.stride), (0, 0, 0, 0),
                      (rows.outputs, cols.outputs))
    order = np.arange(channels * rows.outputs * cols.outputs).reshape(1, channels, rows.outputs, cols.outputs)
    return convolved(context.node.name, source, kernel, windows, order)
