"""Resize and Upsample: each value is that of its nearest neighbour, or lies between neighbours."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from gen.ir.epilogue.upsample import Upsample
from gen.ir.graph import MAX_VALUES
from gen.onnx.arrangement import rearranged, result_order
from gen.onnx.blended import MOST_PHASES, blended, places
from gen.onnx.constants import constant, integers
from gen.onnx.context import Context
from gen.onnx.handlers.quantisation import same_integers
from gen.onnx.model import NodeError
from gen.onnx.pooling import copy
from gen.onnx.registry import Inputs, Registry, at
from gen.onnx.values import Quantised, Value

__all__ = ["HANDLERS"]

HANDLERS = Registry()

#: Of the way from an element to the next.
_NEXT_TO = np.float32(1e-6)


@HANDLERS.handles("Resize", "Upsample", conditions=(
    "nearest, of height and width, by whole factors in the coordinates in which that repeats each value (asymmetric "
    "with floor, half_pixel with round_prefer_floor, and more): in the layer in front of it if nothing else reads "
    "that, else as a copy; columns by 32 at most. Any other by a layer that moves pixels. Linear, by a factor or a "
    f"fraction whose numerator is {MOST_PHASES} at most (with align_corners that of the sizes less 1): a convolution "
    "of a channel each for each phase, and a layer that puts these side by side. At an output the processor does that"))
def resize(context: Context, inputs: Inputs) -> Value:
    """A copy whose rows and columns are repeated; of a tensor of integers one of the same integers. Or blends."""
    value, mode = inputs[0], context.node.attributes.get("mode", "nearest")
    if mode in ("linear", "bilinear"):
        return _linear(context, inputs)
    if mode != "nearest":
        raise NodeError(f"has mode {mode}; there are nearest and linear: export the model with one of these",
                        code="unsupported-form", attribute="mode")
    if isinstance(value, Quantised):
        return same_integers(context, value, lambda real: _nearest(context, real, inputs))
    return _nearest(context, value, inputs)


def _nearest(context: Context, value: Value | None, inputs: Inputs) -> Value:
    """Rows and columns that are repeated, or else pixels of the input in another arrangement."""
    real, (channels, height, width) = context.feature_map(value)
    shape = real.order.shape
    scales, made = _scales(context, inputs, shape)
    if list(shape[2:]) == made:     # onnxruntime leaves it alone, whatever scales and coordinates say
        return real
    found = [_sources(context, *axis) for axis in zip(shape[2:], made, scales[2:], strict=True)]
    factors = [count // size for size, count in zip(shape[2:], made, strict=True)]
    if any(not np.array_equal(places, np.arange(size * factor) // max(factor, 1))
           for places, size, factor in zip(found, shape[2:], factors, strict=True)):
        order = real.order
        for axis, places in enumerate(found, 2):
            order = order.take(places, axis)
        return rearranged(context.node, real, lambda _: order)
    down, across = (1, *factors)[-2:]
    size = (channels, height * down, width * across)
    plain = copy(context, real)
    return replace(plain, shape=size, order=result_order(size, len(shape)),
                   arguments={**plain.arguments, "epilogue": (Upsample((down, across)),)})


def _linear(context: Context, inputs: Inputs) -> Value:
    """Between neighbours: `gen.onnx.blended`."""
    real, _ = context.feature_map(inputs[0])
    shape, attributes = real.order.shape, context.node.attributes
    for name in ("antialias", "exclude_outside"):
        if attributes.get(name):
            raise NodeError(f"has {name}; export the model without it", code="unsupported-form", attribute=name)
    scales, made = _scales(context, inputs, shape)
    if list(shape[2:]) == made:
        return real
    return blended(context, real, made, [places(_coordinates(context), size, count, scale) for size, count, scale
                                         in zip(shape[2:], made, scales[2:], strict=True)])


def _scales(context: Context, inputs: Inputs, shape: Sequence[int]) -> tuple[tuple[float, ...], list[int]]:
    """What each axis is multiplied by, from sizes or scales, and the sizes of the spatial axes. Raises NodeError."""
    node, rank = context.node, len(shape)
    axes = [int(axis) % rank for axis in node.attributes.get("axes") or range(rank)]
    sizes = at(inputs, 3)
    if sizes is not None:
        if node.attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
            raise NodeError("keeps an aspect ratio; export the model with the sizes that come out",
                            code="unsupported-form", attribute="keep_aspect_ratio_policy")
        scales = [size / shape[axis] for size, axis in zip(integers(sizes, "sizes"), axes, strict=True)]
    elif "scales" in node.attributes:
        scales = node.attributes["scales"]
    else:
        # The region has been put in front of them.
        place = 1 if node.op == "Upsample" or context.opset < 11 else 2
        scales = constant(at(inputs, place), "scales").tolist()
    found = [1.0] * rank
    for axis, scale in zip(axes, scales, strict=True):
        found[axis] = float(scale)
    if not all(0 < scale < MAX_VALUES for scale in found):
        raise NodeError(f"multiplies the axes by {', '.join(f'{scale:g}' for scale in found)}", code="bad-attribute",
                        attribute="scales")
    if set(found[:2]) != {1}:
        raise NodeError(f"multiplies samples or channels, by {found[0]:g} and {found[1]:g}; only height and width can "
                        "be", code="unsupported-form", attribute="scales")
    made = [int(size * scale + 1e-6) for size, scale in zip(shape[2:], found[2:], strict=True)]
    if not all(made):
        raise NodeError("leaves nothing of its input", code="bad-shape")
    if prod((*shape[:2], *made)) > MAX_VALUES:
        raise NodeError(f"makes more than {MAX_VALUES:,} values", code="too-large", limit=MAX_VALUES)
    if _coordinates(context) == "align_corners" and any(
            abs(size * scale - count) > 1e-3 for size, scale, count in zip(shape[2:], found[2:], made, strict=True)):
        raise NodeError("has align_corners and scales that give no whole size, which ONNX and onnxruntime take in "
                        "different ways; export the model with sizes", code="unsupported-form", attribute="scales")
    return tuple(found), made


def _coordinates(context: Context) -> str:
    """coordinate_transformation_mode; before that attribute there was one."""
    if context.node.op == "Upsample" or context.opset < 11:
        return "asymmetric"
    return str(context.node.attributes.get("coordinate_transformation_mode", "half_pixel"))


def _sources(context: Context, size: int, made: int, scale: float) -> np.ndarray:
    """The input's index of each of ``made`` outputs along an axis of ``size``, as ONNX defines it; in float32, as
    onnxruntime computes it.
    """
    if scale == 1:      # onnxruntime leaves such an axis alone, whatever the coordinates
        return np.arange(size)
    at_output, factor, half = np.arange(made, dtype=np.float32), np.float32(scale), np.float32(0.5)
    mode, nearest = _coordinates(context), "ceil" if scale < 1 else "floor"
    if context.node.op == "Resize" and context.opset > 10:
        nearest = context.node.attributes.get("nearest_mode", "round_prefer_floor")
    found: np.ndarray
    match mode:
        case "half_pixel":
            found = (at_output + half) / factor - half
        case "half_pixel_symmetric":
            # Of all that it computes in float32 here this quotient alone is.
            kept = float(np.float32(made) / (factor * np.float32(size)))
            found = (size / 2 * (1 - kept) + (np.arange(made) + 0.5) / float(factor) - 0.5).astype(np.float32)
        case "pytorch_half_pixel":
            found = (at_output + half) / factor - half if made > 1 else 0 * at_output
        case "align_corners":
            found = at_output * np.float32(size - 1) / max(made - 1, 1)
        case "tf_half_pixel_for_nn":
            found = (at_output + half) / factor
        case "asymmetric":
            found = at_output / factor
        case _:
            raise NodeError(f"has coordinate_transformation_mode {mode}, which is not supported; export it with "
                            "asymmetric", code="unsupported-form", attribute="coordinate_transformation_mode")
    whole = np.floor(found)
    beyond = found - whole - half       # where that is next to nothing onnxruntime sees a place between two neighbours
    rounded = {"round_prefer_floor": whole + (beyond > _NEXT_TO), "round_prefer_ceil": whole + (beyond >= -_NEXT_TO),
               "floor": whole, "ceil": np.ceil(found)}[nearest]
    return np.clip(rounded, 0, size - 1).astype(np.int64)
