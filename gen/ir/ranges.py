"""What values the channels of a feature map can have: of any int8 input, what clips and sums leave."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from gen.ir.graph import Conv, Graph, Layer, Pool, Tensor, pad_value
from gen.ir.parts import ByChannel
from sim.golden import finish, look_up, requantize

__all__ = ["Range", "any_values", "input_ranges", "product_range", "sum_range", "window_range"]

#: Lowest and highest value of each channel, int64 (C,) each.
Range = tuple[np.ndarray, np.ndarray]


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


def _looked_up(layer: Layer, low: np.ndarray, high: np.ndarray) -> Range:
    """What a layer's table, if it has one, makes of values in ``low``..``high``."""
    if layer.table is None:
        return low, high
    found = [look_up(np.arange(least, most + 1), layer.table.values)
             for least, most in zip(low.tolist(), high.tolist(), strict=True)]
    return np.array([values.min() for values in found]), np.array([values.max() for values in found])


def _finished(layer: Layer, own: Range, other: tuple[np.ndarray, ...] | None) -> Range:
    """What a layer's second stage, if it has one, makes of values in ``own`` and in ``other``."""
    last = replace(layer, table=None)
    if other is None:
        low, high = (finish(last, value) for value in own)
        return low, high
    # A sum is monotone in both operands, a product in each for any value of the other.
    products = layer.residual is not None and layer.residual.product
    pairs = [(a, b) for a in own for b in other] if products else list(zip(own, other, strict=True))
    found = [finish(last, a, b) for a, b in pairs]
    return np.min(found, axis=0), np.max(found, axis=0)


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
        other = tuple(ranges[layer.residual.other]) if layer.residual else None
        low, high = _finished(layer, (low, high), other)
        ranges[layer.output] = np.array(_looked_up(layer, low, high), np.int64)
    return reads
