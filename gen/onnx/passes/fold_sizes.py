"""Sizes that a model computes of shapes, and that are the same for any number of samples."""

from collections import ChainMap
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from gen.onnx.held import small_constants
from gen.onnx.names import unique
from gen.onnx.passes.check_types import known_types

__all__ = ["SIZE_OPERATORS", "computed_sizes", "fold_sizes", "size_of"]

#: Operators that sizes are computed by, of few numbers each.
SIZE_OPERATORS = (
    "Add", "And", "Cast", "Concat", "ConstantOfShape", "Div", "Equal", "Floor", "Gather", "Greater", "Identity",
    "Less", "Mul", "Not", "Or", "Reshape", "Slice", "Squeeze", "Sub", "Transpose", "Unsqueeze", "Where")
#: Operators whose second input is a shape -> what stands there for the axis that the first input has.
_SHAPED = {"Reshape": 0, "Expand": 1}
_FEW = 64
#: Cuts at such a size after each other at most, for time.
_DEEPEST = 64
#: Samples, a prime, so many that what is the same for one of them does not depend on their number.
_MANY = 1_000_003

Arrays = dict[str, np.ndarray]


def fold_sizes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Where the number of samples is left open, constants in place of what depends on other dimensions alone.

    PyTorch's `chunk` cuts channels at half of a Shape; without the number, shape inference knows nothing after it. Nor
    does it after the Reshape of a Keras Flatten, whose shape begins with the number of samples: that becomes 0, which
    keeps the axis.
    """
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    is_open = [bool(value.type.tensor_type.shape.dim) and not value.type.tensor_type.shape.dim[0].dim_value
               for value in inputs]
    if not any(is_open) or not any(node.op_type == "Shape" for node in graph.node):
        return model
    (one, _), (many, types) = _sizes(model, 1), _sizes(model, _MANY)
    _keep_samples(graph, one, many, types)
    same = {name: array for name, array in one.items() if name in many and np.array_equal(array, many[name])}
    if not same:
        return model
    kept = [node for node in graph.node if not (node.output and node.output[0] in same)]
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in same.items())
    del graph.node[:]
    graph.node.extend(kept)
    return model


def _keep_samples(graph: onnx.GraphProto, one: Arrays, many: Arrays, types: Mapping[str, onnx.TypeProto]) -> None:
    """Constants in place of shapes that begin with the number of samples, where that is also the input's first axis.

    ``one``, ``many``: values for one sample and for `_MANY`; ``types``: those of the latter.
    """
    taken = {name for node in graph.node for name in (*node.input, *node.output)}
    for node in graph.node:
        if node.op_type not in _SHAPED or len(node.input) != 2 or any(a.name == "allowzero" and a.i
                                                                      for a in node.attribute):
            continue
        source, shape = node.input
        dims = types[source].tensor_type.shape.dim if source in types else ()
        if not dims or dims[0].dim_value != _MANY or not {shape} <= one.keys() & many.keys():
            continue
        single, several = one[shape], many[shape]
        if (single.ndim == several.ndim == 1 and single[:1] == 1 and several[:1] == _MANY
                and (node.op_type == "Reshape" or len(single) == len(dims))
                and np.array_equal(single[1:], several[1:])):
            node.input[1] = unique(f"{shape}/samples", taken)
            taken.add(node.input[1])
            graph.initializer.append(numpy_helper.from_array(
                np.array([_SHAPED[node.op_type], *single[1:]], np.int64), node.input[1]))


def computed_sizes(model: onnx.ModelProto) -> Mapping[str, np.ndarray]:
    """Small constants, and results of nodes that are known for one sample."""
    return {**small_constants(model.graph, _FEW), **_sizes(model, 1)[0]}


def _sizes(model: onnx.ModelProto, samples: int) -> tuple[Arrays, Mapping[str, onnx.TypeProto]]:
    """Results of nodes that are known for so many samples: shapes, and what is computed of them and of constants; and
    the types of all values, as far as they are known then.
    """
    found: Arrays = {}
    types: Mapping[str, onnx.TypeProto] = {}
    known = ChainMap(found, small_constants(model.graph, _FEW))
    for _ in range(_DEEPEST):
        before, types = len(found), known_types(model, found, samples=samples)
        for node in model.graph.node:
            if node.output and node.output[0] not in found:
                array = size_of(node, types) if node.op_type in ("Shape", "Size") else _computed(model, node, known)
                if array is not None:
                    found[node.output[0]] = array
        if len(found) == before:
            break
    return found, types


def size_of(node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]) -> np.ndarray | None:
    """What a Shape or a Size makes of a value of these ``types``; None where that is not known."""
    if node.input[0] not in types or not types[node.input[0]].tensor_type.HasField("shape"):
        return None
    dims = types[node.input[0]].tensor_type.shape.dim
    if not all(dim.HasField("dim_value") for dim in dims):
        return None
    ends = {attribute.name: attribute.i for attribute in node.attribute}
    sizes = [dim.dim_value for dim in dims]
    if node.op_type == "Size":
        return np.array(np.prod(sizes, dtype=np.int64))
    return np.array(sizes[ends.get("start", 0):ends.get("end", len(sizes))], np.int64)


def _computed(model: onnx.ModelProto, node: onnx.NodeProto, known: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """What a node makes of sizes and of constants."""
    names = [name for name in node.input if name]
    if node.op_type not in SIZE_OPERATORS or not names or len(node.output) != 1:
        return None
    if not all(name in known and known[name].size <= _FEW for name in names):
        return None
    values = {name: known[name] for name in names}
    if node.op_type == "ConstantOfShape" and np.prod(values[names[0]]) > _FEW:
        return None
    inputs = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
              for name, array in values.items()]
    graph = helper.make_graph([node], "sizes", inputs, [onnx.ValueInfoProto(name=node.output[0])])
    try:
        made: Any = ReferenceEvaluator(helper.make_model(graph, opset_imports=model.opset_import)).run(None, values)
    except Exception:   # onnx raises anything; who computes with it says so
        return None
    return np.asarray(made[0])
