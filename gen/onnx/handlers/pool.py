"""Pools: maxima and averages of windows."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from gen.ir.graph import Conv
from gen.onnx.arrangement import moved, result_order
from gen.onnx.context import Context
from gen.onnx.handlers.quantisation import same_integers
from gen.onnx.joined import is_in_groups
from gen.onnx.model import NodeError
from gen.onnx.pooling import pooled, store_maximum
from gen.onnx.refusals import refusal
from gen.onnx.registry import Inputs, Registry
from gen.onnx.values import Pending, PendingPool, Quantised, Real, Value
from gen.onnx.weights import Kernel, convolved
from gen.onnx.windows import Windows, counts, resolve

__all__ = ["HANDLERS", "average_pool", "covers_pixels", "covers_some_pixels", "over_pixels"]

HANDLERS = Registry()


@HANDLERS.handles("MaxPool", conditions=(
    "on the pool unit, or with `--features maximum`, if it is of 2x2 with a stride of 2 and alone reads a convolution, "
    "as that is stored; no dilation, no indices. Where its input is quantised only after it, it is in front of it, "
    "too: the result is the same"))
def max_pool(context: Context, inputs: Inputs) -> Value:
    node, graph = context.node, context.graph
    if any(d != 1 for d in node.attributes.get("dilations") or ()):
        raise NodeError("has a dilation: the machine takes maxima of neighbouring pixels only; train or export the "
                        "model without it", code="unsupported-form", attribute="dilations")
    if any(node.outputs[1:]):
        raise NodeError("gives the indices of its maxima, which the machine does not keep; use the first output alone",
                        code="unsupported-form")
    value = inputs[0]
    if isinstance(value, Quantised):        # the maximum is the same in any scale
        return same_integers(context, value, lambda real: max_pool(context, [real]))
    if isinstance(value, Pending) and value.layer is Conv:
        return _pool_later(context, value)
    source, dims = context.feature_map(value)
    windows = resolve(node.attributes, dims[1:])
    order = result_order((dims[0], *windows.output), source.order.ndim)
    result = pooled(context, source, windows, order, divisor=None)
    if not graph.tensors[source.quantised.tensor].signs or source.scale != 1:
        return result
    return store_maximum(context, result)


def _pool_later(context: Context, value: Pending) -> PendingPool:
    """The maximum of a result that a Sign will threshold."""
    if np.isfinite([value.low, value.high]).any():
        raise refusal(value, "its input")
    if not np.array_equal(value.order.ravel(), np.arange(value.order.size)) or value.order.ndim not in (3, 4):
        raise NodeError("its input is a rearrangement; the machine moves only whole pixels", code="rearranged")
    windows = resolve(context.node.attributes, value.shape[1:])
    shape, ones = (value.shape[0], *windows.output), np.ones(value.shape[0])
    return PendingPool(
        name=context.node.name, nodes=(context.node.name,), order=result_order(shape, value.order.ndim), inner=value,
        windows=windows, shape=shape, factor=ones, shift=0 * ones)


@HANDLERS.handles("AveragePool", conditions=(
    "on the pool unit, with dilation as a depthwise convolution; all windows average the same number of values, "
    "at most 65,536: padding is counted (count_include_pad), or no window has any"))
def average_pool(context: Context, inputs: Inputs) -> Value:
    attributes = context.node.attributes
    source, dims = context.feature_map(inputs[0])
    windows = resolve(attributes, dims[1:])
    averaged = counts(attributes, dims[1:], windows)
    if averaged.min() != averaged.max():
        raise NodeError(f"windows at the edge average {averaged.min()} values, others {averaged.max()}, and the "
                        "machine divides all by one number; use count_include_pad=1, no padding or no ceil_mode",
                        code="unsupported-form", attribute="count_include_pad")
    order, divisor = result_order((dims[0], *windows.output), source.order.ndim), int(averaged.flat[0])
    steps = [1] * (4 - source.order.ndim) + list(attributes.get("dilations") or [1] * (source.order.ndim - 2))
    if steps == [1, 1]:
        return pooled(context, source, windows, order, divisor=divisor)
    weights = np.zeros((dims[0], 1, *windows.kernel), np.int16)
    weights[:, :, ::steps[0], ::steps[1]] = 1
    kernel = Kernel(weights, np.full(dims[0], 1 / divisor), np.zeros(dims[0]), depthwise=True)
    return convolved(context.node.name, source, kernel, windows, order, source.zero_point)


def _whole(height: int, width: int) -> Windows:
    """The one window that covers a feature map."""
    return Windows((height, width), (1, 1), (0, 0, 0, 0), (1, 1))


@HANDLERS.handles("GlobalMaxPool", conditions="on the pool unit")
def global_max_pool(context: Context, inputs: Inputs) -> Value:
    source, (channels, height, width) = context.feature_map(inputs[0])
    order = result_order((channels, 1, 1), source.order.ndim)
    return pooled(context, source, _whole(height, width), order, divisor=None)


def covers_pixels(context: Context, value: Value | None, over: Sequence[int]) -> bool:
    """Whether axes ``over`` of the value's shape are all the pixels of each of its tensor's channels."""
    owners = _owners(context, value, over)
    if owners is None or not isinstance(value, Real):
        return False
    channels, *size = context.graph.tensors[value.quantised.tensor].shape
    return owners.shape == (channels, prod(size)) and bool((owners == owners[:, :1]).all())


def covers_some_pixels(context: Context, value: Value | None, over: Sequence[int]) -> bool:
    """Whether axes ``over`` of the value's shape are pixels, all or not, of a channel of its tensor, each time of
    another one.
    """
    owners = _owners(context, value, over)
    return (owners is not None and len(np.unique(owners[:, 0])) == len(owners)
            and bool((owners == owners[:, :1]).all()))


def _owners(context: Context, value: Value | None, over: Sequence[int]) -> np.ndarray | None:
    """The channels of a value's elements, (..., those of axes ``over``); None for what has no tensor yet."""
    tensor = context.graph.tensors.get(value.quantised.tensor) if isinstance(value, Real) else None
    if tensor is None or not isinstance(value, Real):
        return None
    pixels = np.moveaxis(value.order, list(over), range(-len(over), 0))
    owners: np.ndarray = pixels.reshape(-1, prod(pixels.shape[-len(over):])) // prod(tensor.shape[1:])
    return owners


def over_pixels(context: Context, value: Value | None, over: Sequence[int], *, keep: bool, mean: bool) -> Value:
    """The mean, or the maximum, over axes ``over`` of the value's shape, which must be all spatial ones."""
    if not isinstance(value, Real):
        raise refusal(value, "its input")
    before = value.order.shape
    over = sorted(axis % len(before) for axis in over)
    if over == list(range(2, len(before))) and not covers_pixels(context, value, over) and is_in_groups(
            context.graph, replace(value, quantised=context.graph.tensor(
                value.quantised, value.scale, value.zero_point))):
        value, _ = context.feature_map(value)       # phases, which are channels, become pixels first
    source = context.activation(moved(value, over, range(len(before) - len(over), len(before))))
    channels, height, width = context.graph.tensors[source.quantised.tensor].shape
    owners = source.order.reshape(-1, int(np.prod([before[axis] for axis in over]))) // (height * width)
    if owners.shape != (channels, height * width) or not (owners == owners[:, :1]).all():
        what = "mean" if mean else "maximum"
        raise NodeError(f"reduces axes {over} of shape {before}; only the {what} over all spatial axes is supported",
                        code="unsupported-form", attribute="axes")
    dims = [1 if i in over else n for i, n in enumerate(before) if keep or i not in over]
    return pooled(context, source, _whole(height, width), owners[:, 0].reshape(dims),
                  divisor=height * width if mean else None)
