"""Convolutions."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gen.onnx.arrangement import result_order
from gen.onnx.context import Context
from gen.onnx.model import Node, NodeError
from gen.onnx.registry import Inputs, Registry, at
from gen.onnx.values import Padded, Value
from gen.onnx.weights import MAX_WEIGHTS, Kernel, bias_of, convolved, weights_of
from gen.onnx.windows import Windows, resolve

__all__ = ["HANDLERS", "convolution"]

HANDLERS = Registry()


def _ungrouped(weights: np.ndarray, groups: int) -> np.ndarray:
    """Weights of a grouped convolution as those of an ordinary one, with zeros."""
    oc, ic, *kernel = weights.shape
    if weights.size * groups > MAX_WEIGHTS:
        raise NodeError(f"its {groups} groups take {weights.size * groups:,} weights as a full convolution, at most "
                        f"{MAX_WEIGHTS:,} are supported")
    result = np.zeros((oc, ic * groups, *kernel), weights.dtype)
    for group in range(groups):
        rows = slice(group * (oc // groups), (group + 1) * (oc // groups))
        result[rows, group * ic:(group + 1) * ic] = weights[rows]
    return result


def _windows(node: Node, size: Sequence[int], kernel: Sequence[int], padded: Padded | None) -> Windows:
    """The windows of a convolution, with the padding in front of it as its own."""
    if padded is None:
        return resolve(node.attributes, size, kernel)
    pads = padded.pads
    windows = resolve(node.attributes, [size[0] + pads[0] + pads[2], size[-1] + pads[1] + pads[3]][-len(size):], kernel)
    if any(windows.pads):
        if padded.pad_value != padded.real.zero_point:
            raise NodeError("pads once more around padding that is not zero")
        pads = tuple(a + b for a, b in zip(pads, windows.pads, strict=True))  # type: ignore[assignment]
    return replace(windows, pads=pads)


@HANDLERS.handles("Conv")
def convolution(context: Context, inputs: Inputs) -> Value:
    node = context.node
    padded = inputs[0] if isinstance(inputs[0], Padded) else None
    source, dims = context.feature_map(padded.real if padded else inputs[0])
    weights, scale = weights_of(inputs[1], 0)
    rank = source.order.ndim
    if weights.ndim != rank:
        raise NodeError(f"weights of shape {weights.shape} on an input of shape {source.order.shape}")
    if any(d != 1 for d in node.attributes.get("dilations", [])):
        raise NodeError("dilation is not supported; train or export the model without it")
    windows = _windows(node, dims[1:], weights.shape[2:], padded)
    if rank == 3:
        weights = weights[:, :, None, :]
    groups = int(node.attributes.get("group", 1))
    depthwise = groups == dims[0] == weights.shape[0] > 1
    if groups < 1 or weights.shape[0] % groups:
        raise NodeError(f"{weights.shape[0]} output channels cannot be divided into {groups} groups")
    if not depthwise and groups > 1:
        weights = _ungrouped(weights, groups)
    if weights.shape[1] != (1 if depthwise else dims[0]):
        raise NodeError(f"weights of {weights.shape[1]} channels on an input of {dims[0]}")
    pad_value = padded.pad_value if padded else None
    if not padded and context.graph.tensors[source.quantised.tensor].zero_point != source.zero_point:
        pad_value = source.zero_point   # zero is elsewhere for this reader
    bias = bias_of(at(inputs, 2), weights.shape[0], broadcast=False)
    order = result_order((weights.shape[0], *windows.output), rank)
    return convolved(node.name, source, Kernel(weights, scale, bias, depthwise), windows, order, pad_value)
