"""Symbolic dimensions."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from gen.ir.errors import GraphError

__all__ = ["bind_shapes"]

_INTEGERS = (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL)


def bind_shapes(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> onnx.ModelProto:
    """Numbers in place of the symbolic dimensions of inputs, and wherever else their names are.

    ``shapes``: input -> shape, perhaps without the samples, or with them in front of all of its axes; "" stands for the
    only input. An integer or bool without axes that has one number for a shape is that number, and no input any more:
    it says which branch a model takes. The number of samples stays what it is. What is no identifier, as "?", names
    nothing: each such dimension is one of its own. Raises GraphError for a shape that is not the input's, a number that
    its type does not hold, and where one name would have two numbers.
    """
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in constants]
    named: dict[str, int] = {}
    for value in inputs:
        dims, number = value.type.tensor_type.shape.dim, value.type.tensor_type.elem_type
        shape = shapes.get(value.name, shapes.get("") if len(inputs) == 1 else None)
        if shape is None:
            continue
        if value.type.tensor_type.HasField("shape") and not dims and len(shape) == 1 and number in _INTEGERS:
            kind = helper.tensor_dtype_to_np_dtype(number)
            low, high = (0, 1) if number == TensorProto.BOOL else (np.iinfo(kind).min, np.iinfo(kind).max)
            if not low <= shape[0] <= high:
                raise GraphError(f"input {value.name} is {kind}, which cannot be {shape[0]}", code="shape-option")
            model.graph.initializer.append(numpy_helper.from_array(np.array(shape[0]).astype(kind), value.name))
            model.graph.input.remove(value)
            continue
        # One more than it has is that of the samples, of an input that is taken whole (`whole_inputs`).
        whole = len(shape) == len(dims) + 1
        sizes, own_dims = shape[1:] if whole or len(shape) == len(dims) else shape, dims if whole else dims[1:]
        if len(sizes) != len(own_dims) or shape[0] < 0 or min(sizes, default=1) < 1 or any(
                dim.HasField("dim_value") and dim.dim_value != size
                for dim, size in zip(own_dims, sizes, strict=True)):
            own = ", ".join(str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "?" for dim in dims)
            raise GraphError(f"input {value.name} has the shape ({own}), which cannot be {tuple(shape)}",
                             code="shape-option")
        for dim, size in zip(own_dims, sizes, strict=True):
            if dim.HasField("dim_value"):
                continue
            if dim.dim_param.isidentifier() and named.setdefault(dim.dim_param, size) != size:
                raise GraphError(f"input {value.name}: dimension {dim.dim_param} cannot be {named[dim.dim_param]} and "
                                 f"{size}; give one number for it", code="shape-option")
            dim.dim_value = size
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in named:
                dim.dim_value = named[dim.dim_param]
    return model
