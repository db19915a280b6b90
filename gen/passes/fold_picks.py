"""Layers that only put channels in another order go: what reads them has its weights in that order.

Channel shuffles (ShuffleNet) are such layers, and channels that are cut out within a block. A convolution that reads
the tensor itself may take more blocks, with zeros among its weights; where it takes less time than both did, it does.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from gen.ir.graph import Conv, Graph, Layer
from gen.ir.parts import related
from gen.ir.queries import used_tensors
from gen.ir.tensor import Part, Tensor
from gen.passes.costs import Steps

__all__ = ["fold_picks"]


def fold_picks(graph: Graph, ic_lanes: int, steps: Steps) -> Graph:
    """The same graph without the layers that pick channels of a tensor for convolutions alone, where that is faster on
    a machine with blocks of ``ic_lanes`` channels.
    """
    picks = [layer.name for layer in graph.of(Conv) if _picked(graph.tensors, layer) is not None]
    if not picks:
        return graph
    fixed = related(graph.tensors) | {tensor for tensor, _ in graph.outputs.values()}
    layers, tensors = {layer.name: layer for layer in graph.layers}, dict(graph.tensors)
    for pick_name in picks:
        pick = layers[pick_name]
        assert isinstance(pick, Conv)
        name, order = pick.output, _picked(tensors, pick)
        assert order is not None
        readers = [layer for layer in layers.values() if name in layer.reads]
        if name in fixed or not all(map(_takes_any, readers)) or any(name in layer.others for layer in readers):
            continue
        first = int(order.min()) // ic_lanes * ic_lanes
        count = int(order.max()) + 1 - first
        folded = [_folded(layer, order - first, count) for layer in readers if isinstance(layer, Conv)]
        before, after = (sum(steps(layer) * layer.weights[0, 0].size for layer in several if isinstance(layer, Conv))
                         for several in ((*readers, pick), folded))
        if after > before:
            continue
        source, own = tensors[pick.input], pick.input
        if count < source.shape[0]:
            own = f"{name}/of"
            while own in tensors:
                own += "'"
            gaps = (range(max(gap.start - first, 0), min(gap.stop - first, count)) for gap in source.gaps)
            tensors[own] = replace(source, name=own, shape=(count, *source.shape[1:]), onnx_name="",
                                   part=Part(pick.input, first), gaps=tuple(gap for gap in gaps if gap))
        layers |= {layer.name: replace(layer, input=own) for layer in folded}
        del layers[pick.name]
    if len(layers) == len(graph.layers):
        return graph
    graph = replace(graph, layers=tuple(layers.values()), tensors=tensors)
    return replace(graph, tensors=used_tensors(graph))


def _picked(tensors: Mapping[str, Tensor], layer: Conv) -> np.ndarray | None:
    """Of each channel of a layer's output the channel of its input that it is; None if it does anything else."""
    stage, weights = layer.requantize, layer.weights
    if (layer.depthwise or layer.kernel != (1, 1) or tuple(layer.stride) != (1, 1) or any(layer.pads) or layer.epilogue
            or not layer.is_exact or tensors[layer.input].signs):
        return None
    if (not stage.only_clips or (stage.low, stage.high) != (-128, 127)
            or stage.zero_point != tensors[layer.input].zero_point):
        return None
    ones = weights[:, :, 0, 0] == 1
    if (np.count_nonzero(weights, axis=(1, 2, 3)) != 1).any() or not ones.any(axis=1).all():
        return None
    order = ones.argmax(axis=1)
    return order if len(set(order.tolist())) == len(order) else None


def _takes_any(layer: Layer) -> bool:
    """Whether a layer's input may have its channels in any places."""
    return isinstance(layer, Conv) and not layer.depthwise and layer.groups == 1 and layer.is_exact


def _folded(layer: Conv, order: np.ndarray, count: int) -> Conv:
    """A layer that reads ``count`` channels, of which its own are those of ``order``."""
    weights = np.zeros((len(layer.weights), count, *layer.kernel), np.int16)
    weights[:, order] = layer.weights
    return replace(layer, weights=weights, counted=layer.products)
