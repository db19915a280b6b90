from dataclasses import replace

import numpy as np

from gen.ir import Graph, Layer, Pool
from gen.passes.readers import count_readers, used_tensors

__all__ = ["fuse_clips"]


def _only_clips(graph: Graph, layer: Layer) -> bool:
    """Whether ``layer`` is a copy at its input's own scale: all it can do is clip."""
    if not isinstance(layer, Pool) or layer.residual or layer.kernel != (1, 1) or layer.stride != (1, 1) or any(layer.pads):
        return False
    requantize = layer.requantize
    return (bool((requantize.multiplier == np.int64(1) << requantize.shift).all())
            and bool((requantize.bias == -requantize.zero_point).all())
            and graph.tensors[layer.input].onnx_unsigned == graph.tensors[layer.output].onnx_unsigned)


def fuse_clips(graph: Graph) -> Graph:
    """Merge a copy that only clips (an activation function behind its own quantisation) into the layer that made its input."""
    readers = count_readers(graph)
    layers: list[Layer] = []
    for layer in graph.layers:
        made = next((i for i, earlier in enumerate(layers) if earlier.output == layer.input), None)
        if made is None or readers[layer.input] != 1 or not _only_clips(graph, layer):
            layers.append(layer)
            continue
        maker, clip = layers[made], layer.requantize
        last = maker.residual or maker.requantize
        bounds = dict(low=int(np.clip(last.low, clip.low, clip.high)), high=int(np.clip(last.high, clip.low, clip.high)))
        stage = {"residual": replace(maker.residual, **bounds)} if maker.residual else {"requantize": replace(maker.requantize, **bounds)}
        layers[made] = replace(maker, output=layer.output, onnx_nodes=(*maker.onnx_nodes, *layer.onnx_nodes), **stage)
    if len(layers) == len(graph.layers):
        return graph
    graph = replace(graph, layers=layers)
    return replace(graph, tensors=used_tensors(graph))
