"""An operation that reads another tensor goes into the layer that makes one of its operands."""

from dataclasses import replace

from gen.ir.epilogue.base import StoreOp
from gen.ir.epilogue.chain import chain_problems
from gen.ir.graph import Graph, Layer
from gen.ir.queries import count_readers, only_clips, used_tensors

__all__ = ["fuse_residual"]


def _moved(graph: Graph, layer: Layer, maker: Layer) -> tuple[StoreOp, ...] | None:
    """The epilogue of the layer that makes an operand of the first operation of ``layer`` with all of those; None if a
    store cannot do that.
    """
    (op, *rest), made = layer.epilogue, graph.tensors[maker.output]
    if op.centred and maker.requantize.zero_point != made.zero_point:
        return None
    source = graph.tensors[layer.input]
    applied = op.applied_to(source) if maker.output == layer.input else op.swapped(source, graph.tensors)
    if applied is None:
        return None
    epilogue = *maker.epilogue, applied, *rest
    return None if any(chain_problems(epilogue)) else epilogue


def _is_only_operation(layer: Layer) -> bool:
    """Whether a layer is nothing but an epilogue that begins with an operation on two tensors."""
    stage = layer.requantize
    return (bool(layer.epilogue) and bool(layer.epilogue[0].others) and only_clips(layer)
            and (stage.low, stage.high) == (-128, 127))


def fuse_residual(graph: Graph) -> Graph:
    """Move an operation on two tensors into the layer that makes one of them, if nobody else reads that one.

    Of two such layers it is the one with more work for each value, during which the longer store is hidden. The
    fused layer runs where the operation stood, so that both operands exist.
    """
    readers = count_readers(graph)
    layers: list[Layer] = []
    for layer in graph.layers:
        found: dict[int, tuple[StoreOp, ...]] = {}
        if _is_only_operation(layer):
            operands = {layer.input, *layer.others}
            for number, earlier in enumerate(layers):
                if earlier.output in operands and readers[earlier.output] == 1:
                    epilogue = _moved(graph, layer, earlier)
                    found |= {} if epilogue is None else {number: epilogue}
        if not found:
            layers.append(layer)
            continue
        number = max(found, key=lambda i: (layers[i].summands, i))
        maker = layers.pop(number)
        layers.append(replace(maker, output=layer.output, epilogue=found[number],
                              onnx_nodes=(*maker.onnx_nodes, *layer.onnx_nodes)))
    if len(layers) == len(graph.layers):
        return graph
    graph = replace(graph, layers=layers)
    return replace(graph, tensors=used_tensors(graph))
