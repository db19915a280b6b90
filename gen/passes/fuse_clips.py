"""A copy that only clips goes into the layer in front of it."""

from dataclasses import replace
from typing import TypeVar

import numpy as np

from gen.ir.graph import Graph, Layer, Requantize, Residual
from gen.ir.queries import count_readers, only_clips, used_tensors

__all__ = ["fuse_clips"]

Stage = TypeVar("Stage", Requantize, Residual)


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
        if made is None or readers[layer.input] != 1 or layer.residual or not only_clips(layer):
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
