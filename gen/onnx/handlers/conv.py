"""Convolutions."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from gen.onnx.arrangement import result_order
from gen.onnx.context import Context
from gen.onnx.edges import pad_integer, stored
from gen.onnx.model import Node, NodeError
from gen.onnx.registry import Inputs, Registry, at
from gen.onnx.values import Padded, Value, channels_shape
from gen.onnx.weights import MAX_WEIGHTS, Kernel, bias_of, convolved, weights_of
from gen.onnx.windows import MAX_KERNEL, Windows, dilated, resolve

__all__ = ["HANDLERS", "convolution", "ungrouped"]

HANDLERS = Registry()


def ungrouped(weights: np.ndarray, groups: int) -> np.ndarray:
    """Weights of a grouped convolution as those of an ordinary one, with zeros."""
    oc, ic, *kernel = weights.shape
    if weights.size * groups > MAX_WEIGHTS:
        raise NodeError(f"its {groups} groups take {weights.size * groups:,} weights as a full convolution, at most "
                        f"{MAX_WEIGHTS:,} are supported", code="too-large", limit=MAX_WEIGHTS)
    result = np.zeros((oc, ic * groups, *kernel), weights.dtype)
    for group in range(groups):
        rows = slice(group * (oc // groups), (group + 1) * (oc // groups))
        result[rows, group * ic:(group + 1) * ic] = weights[rows]
    return result


def _padded(value: Padded, node: Node, kernel: Sequence[int]) -> tuple[Windows, int] | None:
    """Windows over a padded value with that padding as their own, and what it is; None where there are two kinds."""
    _, *size = channels_shape(value.shape) or value.shape
    windows, number = resolve(node.attributes, size, kernel), pad_integer(value)
    if any(windows.pads) and number != value.real.zero_point:
        return None
    top, left, bottom, right = (a + b for a, b in zip(value.pads, windows.pads, strict=True))
    return replace(windows, pads=(top, left, bottom, right)), number


def _dilated(weights: np.ndarray, dilations: Sequence[int]) -> np.ndarray:
    """Weights with zeros between the taps of a kernel."""
    size = dilated(weights.shape[2:], dilations)
    if size != list(weights.shape[2:]) and max(size) > MAX_KERNEL:
        raise NodeError(f"its kernel is {size} with dilation; the machine has at most {MAX_KERNEL}x{MAX_KERNEL}",
                        code="too-large", limit=MAX_KERNEL)
    if prod(size) * prod(weights.shape[:2]) > MAX_WEIGHTS:
        raise NodeError(f"its dilated kernel of {size} takes more than {MAX_WEIGHTS:,} weights",
                        code="too-large", limit=MAX_WEIGHTS)
    result = np.zeros((*weights.shape[:2], *size), weights.dtype)
    result[tuple(slice(None, None, step) for step in (1, 1, *dilations))] = weights
    return result


@HANDLERS.handles("Conv", conditions=(
    "a layer of its own; one or two spatial axes, constant weights. Horizontal strides above 7 where they are products "
    "of shorter ones, as those of patch embeddings are. Groups other than depthwise as a full "
    "convolution with zeros. Dilation as a kernel with zeros between the taps, which take their time; with it the "
    "kernel is at most 63x63"))
def convolution(context: Context, inputs: Inputs) -> Value:
    node = context.node
    padded = inputs[0] if isinstance(inputs[0], Padded) else None
    source, dims = context.feature_map(padded.real if padded else inputs[0])
    weights, scale = weights_of(inputs[1], 0)
    rank = source.order.ndim
    if weights.ndim != rank:
        raise NodeError(f"weights of shape {weights.shape} on an input of shape {source.order.shape}",
                        code="operand-shapes")
    merged = _padded(padded, node, weights.shape[2:]) if padded else None
    if padded and merged is None:
        source, dims = context.feature_map(stored(context.graph, padded))
    windows, pad_value = merged or (resolve(node.attributes, dims[1:], weights.shape[2:]), None)
    weights = _dilated(weights, node.attributes.get("dilations") or [1] * (rank - 2))
    if rank == 3:
        weights = weights[:, :, None, :]
    groups = int(node.attributes.get("group", 1))
    depthwise = groups == dims[0] == weights.shape[0] > 1
    if groups < 1 or weights.shape[0] % groups:
        raise NodeError(f"{weights.shape[0]} output channels cannot be divided into {groups} groups",
                        code="operand-shapes")
    if not depthwise and groups > 1:
        weights = ungrouped(weights, groups)
    if weights.shape[1] != (1 if depthwise else dims[0]):
        raise NodeError(f"weights of {weights.shape[1]} channels on an input of {dims[0]}", code="operand-shapes")
    if merged is None and context.graph.tensors[source.quantised.tensor].zero_point != source.zero_point:
        pad_value = source.zero_point   # zero is elsewhere for this reader
    bias = bias_of(at(inputs, 2), weights.shape[0], broadcast=False)
    order = result_order((weights.shape[0], *windows.output), rank)
    return convolved(node.name, source, Kernel(weights, scale, bias, depthwise), windows, order, pad_value)
