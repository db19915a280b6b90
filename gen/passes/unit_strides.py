"""Strides that mean nothing become 1."""

from dataclasses import replace

from gen.ir.graph import Graph, Layer, output_size, unscaled

__all__ = ["unit_strides"]


def _unit(graph: Graph, layer: Layer) -> Layer:
    _, *size = graph.tensors[layer.input].shape
    _, *made = unscaled(layer, graph.tensors[layer.output]).shape
    down, across = (
        1 if made[a] == 1 == output_size(size[a], layer.kernel[a], 1, *layer.pads[a::2]) else layer.stride[a]
        for a in range(2))
    return layer if (down, across) == layer.stride else replace(layer, stride=(down, across))


def unit_strides(graph: Graph) -> Graph:
    """Stride 1 along an axis where the window has one position anyway.

    Exporters give global pools the size of their window as stride, more than instructions can hold.
    """
    layers = [_unit(graph, layer) for layer in graph.layers]
    changed = any(new is not old for new, old in zip(layers, graph.layers, strict=True))
    return replace(graph, layers=layers) if changed else graph
