"""What values the channels of a feature map can have: of any int8 input, what clips and sums leave."""

from collections.abc import Mapping

import numpy as np

from gen.ir.epilogue.base import Range
from gen.ir.graph import Graph, Layer
from gen.ir.layers.base import any_int8
from gen.ir.parts import ByChannel
from sim.golden import requantize

__all__ = ["Range", "input_ranges"]


def _padded(layer: Layer, zero_point: int, values: Range) -> Range:
    """What a layer reads of an input with these values."""
    if not any(layer.pads):
        return values
    padding = layer.padding(zero_point)
    return np.minimum(values[0], padding), np.maximum(values[1], padding)


def _finished(layer: Layer, values: Range, ranges: ByChannel) -> Range:
    """What a layer's epilogue makes of results of its first stage in ``values``; ``ranges``: (2, C) of each tensor."""
    for op in layer.epilogue:
        others = [(ranges[name][0], ranges[name][1]) for name in op.others]
        values = op.value_range(values, others, layer.requantize.zero_point)
    return values


def input_ranges(graph: Graph) -> Mapping[str, tuple[Range, ...]]:
    """What each layer, by name, can read: values of its operands' channels, and padding."""
    reads: dict[str, tuple[Range, ...]] = {}
    #: (2, C) of each tensor.
    ranges = ByChannel(graph.tensors)
    for name, _ in graph.inputs.values():
        ranges[name] = np.array(any_int8(graph.tensors[name].shape[0]))
    for name, value in graph.constants.items():
        ranges[name] = np.array([value.min(axis=(1, 2)), value.max(axis=(1, 2))], np.int64)
    for layer in graph.layers:
        first = layer.requantize
        (low, high), *rest = (ranges[name] for name in layer.operands)
        padded = _padded(layer, graph.tensors[layer.input].zero_point, (low, high))
        operands = reads[layer.name] = (padded, *((low, high) for low, high in rest))
        if not layer.is_exact:      # sums that are rounded
            low, high = (np.full(len(first.bias), end) for end in (first.low, first.high))
        else:
            # What follows the sums is monotone.
            low, high = (
                requantize(end[:, None, None], first.bias, first.multiplier, first.shift, first.zero_point, first.low,
                           first.high)[:, 0, 0]
                for end in layer.sum_range(operands))
        ranges[layer.output] = np.array(_finished(layer, (low, high), ranges), np.int64)
    return reads
