"""What passes ask about a graph."""

from collections import Counter

import numpy as np

from gen.ir.graph import Graph, Layer, Pool, Tensor, second_stage

__all__ = ["count_readers", "only_clips", "only_signs", "used_tensors"]


def count_readers(graph: Graph) -> Counter[str]:
    """How often each tensor is read: by a layer, as a residual, or as an output of the graph."""
    readers = Counter(layer.input for layer in graph.layers)
    readers.update(layer.residual.other for layer in graph.layers if layer.residual)
    readers.update(tensor for tensor, _ in graph.outputs.values())
    return readers


def used_tensors(graph: Graph) -> dict[str, Tensor]:
    """The graph's tensors without those that no layer, input or output names."""
    used = {tensor for tensor, _ in (*graph.inputs.values(), *graph.outputs.values())}
    for layer in graph.layers:
        used |= {layer.input, layer.output} | ({layer.residual.other} if layer.residual else set())
    return {name: tensor for name, tensor in graph.tensors.items() if name in used}


def _reads_single(layer: Layer) -> bool:
    """Whether a layer is a copy: each value is made of one."""
    return isinstance(layer, Pool) and (layer.kernel, layer.stride, layer.pads) == ((1, 1), (1, 1), (0, 0, 0, 0))


def only_signs(layer: Layer) -> bool:
    """Whether a layer gives the signs of its input's values as they are, +1 for 0."""
    if not _reads_single(layer) or layer.upsample != (1, 1):
        return False
    stage = layer.requantize
    return ((stage.zero_point, stage.low, stage.high) == (1, -1, 1) and not second_stage(layer)
            and not stage.bias.any() and bool((stage.multiplier == np.int64(2) << stage.shift).all()))


def only_clips(layer: Layer) -> bool:
    """Whether a layer's first stage copies its input's values as they are, but for the bounds, perhaps upsampled."""
    if not _reads_single(layer):
        return False
    requantize = layer.requantize
    return (bool((requantize.multiplier == np.int64(1) << requantize.shift).all())
            and bool((requantize.bias == -requantize.zero_point).all()))
