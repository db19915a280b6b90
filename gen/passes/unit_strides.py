from dataclasses import replace

from gen.ir import Conv, Graph, Layer, output_size

__all__ = ["unit_strides"]


def _unit(graph: Graph, layer: Layer) -> Layer:
    _, *size = graph.tensors[layer.input].shape
    _, *made = graph.tensors[layer.output].shape
    kernel = layer.weights.shape[2:] if isinstance(layer, Conv) else layer.kernel
    stride = tuple(
        1 if made[a] == 1 == output_size(size[a], kernel[a], 1, layer.pads[a], layer.pads[a + 2]) else layer.stride[a] for a in range(2))
    return layer if stride == layer.stride else replace(layer, stride=stride)


def unit_strides(graph: Graph) -> Graph:
    """Stride 1 along an axis where the window has one position anyway; exporters give global pools the size of their window."""
    layers = [_unit(graph, layer) for layer in graph.layers]
    return replace(graph, layers=layers) if any(a is not b for a, b in zip(layers, graph.layers, strict=True)) else graph
