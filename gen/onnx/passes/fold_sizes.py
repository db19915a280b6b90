"""Sizes that a model computes of shapes, and that are the same for any number of samples."""

from collections import ChainMap
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from gen.onnx.passes.check_types import known_types
from gen.onnx.passes.constants import small_constants

__all__ = ["fold_sizes"]

#: Operators that sizes are computed by, of few numbers each.
_COMPUTED = ("Add", "Cast", "Concat", "Div", "Floor", "Gather", "Identity", "Mul", "Slice", "Squeeze", "Sub",
             "Unsqueeze")
_FEW = 64
#: Cuts at such a size behind each other at most, for time.
_DEEPEST = 64
#: Samples, a prime, so many that what is the same for one of them does not depend on their number.
_MANY = 1_000_003

Arrays = dict[str, np.ndarray]


def fold_sizes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Where the number of samples is left open, constants in place of what depends on other dimensions alone.

    PyTorch's `chunk` cuts channels at half of a Shape; without the number, shape inference knows nothing behind it.
    """
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    is_open = [bool(value.type.tensor_type.shape.dim) and not value.type.tensor_type.shape.dim[0].dim_value
               for value in inputs]
    if not any(is_open) or not any(node.op_type == "Shape" for node in graph.node):
        return model
    one, many = _sizes(model, 1), _sizes(model, _MANY)
    same = {name: array for name, array in one.items() if name in many and np.array_equal(array, many[name])}
    if not same:
        return model
    kept = [node for node in graph.node if not (node.output and node.output[0] in same)]
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in same.items())
    del graph.node[:]
    graph.node.extend(kept)
    return model


def _sizes(model: onnx.ModelProto, samples: int) -> Arrays:
    """Results of nodes that are known for so many samples: shapes, and what is computed of them and of constants."""
    found: Arrays = {}
    known = ChainMap(found, small_constants(model.graph, _FEW))
    for _ in range(_DEEPEST):
        before, types = len(found), known_types(model, found, samples=samples)
        for node in model.graph.node:
            if node.output and node.output[0] not in found:
                array = _shape_of(node, types) if node.op_type == "Shape" else _computed(model, node, known)
                if array is not None:
                    found[node.output[0]] = array
        if len(found) == before:
            break
    return found


def _shape_of(node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]) -> np.ndarray | None:
    if node.input[0] not in types or not types[node.input[0]].tensor_type.HasField("shape"):
        return None
    dims = types[node.input[0]].tensor_type.shape.dim
    if not all(dim.HasField("dim_value") for dim in dims):
        return None
    ends = {attribute.name: attribute.i for attribute in node.attribute}
    sizes = [dim.dim_value for dim in dims]
    return np.array(sizes[ends.get("start", 0):ends.get("end", len(sizes))], np.int64)


def _computed(model: onnx.ModelProto, node: onnx.NodeProto, known: ChainMap[str, np.ndarray]) -> np.ndarray | None:
    """What a node makes of sizes, of one at least, and of constants: the first of both maps, and the second."""
    names = [name for name in node.input if name]
    if node.op_type not in _COMPUTED or known.maps[0].keys().isdisjoint(names) or len(node.output) != 1:
        return None
    if not all(name in known and known[name].size <= _FEW for name in names):
        return None
    values = {name: known[name] for name in names}
    inputs = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
              for name, array in values.items()]
    graph = helper.make_graph([node], "sizes", inputs, [onnx.ValueInfoProto(name=node.output[0])])
    try:
        made: Any = ReferenceEvaluator(helper.make_model(graph, opset_imports=model.opset_import)).run(None, values)
    except Exception:   # onnx raises anything; who computes with it says so
        return None
    return np.asarray(made[0])
