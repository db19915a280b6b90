"""Gathers of everything out of a flattened tensor."""

from collections.abc import Mapping
from math import prod

import numpy as np
import onnx
from onnx import helper, numpy_helper

from gen.onnx.fold import evaluate
from gen.onnx.held import constant_of, constants_of, small_constants
from gen.onnx.model import Node, NodeError
from gen.onnx.names import unique
from gen.onnx.passes.check_types import known_types
from gen.onnx.passes.fold_sizes import SIZE_OPERATORS, size_of

__all__ = ["undo_flattening"]

#: Operators that indices are computed by.
_INDEXED = (*SIZE_OPERATORS, "Range")
#: Elements that results may have there beside those of the tensor, and bytes of one.
_FEW, _INDEX_BYTES = 64, 8
#: Samples of which an open batch is looked at.
_COUNTS = (1, 3)


def undo_flattening(model: onnx.ModelProto) -> onnx.ModelProto:
    """A Gather of all elements, in their order, out of a Reshape to one axis -> a Reshape to the Gather's shape.

    PyTorch's newer exporter writes views so, that of every global average among them: the samples are flattened with
    the rest. With an open batch it computes the indices of the number of samples. Any other Gather stays as it is.
    """
    graph = model.graph
    single = small_constants(graph, 1)
    flat = {node.output[0]: node.input[0] for node in graph.node
            if node.op_type == "Reshape" and len(node.input) == 2 and _is_flat(single.get(node.input[1]))}
    gathers = [node for node in graph.node if node.op_type == "Gather" and node.input[0] in flat
               and not any(attribute.name == "axis" and attribute.i for attribute in node.attribute)]
    if not gathers:
        return model
    batches = _batches(graph)
    if len(batches) != 1:
        return model
    # An open batch counts as one sample, and as several.
    counts = _COUNTS if 0 in batches else tuple(batches)
    types = [known_types(model, samples=count) for count in counts]
    taken = {name for node in graph.node for name in (*node.input, *node.output)}
    for node in gathers:
        shapes = {_shape_taken(model, node, flat[node.input[0]], each, count)
                  for count, each in zip(counts, types, strict=True)}
        shape = shapes.pop()
        if shape is None or shapes:
            continue
        name = unique(f"{node.output[0]}/shape", taken)
        taken.add(name)
        sizes = np.array([-1 if 0 in batches else counts[0], *shape], np.int64)
        graph.initializer.append(numpy_helper.from_array(sizes, name))
        node.CopyFrom(helper.make_node("Reshape", [flat[node.input[0]], name], node.output, name=node.name))
    return model


def _shape_taken(model: onnx.ModelProto, gather: onnx.NodeProto, source: str, types: Mapping[str, onnx.TypeProto],
                 samples: int) -> tuple[int, ...] | None:
    """The shape of a sample that ``gather`` takes out of all of ``source``; None if it takes anything else."""
    size = prod(dim.dim_value for dim in types[source].tensor_type.shape.dim) if source in types else 0
    index = constant_of(model.graph, gather.input[1])
    if index is None:
        index = _made_of_sizes(model, gather.input[1], types, max(size, _FEW))
    if (index is None or not index.ndim or index.shape[0] != samples
            or not np.array_equal(index.ravel(), np.arange(size))):
        return None
    return index.shape[1:]


def _made_of_sizes(model: onnx.ModelProto, name: str, types: Mapping[str, onnx.TypeProto], most: int
                   ) -> np.ndarray | None:
    """What nodes compute of constants and of sizes of values that have ``types``; None if they read anything else, or
    if a result has more than ``most`` elements.
    """
    graph = model.graph
    makers = {output: node for node in graph.node for output in node.output}
    known, constant, needed, asked = {}, constants_of(graph), set(), [name]
    while asked:
        at = asked.pop()
        if at in known or at in needed:
            continue
        node, array = makers.get(at), constant(at)
        if array is None and node is not None and node.op_type in ("Shape", "Size"):
            array = size_of(node, types)
        if array is not None:
            known[at] = array
        elif node is None or node.op_type not in _INDEXED:
            return None
        else:
            needed.add(at)
            asked.extend(filter(None, node.input))
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    for proto in graph.node:
        if needed.isdisjoint(proto.output):
            continue
        node = Node(proto.domain, proto.op_type, proto.name, tuple(proto.input), tuple(proto.output), {}, proto)
        try:
            results = evaluate(node, opsets, {at: known[at] for at in node.inputs if at}, most * _INDEX_BYTES)
        except NodeError:       # the Gather stays then
            return None
        known.update(zip(node.outputs, results, strict=True))
    return known[name]


def _is_flat(shape: np.ndarray | None) -> bool:
    return shape is not None and shape.tolist() == [-1]


def _batches(graph: onnx.GraphProto) -> set[int]:
    """The numbers of samples of the inputs; 0 for one that is left open."""
    constants = {tensor.name for tensor in graph.initializer}
    return {value.type.tensor_type.shape.dim[0].dim_value for value in graph.input
            if value.name not in constants and value.type.tensor_type.shape.dim}
