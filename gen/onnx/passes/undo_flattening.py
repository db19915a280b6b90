"""Gathers of everything out of a flattened tensor."""

from math import prod

import numpy as np
import onnx
from onnx import helper, numpy_helper

from gen.onnx.names import unique
from gen.onnx.passes.check_types import known_types
from gen.onnx.passes.constants import constant_of, small_constants

__all__ = ["undo_flattening"]


def undo_flattening(model: onnx.ModelProto) -> onnx.ModelProto:
    """A Gather of all elements, in their order, out of a Reshape to one axis -> a Reshape to the Gather's shape.

    PyTorch's newer exporter writes views so, that of every global average among them, in models of a fixed batch: the
    samples are flattened with the rest. Any other Gather stays as it is.
    """
    graph = model.graph
    single = small_constants(graph, 1)
    flat = {node.output[0]: node.input[0] for node in graph.node
            if node.op_type == "Reshape" and len(node.input) == 2 and _is_flat(single.get(node.input[1]))}
    gathers = [node for node in graph.node if node.op_type == "Gather" and node.input[0] in flat
               and not any(attribute.name == "axis" and attribute.i for attribute in node.attribute)]
    if not gathers:
        return model
    types = known_types(model)
    batches = _batches(graph)
    taken = {name for node in graph.node for name in (*node.input, *node.output)}
    for node in gathers:
        source, index = flat[node.input[0]], constant_of(graph, node.input[1])
        size = prod(d.dim_value for d in types[source].tensor_type.shape.dim) if source in types else 0
        if (index is None or not index.ndim or {index.shape[0]} != batches
                or not np.array_equal(index.ravel(), np.arange(size))):
            continue
        shape = unique(f"{node.output[0]}/shape", taken)
        taken.add(shape)
        graph.initializer.append(numpy_helper.from_array(np.array(index.shape, np.int64), shape))
        node.CopyFrom(helper.make_node("Reshape", [source, shape], node.output, name=node.name))
    return model


def _is_flat(shape: np.ndarray | None) -> bool:
    return shape is not None and shape.tolist() == [-1]


def _batches(graph: onnx.GraphProto) -> set[int]:
    """The numbers of samples of the inputs; 0 for one that is left open."""
    constants = {tensor.name for tensor in graph.initializer}
    return {value.type.tensor_type.shape.dim[0].dim_value for value in graph.input
            if value.name not in constants and value.type.tensor_type.shape.dim}
