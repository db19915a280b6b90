"""What a model computes of shapes alone."""

import numpy as np
import onnx
from onnx import helper

from gen.prune.measure import run_model

__all__ = ["Sizes", "sizes_of"]

#: Operators whose results depend on the shape of their input, and not on its values.
_SHAPES = ("Shape", "Size")
#: All values that follow from shapes and constants, and the arrays, for one sample, of those that other nodes read.
Sizes = tuple[set[str], dict[str, np.ndarray]]


def sizes_of(model: onnx.ModelProto) -> Sizes:
    """No arrays where inputs leave open more than the samples. Raises PruneError for what onnxruntime does not run."""
    constants = {tensor.name for tensor in model.graph.initializer}
    found: set[str] = set()
    read: dict[str, None] = {}
    for node in model.graph.node:
        inputs = [name for name in node.input if name]
        if node.op_type in _SHAPES or (not found.isdisjoint(inputs) and found.union(constants).issuperset(inputs)):
            found.update(node.output)
        else:
            read.update((name, None) for name in inputs if name in found)
    values = [value.type.tensor_type for value in model.graph.input if value.name not in constants]
    if not read or any(not dim.dim_value for value in values for dim in value.shape.dim[1:]):
        return found, {}
    names = [value.name for value in model.graph.input if value.name not in constants]
    zeros = {name: np.zeros([dim.dim_value or 1 for dim in value.shape.dim],
                            helper.tensor_dtype_to_np_dtype(value.elem_type))
             for name, value in zip(names, values, strict=True)}
    return found, dict(zip(read, run_model(model, zeros, list(read)), strict=True))
