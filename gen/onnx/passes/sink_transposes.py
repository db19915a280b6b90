"""Transposes of layers' results after what goes into those layers."""

import onnx
from onnx import NodeProto

from gen.onnx.edited import EditedGraph
from gen.onnx.passes.hoist_transposes import ELEMENTWISE, turned_constants, turned_inputs

__all__ = ["sink_transposes"]

_LAYERS = ("Conv", "ConvTranspose")


def sink_transposes(model: onnx.ModelProto) -> onnx.ModelProto:
    """A Transpose between a convolution and operators with constants -> one after these.

    Keras on PyTorch writes so, as it has channels last between all layers: a bias, a batch norm, a Relu. In front of
    the Transpose they are part of the convolution.
    """
    graph = EditedGraph(model)
    #: What is a layer's so far.
    of_layers: set[str] = set()
    for node in model.graph.node:
        varying = [name for name in node.input if name and name not in graph.constants]
        if node.op_type in _LAYERS:
            of_layers.update(node.output)
        elif len(varying) == 1 and node.op_type in ELEMENTWISE:
            if varying[0] in of_layers:
                of_layers.update(node.output)
            transpose = graph.made(varying[0], "Transpose")
            if transpose is not None and transpose.input[0] in of_layers and graph.uses(varying[0]) == 1:
                of_layers.update(_swap(graph, transpose, node))
    graph.finish()
    return model


def _swap(graph: EditedGraph, transpose: NodeProto, node: NodeProto) -> list[str]:
    """``node`` in front of ``transpose``, if it can be: what comes of both keeps its name, and what ``node`` makes is
    returned.
    """
    perm = next((list(a.ints) for a in transpose.attribute if a.name == "perm"), [])
    arrays = turned_constants(graph, node, [perm.index(axis) for axis in range(len(perm))]) if perm else None
    if arrays is None:
        return []
    before, after = NodeProto(), NodeProto()
    before.CopyFrom(node)
    before.input[:] = turned_inputs(graph, node, arrays, transpose.input[0], "turned")
    before.output[0] = graph.name(f"{node.output[0]}/turned")
    after.CopyFrom(transpose)
    after.input[0], after.output[0] = before.output[0], node.output[0]
    graph.remove(transpose)
    graph.put(node, [before, after])
    return [before.output[0]]
