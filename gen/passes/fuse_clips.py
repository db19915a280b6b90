from dataclasses import replace
from typing import TypeVar

import numpy as np

from gen.ir import Graph, Layer, Pool, Requantize, Residual
from gen.passes.readers import count_readers, used_tensors

__all__ = ["fuse_clips"]

Stage = TypeVar("Stage", Requantize, Residual)


def _only_clips(graph: Graph, layer: Layer) -> bool:
    """Whether ``layer`` is a copy at its input's own scale: all it can do is clip."""
    if not isinstance(layer, Pool) or layer.residual:
        return False
    if (layer.kernel, layer.stride, layer.pads) != ((1, 1), (1, 1), (0, 0, 0, 0)):
        return False
    requantize = layer.requantize
    return (bool((requantize.multiplier == np.int64(1) << requantize.shift).all())
            and bool((requantize.bias == -requantize.zero_point).all())
            and graph.tensors[layer.input].onnx_unsigned == graph.tensors[layer.output].onnx_unsigned)


def _clipped(stage: Stage, clip: Requantize) -> Stage:
    low, high = np.clip([stage.low, stage.high], clip.low, clip.high).tolist()
    return replace(stage, low=low, high=high)


def fuse_clips(graph: Graph) -> Graph:
    """Merge a copy that only clips into the layer that made its input.

    Such a copy is an activation function with a quantisation of its own.
    """
    readers = count_readers(graph)
    layers: list[Layer] = []
    for layer in graph.layers:
        made = next((i for i, earlier in enumerate(layers) if earlier.output == layer.input), None)
        if made is None or readers[layer.input] != 1 or not _only_clips(graph, layer):
            layers.append(layer)
            continue
        maker, clip = layers[made], layer.requantize
        merged = replace(maker, output=layer.output, onnx_nodes=(*maker.onnx_nodes, *layer.onnx_nodes))
        if maker.residual:
            layers[made] = replace(merged, residual=_clipped(maker.residual, clip))
        else:
            layers[made] = replace(merged, requantize=_clipped(maker.requantize, clip))
    if len(layers) == len(graph.layers):
        return graph
    graph = replace(graph, layers=layers)
    return replace(graph, tensors=used_tensors(graph))
