"""What tensors have in memory beyond their last channel."""

import numpy as np

from cores.arch.numerics import MIN_SHIFT
from gen.ir.graph import Graph
from sim.golden import requantize, run_epilogue

__all__ = ["padding_values"]


def padding_values(graph: Graph) -> dict[str, int]:
    """What each tensor in memory has in the channels beyond its last: their multiplier is zero.

    Of those alone that one layer writes: channels beyond a part of a tensor can be another's.
    """
    values = dict.fromkeys(graph.given, 0)

    def single(number: int) -> np.ndarray:
        return np.full((1, 1, 1), number)

    for layer in graph.layers:
        first = layer.requantize
        sums = np.zeros((1, *layer.windows), np.int64)
        value = requantize(sums, single(0)[0, 0], single(0)[0, 0], single(MIN_SHIFT)[0, 0], first.zero_point,
                           first.low, first.high)
        if all(name in values for name in layer.others):
            others = [single(values[name]) for name in layer.others]
            values[layer.output] = int(run_epilogue(layer, value, others)[-1].flat[0])
    return values
