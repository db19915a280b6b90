"""Resize and Upsample: axis by axis, by tables of which elements make one, and with what weights."""

import math
from collections.abc import Callable

import numpy as np

from gen.c.context import Context
from gen.c.copies import pick
from gen.c.helper import instance
from gen.c.registry import operator
from gen.c.text import c_type
from gen.c.value import Value, product
from gen.onnx.model import Node

__all__: list[str] = []

_BLEND = """
/* Along one axis each element is a sum of `taps` others, by their places and weights. */
static void $name(size_t outer, size_t size, size_t count, size_t inner, size_t taps, const int32_t *places,
                  const $T *weights, const $T *x, $T *y)
{
    for (size_t o = 0u; o < outer; ++o, x += size * inner)
        for (size_t i = 0u; i < count; ++i)
            for (size_t k = 0u; k < inner; ++k) {
                $T total = 0;
                for (size_t t = 0u; t < taps; ++t)
                    total += weights[i * taps + t] * x[(size_t)places[i * taps + t] * inner + k];
                *y++ = total;
            }
}
"""
#: As onnxruntime computes places of given scales: in single precision.
_Single = np.float32
_Place = Callable[..., np.float32]
#: Where an element of the result is in the input: of its place, the scale, both sizes, and the region of interest.
_MODES: dict[str, _Place] = {
    "half_pixel": lambda at, scale, size, count, start, end: (at + 0.5) / scale - 0.5,
    "half_pixel_symmetric": lambda at, scale, size, count, start, end: (
        size / 2 * (1 - count / (scale * size)) + (at + 0.5) / scale - 0.5),
    "pytorch_half_pixel": lambda at, scale, size, count, start, end: (
        (at + 0.5) / scale - 0.5 if count > 1 else _Single(0)),
    "tf_half_pixel_for_nn": lambda at, scale, size, count, start, end: (at + 0.5) / scale,
    "align_corners": lambda at, scale, size, count, start, end: (
        at * (size - 1) / (count - 1) if count > 1 else _Single(0)),
    "asymmetric": lambda at, scale, size, count, start, end: at / scale,
    "tf_crop_and_resize": lambda at, scale, size, count, start, end: (
        start * (size - 1) + at * (end - start) * (size - 1) / (count - 1) if count > 1
        else 0.5 * (start + end) * (size - 1)),
}
_NEAREST: dict[str, Callable[[float], int]] = {
    "round_prefer_floor": lambda at: math.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: math.floor(at + 0.5),
    "floor": math.floor, "ceil": math.ceil, "simple": math.floor,
}


def _cubic(fraction: float, a: float) -> list[float]:
    def near(t: float) -> float:
        return ((a + 2) * t - (a + 3)) * t * t + 1

    def far(t: float) -> float:
        return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a

    return [far(fraction + 1), near(fraction), near(1 - fraction), far(2 - fraction)]


@operator("Resize", "Upsample")
def resize(node: Node, c: Context) -> None:
    value = c.input(0)
    shape, attributes = c.known(value), node.attributes
    region: np.ndarray | None = None
    sizes: np.ndarray | None = None
    scales: np.ndarray | None
    newer = node.op == "Resize" and c.opset >= 11
    if node.op == "Upsample" and c.opset < 9:
        scales = np.array(attributes["scales"])
    elif newer:
        region, scales, sizes = c.constant(1), c.constant(2), c.constant(3)
    else:
        scales = c.constant(1)
    axes = list(attributes.get("axes") or range(value.rank))
    axes = [axis % value.rank for axis in axes]
    mode = attributes.get("mode", "nearest")
    how = attributes.get("coordinate_transformation_mode", "half_pixel") if newer else "asymmetric"
    if attributes.get("antialias", 0) and mode != "nearest":
        raise c.refusal("with antialias")
    if how not in _MODES or mode not in ("nearest", "linear", "cubic"):
        raise c.refusal(f"in mode {mode}, {how}")
    results = dict.fromkeys(range(value.rank), 0)
    factors: dict[int, np.floating] = {}
    if sizes is not None and sizes.size:
        if attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
            raise c.refusal("that keeps an aspect ratio")
        for axis, size in zip(axes, sizes.tolist(), strict=True):
            results[axis], factors[axis] = int(size), np.float64(size / shape[axis])
    else:
        if scales is None:
            raise c.refusal("without scales and sizes")
        for axis, scale in zip(axes, scales.tolist(), strict=True):
            results[axis], factors[axis] = math.floor(float(_Single(scale)) * shape[axis]), _Single(scale)
    kept = attributes.get("nearest_mode", "round_prefer_floor") if newer else "floor"
    for at, axis in enumerate(axes):
        start, end = (0.0, 1.0) if region is None or not region.size else (
            float(region[at]), float(region[at + len(axes)]))
        count, scale = results[axis], factors[axis]
        if count == shape[axis] and scale == 1 and (start, end) == (0.0, 1.0):
            continue
        size = _Single(shape[axis])
        places = np.array([_MODES[how](_Single(n), scale, size, _Single(count), _Single(start), _Single(end))
                           for n in range(count)], _Single)
        outside = (places < 0) | (places > shape[axis] - 1)
        if how == "tf_crop_and_resize" and outside.any():
            raise c.refusal("of what is outside of the image")
        value = (_nearest if mode == "nearest" else _blended)(
            c, node, value, axis, places, kept if mode == "nearest" else mode)
    c.result(value)


def _nearest(c: Context, node: Node, value: Value, axis: int, places: np.ndarray, kept: str) -> Value:
    size = c.known(value)[axis]
    index = [_NEAREST[kept](place) for place in places.tolist()]
    array = np.clip(np.array(index), 0, size - 1).astype(np.int32)
    return pick(c, value, axis, Value(array.dtype, array.shape, array=array))


def _blended(c: Context, node: Node, value: Value, axis: int, places: np.ndarray, mode: str) -> Value:
    if value.dtype.kind != "f":
        raise c.refusal(f"of {value.dtype} in mode {mode}")
    size = c.known(value)[axis]
    taps, weights = [], []
    for place in places.tolist():
        if mode == "linear":
            place = min(max(place, 0.0), size - 1.0)
            first = min(math.floor(place), size - 1)
            own = [first, min(first + 1, size - 1)]
            shares = [1 - (place - first), place - first]
        else:
            first = math.floor(place)
            own = [first + n for n in (-1, 0, 1, 2)]
            shares = _cubic(place - first, float(node.attributes.get("cubic_coeff_a", -0.75)))
            if node.attributes.get("exclude_outside", 0):
                shares = [share if 0 <= at < size else 0.0 for at, share in zip(own, shares, strict=True)]
                shares = [share / sum(shares) for share in shares]
        taps.append([min(max(at, 0), size - 1) for at in own])
        weights.append(shares)
    kind = c_type(value.dtype)
    table = np.array(taps, np.int32)
    shape = [table.shape[0] if at == axis else dim for at, dim in enumerate(value.shape)]
    result = c.new(value.dtype, shape)
    c.call(instance(f"blend_{kind.suffix}", _BLEND, T=kind.name), product(value.shape[:axis]), size, table.shape[0],
           product(value.shape[axis + 1:]), table.shape[1], table, np.array(weights, value.dtype), value, result)
    return result
