"""An addition or a product goes into the layer that makes one of its operands."""

from dataclasses import replace
from math import prod

from gen.ir.graph import Conv, Graph, Layer, Residual, is_broadcast, second_stage
from gen.ir.queries import count_readers, only_clips, used_tensors

__all__ = ["fuse_residual"]


def _swapped(graph: Graph, layer: Layer, residual: Residual) -> Residual:
    """The same sum or product with the operands exchanged: the residual tensor becomes the layer's own result."""
    other = graph.tensors[residual.other]
    if residual.product:
        return replace(residual, middle=other, other=layer.input,
                       constant=graph.tensors[layer.input].zero_point * residual.multiplier_b)
    return replace(residual, middle=other, other=layer.input,
                   multiplier_a=residual.multiplier_b, multiplier_b=residual.multiplier_a)


def _can_take(graph: Graph, layer: Layer, maker: Layer) -> bool:
    """Whether what a layer adds or multiplies can go into the one that makes an operand."""
    if layer.residual is None or (maker.output != layer.input and is_broadcast(graph, layer)):
        return False
    return not layer.residual.product or maker.requantize.zero_point == graph.tensors[maker.output].zero_point


def _summands(layer: Layer) -> int:
    """Values that each output value is made of."""
    return prod(layer.weights.shape[1:] if isinstance(layer, Conv) else layer.kernel)


def fuse_residual(graph: Graph) -> Graph:
    """Move an addition or a product into the layer that makes one of its operands, if nobody else reads that operand.

    Of two such layers it is the one with more work for each value, behind which the longer store hides. The
    fused layer runs where the addition stood, so that both operands exist.
    """
    readers = count_readers(graph)
    layers: list[Layer] = []
    for layer in graph.layers:
        residual = layer.residual
        if (not residual or not only_clips(layer) or layer.upsample != (1, 1)
                or (layer.requantize.low, layer.requantize.high) != (-128, 127)):
            layers.append(layer)
            continue
        operands = {layer.input, residual.other}
        candidates = [i for i, earlier in enumerate(layers)
                      if earlier.output in operands and readers[earlier.output] == 1
                      and not (second_stage(earlier) or earlier.table) and _can_take(graph, layer, earlier)]
        if not candidates:
            layers.append(layer)
            continue
        maker = layers.pop(max(candidates, key=lambda i: (_summands(layers[i]), i)))
        if maker.output == layer.input:
            residual = replace(residual, middle=graph.tensors[layer.input])
        else:
            residual = _swapped(graph, layer, residual)
        layers.append(replace(maker, output=layer.output, residual=residual, table=layer.table,
                              onnx_nodes=(*maker.onnx_nodes, *layer.onnx_nodes)))
    if len(layers) == len(graph.layers):
        return graph
    graph = replace(graph, layers=layers)
    return replace(graph, tensors=used_tensors(graph))
