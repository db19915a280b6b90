"""Transposes of layers' results after what goes into those layers."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import NodeProto, numpy_helper

from gen.onnx.names import unique
from gen.onnx.passes.hoist_transposes import ELEMENTWISE, exchanged, taken_names, turned_constants

__all__ = ["sink_transposes"]

_LAYERS = ("Conv", "ConvTranspose")


def sink_transposes(model: onnx.ModelProto) -> onnx.ModelProto:
    """A Transpose between a convolution and operators with constants -> one after these.

    Keras on PyTorch writes so, as it has channels last between all layers: a bias, a batch norm, a Relu. In front of
    the Transpose they are part of the convolution.
    """
    while (found := _next(model.graph)) is not None:
        _swap(model.graph, *found)
    return model


def _next(graph: onnx.GraphProto) -> tuple[NodeProto, NodeProto, list[int]] | None:
    """A Transpose of what is a layer's so far, the operator that alone reads its result, and the axes to turn back."""
    constants = {tensor.name for tensor in graph.initializer}
    readers = Counter([*(name for node in graph.node for name in node.input), *(out.name for out in graph.output)])
    of_layers: set[str] = set()
    transposes: dict[str, NodeProto] = {}
    for node in graph.node:
        varying = [name for name in node.input if name and name not in constants]
        if node.op_type in _LAYERS:
            of_layers.update(node.output)
        elif node.op_type == "Transpose" and node.input[0] in of_layers and readers[node.output[0]] == 1:
            transposes[node.output[0]] = node
        elif len(varying) == 1 and node.op_type in ELEMENTWISE:
            if varying[0] in of_layers:
                of_layers.update(node.output)
            maker = transposes.get(varying[0])
            perm = next((list(a.ints) for a in maker.attribute if a.name == "perm"), []) if maker is not None else []
            back = [perm.index(axis) for axis in range(len(perm))]
            if maker is not None and perm and turned_constants(graph, node, back) is not None:
                return maker, node, back
    return None


def _swap(graph: onnx.GraphProto, transpose: NodeProto, node: NodeProto, back: Sequence[int]) -> None:
    """``node`` in front of ``transpose``; what comes of both keeps its name."""
    arrays = turned_constants(graph, node, back)
    assert arrays is not None
    taken = taken_names(graph)
    before, after = NodeProto(), NodeProto()
    before.CopyFrom(node)
    after.CopyFrom(transpose)
    for place, name in enumerate(node.input):
        if place not in arrays:
            before.input[place] = transpose.input[0] if name else ""
        elif arrays[place].size > 1:
            before.input[place] = unique(f"{name}/turned", taken)
            taken.add(before.input[place])
            graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(arrays[place]), before.input[place]))
    before.output[0] = unique(f"{node.output[0]}/turned", taken)
    after.input[0], after.output[0] = before.output[0], node.output[0]
    exchanged(graph, transpose, node, before, after)
