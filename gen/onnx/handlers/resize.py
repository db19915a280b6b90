"""Resize and Upsample: to whole multiples, where each value is that of its nearest neighbour, or between neighbours."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gen.ir.epilogue.upsample import Upsample
from gen.ir.graph import MAX_VALUES
from gen.onnx.arrangement import result_order
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


@HANDLERS.handles("Resize", "Upsample", conditions=(
    "nearest, of height and width by whole factors, in the coordinates in which that repeats each value (asymmetric "
    "with floor, half_pixel with round_prefer_floor, and more): in the layer in front of it if nothing else reads "
    "that, else as a copy; columns by 32 at most. Linear, of height and width by a factor or a fraction whose "
    f"numerator is {MOST_PHASES} at most (with align_corners that of the sizes less 1): a convolution of a channel "
    "each for each phase, and a layer that puts these side by side. At an output the processor does that"))
def resize(context: Context, inputs: Inputs) -> Value:
    """A copy whose rows and columns are repeated; of a tensor of integers one of the same integers. Or blends."""
    value, mode = inputs[0], context.node.attributes.get("mode", "nearest")
    if mode in ("linear", "bilinear"):
        return _linear(context, inputs)
    if mode != "nearest":
        raise NodeError(f"has mode {mode}; there are nearest and linear: export the model with one of these",
                        code="unsupported-form", attribute="mode")
    if isinstance(value, Quantised):
        return same_integers(context, value, lambda real: _repeated(context, real, inputs))
    return _repeated(context, value, inputs)


def _repeated(context: Context, value: Value | None, inputs: Inputs) -> Value:
    real, dims = context.feature_map(value)
    shape, attributes = real.order.shape, context.node.attributes
    factors = _factors(context, inputs, shape)
    for size, factor in zip(shape, factors, strict=True):
        if not np.array_equal(_sources(context, size, factor), np.arange(size * factor) // factor):
            raise NodeError(
                f"takes other neighbours than a repetition by {factor} does (coordinates "
                f"{attributes.get('coordinate_transformation_mode', 'half_pixel')}, nearest_mode "
                f"{attributes.get('nearest_mode', 'round_prefer_floor')}); export it with asymmetric and floor",
                code="unsupported-form", attribute="nearest_mode")
    if set(factors) == {1}:
        return real
    if set(factors[:2]) != {1}:
        raise NodeError(f"multiplies samples or channels, by {factors[:2]}; only height and width can be",
                        code="unsupported-form", attribute="scales")
    down, across = (1, *factors[2:])[-2:]
    channels, height, width = dims
    made = (channels, height * down, width * across)
    plain = copy(context, real)
    return replace(plain, shape=made, order=result_order(made, len(shape)),
                   arguments={**plain.arguments, "epilogue": (Upsample((down, across)),)})


def _linear(context: Context, inputs: Inputs) -> Value:
    """Between neighbours: `gen.onnx.blended`."""
    real, _ = context.feature_map(inputs[0])
    shape, attributes = real.order.shape, context.node.attributes
    for name in ("antialias", "exclude_outside"):
        if attributes.get(name):
            raise NodeError(f"has {name}; export the model without it", code="unsupported-form", attribute=name)
    scales = _scales(context, inputs, shape)
    if not all(0 < scale < MAX_VALUES for scale in scales):
        raise NodeError(f"multiplies the axes by {', '.join(f'{scale:g}' for scale in scales)}", code="bad-attribute",
                        attribute="scales")
    if set(scales[:2]) != {1}:
        raise NodeError(f"multiplies samples or channels, by {scales[:2]}; only height and width can be",
                        code="unsupported-form", attribute="scales")
    made = [max(1, int(size * scale + 1e-6)) for size, scale in zip(shape[2:], scales[2:], strict=True)]
    if _coordinates(context) == "align_corners" and any(
            abs(size * scale - count) > 1e-3 for size, scale, count in zip(shape[2:], scales[2:], made, strict=True)):
        raise NodeError("has align_corners and scales that give no whole size, which ONNX and onnxruntime take in "
                        "different ways; export the model with sizes", code="unsupported-form", attribute="scales")
    if list(shape[2:]) == made:
        return real
    return blended(context, real, made, [places(_coordinates(context), size, count, scale) for size, count, scale
                                         in zip(shape[2:], made, scales[2:], strict=True)])


def _scales(context: Context, inputs: Inputs, shape: Sequence[int]) -> tuple[float, ...]:
    """What each axis is multiplied by, from sizes or scales."""
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
    return tuple(found)


def _factors(context: Context, inputs: Inputs, shape: Sequence[int]) -> tuple[int, ...]:
    """How often each axis is repeated."""
    factors = _scales(context, inputs, shape)
    if any(factor < 1 or factor % 1 for factor in factors):
        raise NodeError(f"multiplies the axes by {', '.join(f'{factor:g}' for factor in factors)}; only whole factors "
                        "are supported", code="unsupported-form", attribute="scales")
    return tuple(map(int, factors))


def _coordinates(context: Context) -> str:
    """coordinate_transformation_mode; before that attribute there was one."""
    if context.node.op == "Upsample" or context.opset < 11:
        return "asymmetric"
    return str(context.node.attributes.get("coordinate_transformation_mode", "half_pixel"))


def _sources(context: Context, size: int, factor: int) -> np.ndarray:
    """The input's index of each output along an axis, as ONNX defines it; in float32, as onnxruntime computes it."""
    node, made = context.node, size * factor
    at_output = np.arange(made, dtype=np.float32)
    mode, nearest = _coordinates(context), "floor"
    if node.op == "Resize" and context.opset > 10:
        nearest = node.attributes.get("nearest_mode", "round_prefer_floor")
    half = np.float32(0.5)
    found: np.ndarray
    match mode:
        case "half_pixel" | "half_pixel_symmetric":
            found = (at_output + half) / factor - half
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
    rounded = {"round_prefer_floor": np.ceil(found - half), "round_prefer_ceil": np.floor(found + half),
               "floor": np.floor(found), "ceil": np.ceil(found)}[nearest]
    return np.clip(rounded, 0, size - 1).astype(np.int64)
