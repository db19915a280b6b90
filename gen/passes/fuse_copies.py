"""A copy that only clips or upsamples goes into the layer in front of it."""

from dataclasses import replace
from typing import TypeVar

import numpy as np

from gen.ir.graph import Conv, Graph, Layer, Requantize, Residual
from gen.ir.queries import count_readers, only_clips, used_tensors

__all__ = ["fuse_copies"]

Stage = TypeVar("Stage", Requantize, Residual)


def _clipped(stage: Stage, clip: Requantize) -> Stage:
    low, high = np.clip([stage.low, stage.high], clip.low, clip.high).tolist()
    return replace(stage, low=low, high=high)


def _can_be_upsampled(maker: Layer, factors: tuple[int, int]) -> bool:
    """Whether a layer's output can be made so many times as large.

    One that adds would add a tensor of that size; windows would be pooled again for each copy of a row.
    """
    if factors == (1, 1):
        return True
    return maker.residual is None and (isinstance(maker, Conv) or maker.kernel == (1, 1))


def fuse_copies(graph: Graph) -> Graph:
    """Merge a copy that only clips or upsamples into the layer that made its input, if nobody else reads that.

    A copy that clips is an activation function with a quantisation of its own; one that upsamples is a Resize.
    """
    readers = count_readers(graph)
    layers: list[Layer] = []
    for layer in graph.layers:
        made = next((i for i, earlier in enumerate(layers) if earlier.output == layer.input), None)
        if (made is None or readers[layer.input] != 1 or layer.residual or not only_clips(layer)
                or not _can_be_upsampled(layers[made], layer.upsample)):
            layers.append(layer)
            continue
        maker, clip = layers[made], layer.requantize
        down, across = (n * m for n, m in zip(maker.upsample, layer.upsample, strict=True))
        merged = replace(maker, output=layer.output, upsample=(down, across),
                         onnx_nodes=(*maker.onnx_nodes, *layer.onnx_nodes))
        if maker.residual:
            layers[made] = replace(merged, residual=_clipped(maker.residual, clip))
        else:
            layers[made] = replace(merged, requantize=_clipped(maker.requantize, clip))
    if len(layers) == len(graph.layers):
        return graph
    graph = replace(graph, layers=layers)
    return replace(graph, tensors=used_tensors(graph))
