"""Horizontal strides that instructions cannot name, as of patch embeddings, as several shorter ones.

The columns under a stride become channels first, as SpaceToDepth makes them: a convolution with a single weight of 1
for each output channel copies them. The layer itself then has the rest of the stride. What `gather` brings from memory
in such strides stays as it is.
"""

from dataclasses import replace

import numpy as np

from cores.config import NpuConfig
from gen.ir.graph import Conv, Graph, Layer, unscaled
from gen.ir.tensor import Requantize, Tensor
from gen.mapping.gather import GatherGeometry, is_gatherable
from gen.tiling.geometry import MAX_STRIDE
from sim.golden import quantize_multiplier

__all__ = ["split_strides"]

#: Of either layer, for memory.
_MAX_WEIGHTS = 1 << 28


def split_strides(graph: Graph, config: NpuConfig) -> Graph:
    """The same graph without convolutions of long strides, but for those that are no product of short ones."""
    names = {*graph.tensors, *(layer.name for layer in graph.layers)}
    tensors, layers = dict(graph.tensors), list[Layer]()
    for layer in graph.layers:
        while isinstance(layer, Conv) and (factor := _factor(layer, graph, tensors, config)):
            columns, tensor = _columns(layer, factor, tensors, names)
            tensors[tensor.name] = tensor
            layers.append(columns)
            layer = _rest(layer, factor, tensors[layer.input], tensor)
        layers.append(layer)
    return replace(graph, tensors=tensors, layers=layers) if len(layers) > len(graph.layers) else graph


def _factor(layer: Conv, graph: Graph, tensors: dict[str, Tensor], config: NpuConfig) -> int | None:
    """Columns that are to become channels; None for a layer that stays."""
    source, target = tensors[layer.input], unscaled(layer, tensors[layer.output])
    stride, channels = layer.stride[1], source.shape[0]
    if target.shape[2] == 1 or stride <= MAX_STRIDE or not layer.is_exact or source.signs or not _is_product(stride):
        return None
    if is_gatherable(layer, graph) and GatherGeometry.fitting(layer, source, target, config):
        return None
    whole = [factor for factor in range(2, MAX_STRIDE + 1) if stride % factor == 0]
    last = [factor for factor in whole if stride // factor <= MAX_STRIDE]

    def steps(factor: int) -> int:
        """Blocks and taps of the layer itself."""
        return -(-channels * factor // config.ic_lanes) * -(-layer.weights.shape[3] // factor)

    factor = min(last, key=steps) if last else whole[-1]
    rows, columns = layer.weights.shape[2], -(-layer.weights.shape[3] // factor)
    sizes = factor * channels * channels * factor, len(layer.weights) * channels * factor * rows * columns
    return factor if max(sizes) <= _MAX_WEIGHTS else None


def _is_product(stride: int) -> bool:
    """Whether a stride is one of numbers that are strides."""
    for factor in range(MAX_STRIDE, 1, -1):
        while stride % factor == 0:
            stride //= factor
    return stride == 1


def _columns(layer: Conv, factor: int, tensors: dict[str, Tensor], names: set[str]) -> tuple[Conv, Tensor]:
    """The layer that makes ``factor`` neighbouring columns channels, the first one's first, and its tensor; it has the
    padding at the sides.
    """
    source, target = tensors[layer.input], unscaled(layer, tensors[layer.output])
    channels, height, width = source.shape
    taps = -(-layer.weights.shape[3] // factor)
    needed = factor * ((target.shape[2] - 1) * (layer.stride[1] // factor) + taps)
    left, right = layer.pads[1], max(0, needed - layer.pads[1] - width)
    weights = np.eye(factor * channels, dtype=np.int16).reshape(factor * channels, factor, channels)
    multiplier, shift = quantize_multiplier(np.ones(factor * channels))
    tensor = replace(source, name=_unique(f"{layer.name}/columns", names), onnx_name="", part=None,
                     shape=(factor * channels, height, (left + width + right) // factor))
    bias = np.full(factor * channels, -source.zero_point, np.int64)
    stage = Requantize(bias, multiplier, shift, source.zero_point, -128, 127)
    made = Conv(_unique(f"{layer.name}/columns", names), layer.input, tensor.name,
                weights=np.ascontiguousarray(weights.transpose(0, 2, 1)[:, :, None]), stride=(1, factor),
                pads=(0, left, 0, right), requantize=stage, pad_value=layer.padding(source.zero_point))
    return made, tensor


def _rest(layer: Conv, factor: int, source: Tensor, tensor: Tensor) -> Conv:
    """The layer itself, of columns that have become channels."""
    weights, channels = layer.weights, source.shape[0]
    if layer.depthwise:
        weights = np.zeros((channels, channels, *layer.weights.shape[2:]), np.int16)
        weights[np.arange(channels), np.arange(channels)] = layer.weights[:, 0]
    outputs, _, rows, columns = weights.shape
    taps = -(-columns // factor)
    filled = np.zeros((outputs, channels, rows, taps * factor), np.int16)
    filled[..., :columns] = weights
    parts = filled.reshape(outputs, channels, rows, taps, factor).transpose(0, 4, 1, 2, 3)
    return replace(layer, input=tensor.name, depthwise=False, groups=1,
                   stride=(layer.stride[0], layer.stride[1] // factor), weights=np.ascontiguousarray(
                       parts.reshape(outputs, factor * channels, rows, taps)),
                   pads=(layer.pads[0], 0, layer.pads[2], 0), pad_value=layer.padding(source.zero_point))


def _unique(wanted: str, names: set[str]) -> str:
    while wanted in names:
        wanted += "'"
    names.add(wanted)
    return wanted
