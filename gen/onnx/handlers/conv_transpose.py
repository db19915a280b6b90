"""Transposed convolutions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from gen.ir.graph import MAX_VALUES
from gen.onnx.context import Context
from gen.onnx.handlers.conv import ungrouped
from gen.onnx.model import NodeError
from gen.onnx.registry import Inputs, Registry, at
from gen.onnx.values import QuantisedConstant, Value
from gen.onnx.weights import MAX_WEIGHTS, Kernel, bias_of, convolved, weights_of
from gen.onnx.windows import Windows

__all__ = ["HANDLERS"]

HANDLERS = Registry()


@dataclass(frozen=True)
class _Axis:
    """One axis: output ``stride * n + phase`` has the inputs ``n + first + place`` under tap ``taps[phase, place]``.

    ``outputs`` are that many for each phase, of which the last ones may lie beyond ``size``; a tap of -1 is none.
    """

    taps: np.ndarray
    first: int
    outputs: int
    pad: int
    size: int


def _axis(inputs: int, taps: int, *, stride: int, dilation: int, pad: int, size: int) -> _Axis:
    """Output ``y`` is the sum of ``x[i] * w[k]`` over all ``i * stride + k * dilation - pad = y`` (ONNX)."""
    places = {(phase, tap): (phase + pad - tap * dilation) // stride
              for phase in range(stride) for tap in range(taps) if (phase + pad - tap * dilation) % stride == 0}
    outputs = -(-size // stride)
    # A kernel that begins after the first input, or ends before the last, has room for zeros.
    first, last = min(0, *places.values()), max(inputs - outputs, 0, *places.values())
    found = np.full((stride, last - first + 1), -1)
    for (phase, tap), place in places.items():
        found[phase, place - first] = tap
    return _Axis(found, first, outputs, outputs - inputs + last, size)


def _sizes(attributes: Mapping[str, Any], size: Sequence[int], kernel: Sequence[int]) -> list[_Axis]:
    """The spatial axes of an input of ``size``. Raises NodeError."""
    rank = len(kernel)
    ones, zeros = [1] * rank, [0] * rank
    strides, dilations = (attributes.get(name) or ones for name in ("strides", "dilations"))
    further, wanted = attributes.get("output_padding") or zeros, attributes.get("output_shape")
    automatic, pads = attributes.get("auto_pad", "NOTSET"), attributes.get("pads") or 2 * zeros
    if list(attributes.get("kernel_shape") or kernel) != list(kernel):
        raise NodeError(f"kernel_shape {attributes['kernel_shape']} differs from the weights' {list(kernel)}",
                        code="bad-attribute", attribute="kernel_shape")
    if min(*strides, *dilations) < 1 or min(*pads, *further) < 0:
        raise NodeError("strides and dilations must be positive, and pads not negative", code="bad-attribute")
    axes = []
    for axis, (inputs, taps, stride, dilation) in enumerate(zip(size, kernel, strides, dilations, strict=True)):
        whole = stride * (inputs - 1) + further[axis] + (taps - 1) * dilation + 1
        begin, end = (pads[axis], pads[rank + axis]) if automatic == "NOTSET" else (0, 0)
        if wanted or automatic.startswith("SAME"):
            total = max(0, whole - (wanted[axis - rank] if wanted else stride * inputs))
            begin = total // 2 if automatic == "SAME_UPPER" else total - total // 2
            end = total - begin
        length = wanted[axis - rank] if wanted else whole - begin - end
        if not 1 <= length <= MAX_VALUES:
            raise NodeError(f"makes {length:,} rows or columns, which are at least 1 and at most {MAX_VALUES:,}",
                            code="too-large", limit=MAX_VALUES)
        axes.append(_axis(inputs, taps, stride=stride, dilation=dilation, pad=begin, size=length))
    return axes


def _kernel(weights: np.ndarray, rows: _Axis, cols: _Axis) -> np.ndarray:
    """Weights (OC, IC, KH, KW) of a transposed convolution -> (OC * phases, IC, places of the rows, of the columns)."""
    oc, ic = weights.shape[:2]
    if weights[:, :, 0, 0].size * rows.taps.size * cols.taps.size > MAX_WEIGHTS:
        raise NodeError(f"takes more than {MAX_WEIGHTS:,} weights as an ordinary convolution",
                        code="too-large", limit=MAX_WEIGHTS)
    # A tap of -1 is the last of the kernel, a zero.
    spread = np.pad(weights, ((0, 0), (0, 0), (0, 1), (0, 1)))
    picked = spread[:, :, rows.taps[:, None, :, None], cols.taps[None, :, None, :]]
    return picked.transpose(0, 2, 3, 1, 4, 5).reshape(-1, ic, rows.taps.shape[1], cols.taps.shape[1])


@HANDLERS.handles("ConvTranspose", conditions=(
    "a convolution that makes the phases of its stride as channels; with another stride than 1 a layer that puts "
    "them together as pixels, where one follows that needs that. At an output the processor does, and a Gemm in its "
    "weights"))
def transposed(context: Context, inputs: Inputs) -> Value:
    """An ordinary convolution that makes all phases of the stride as channels, and those as neighbouring pixels."""
    node = context.node
    source, dims = context.feature_map(inputs[0])
    rank, groups = source.order.ndim, int(node.attributes.get("group", 1))
    # Of a depthwise one scales may go along the first axis, which is that of the channels.
    first = isinstance(inputs[1], QuantisedConstant) and inputs[1].array.shape[:2] == (groups, 1) and (
        inputs[1].axis % rank == 0)
    weights, scale = weights_of(inputs[1], 0 if first else 1)
    weights = weights.swapaxes(0, 1) if first else weights
    if weights.ndim != rank or weights.shape[1] != dims[0] or groups < 1 or dims[0] % groups:
        raise NodeError(f"weights of shape {weights.shape} (output channels first) on an input of shape "
                        f"{source.order.shape} in {groups} groups", code="operand-shapes")
    *rows, cols = _sizes(node.attributes, dims[5 - rank:], weights.shape[2:])
    row = rows[0] if rows else _axis(1, 1, stride=1, dilation=1, pad=0, size=1)
    taps = weights if rows else weights[:, :, None]
    # Groups one after the other, as those of an ordinary convolution.
    taps = np.concatenate(np.split(taps, groups, axis=1))
    phases = _kernel(taps, row, cols)
    depthwise = groups == dims[0] == phases.shape[0] > 1
    if groups > 1 and not depthwise:
        phases = ungrouped(phases, groups)
    channels, count = taps.shape[0], len(row.taps) * len(cols.taps)
    bias, scale = bias_of(at(inputs, 2), channels, broadcast=False), scale if first else np.tile(scale, groups)
    if depthwise:       # the outputs of a channel are neighbours
        kernel = Kernel(phases, np.repeat(scale, count), np.repeat(bias, count), depthwise)
    else:               # all channels of a phase are, so that they can be moved as pixels
        phases = phases.reshape(channels, count, *phases.shape[1:]).swapaxes(0, 1).reshape(phases.shape)
        kernel = Kernel(phases, np.tile(scale, count), np.tile(bias, count), depthwise)
    windows = Windows(phases.shape[2:], (1, 1), (-row.first, -cols.first, row.pad, cols.pad),
                      (row.outputs, cols.outputs))
    if prod((channels, count, *windows.output)) > MAX_VALUES:
        raise NodeError(f"makes more than {MAX_VALUES:,} values", code="too-large", limit=MAX_VALUES)
    axes = (channels, len(row.taps), len(cols.taps)) if depthwise else (len(row.taps), len(cols.taps), channels)
    order = np.arange(channels * count * prod(windows.output)).reshape(*axes, *windows.output)
    order = order.transpose((0, 3, 1, 4, 2) if depthwise else (2, 3, 0, 4, 1))
    order = order.reshape(1, channels, order.shape[1] * order.shape[2], -1)[:, :, :row.size, :cols.size]
    result = convolved(node.name, source, kernel, windows, order if rows else order[:, :, 0], source.zero_point)
    return replace(result, moved_by=node.name)
