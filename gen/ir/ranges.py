"""What values the channels of a feature map can have: of any int8 input, what clips and sums leave."""

from collections.abc import Mapping

import numpy as np

from gen.ir.epilogue.base import Range
from gen.ir.graph import Conv, Graph, Layer, Pool, pad_value
from gen.ir.parts import ByChannel
from gen.ir.tensor import Tensor
from sim.golden import requantize

__all__ = ["Range", "any_values", "input_ranges", "product_range", "sum_range", "window_range"]


def any_values(layer: Layer) -> Range:
    """A layer's input where nothing is known of it."""
    channels = layer.weights.shape[not layer.depthwise] if isinstance(layer, Conv) else len(layer.requantize.bias)
    return np.full(channels, -128), np.full(channels, 127)


def _padded(layer: Layer, source: Tensor, values: Range) -> Range:
    """What a layer reads of a tensor with these values."""
    if not any(layer.pads):
        return values
    padding = pad_value(layer, source)
    return np.minimum(values[0], padding), np.maximum(values[1], padding)


def sum_range(layer: Layer, inputs: Range) -> Range:
    """Lowest and highest sum (or maximum) of each channel, where the inputs are in ``inputs``."""
    if isinstance(layer, Pool):
        return window_range(layer.maximum, layer.kernel, inputs)
    return product_range(layer.weights, layer.depthwise, inputs)


def window_range(maximum: bool, kernel: tuple[int, int], inputs: Range) -> Range:
    """`sum_range` of a pool."""
    taps = 1 if maximum else kernel[0] * kernel[1]
    return taps * inputs[0], taps * inputs[1]


def product_range(weights: np.ndarray, depthwise: bool, inputs: Range) -> Range:
    """`sum_range` of a convolution."""
    low, high = inputs
    positive = np.maximum(weights, 0).sum(axis=(2, 3), dtype=np.int64)
    negative = weights.sum(axis=(2, 3), dtype=np.int64) - positive
    if depthwise:
        positive, negative = positive[:, 0], negative[:, 0]
        return positive * low + negative * high, positive * high + negative * low
    return positive @ low + negative @ high, positive @ high + negative @ low


def _finished(layer: Layer, values: Range, ranges: ByChannel) -> Range:
    """What a layer's epilogue makes of results of its first stage in ``values``; ``ranges``: (2, C) of each tensor."""
    for op in layer.epilogue:
        others = [(ranges[name][0], ranges[name][1]) for name in op.others]
        values = op.value_range(values, others, layer.requantize.zero_point)
    return values


def input_ranges(graph: Graph) -> Mapping[str, Range]:
    """What each layer, by name, can read: values of its input's channels, and padding."""
    reads: dict[str, Range] = {}
    #: (2, C) of each tensor.
    ranges = ByChannel(graph.tensors)
    for name, _ in graph.inputs.values():
        channels = graph.tensors[name].shape[0]
        ranges[name] = np.array([np.full(channels, -128), np.full(channels, 127)])
    for layer in graph.layers:
        first = layer.requantize
        low, high = ranges[layer.input]
        inputs = reads[layer.name] = _padded(layer, graph.tensors[layer.input], (low, high))
        if isinstance(layer, Conv) and not layer.is_exact:      # whose sums are rounded
            low, high = (np.full(len(first.bias), end) for end in (first.low, first.high))
        else:
            # What follows the sums is monotone.
            low, high = (
                requantize(end[:, None, None], first.bias, first.multiplier, first.shift, first.zero_point, first.low,
                           first.high)[:, 0, 0]
                for end in sum_range(layer, inputs))
        ranges[layer.output] = np.array(_finished(layer, (low, high), ranges), np.int64)
    return reads
