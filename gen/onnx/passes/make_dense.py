"""Sparse initializers."""

import math

import numpy as np
import onnx
from onnx import numpy_helper

from gen.ir.errors import GraphError
from gen.ir.graph import MAX_VALUES

__all__ = ["make_dense"]


def make_dense(model: onnx.ModelProto) -> onnx.ModelProto:
    """``sparse_initializer`` -> initializer."""
    graph = model.graph
    elements = sum(math.prod(sparse.dims) for sparse in graph.sparse_initializer)
    if elements > MAX_VALUES:
        raise GraphError(f"the sparse initializers have {elements:,} elements, at most {MAX_VALUES:,} are supported; "
                         "store them as dense ones", code="model-too-large", limit=MAX_VALUES)
    for sparse in graph.sparse_initializer:
        name = sparse.values.name
        try:
            values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
            dense = np.zeros(tuple(sparse.dims), values.dtype)
            dense[tuple(indices.T) if indices.ndim == 2 else np.unravel_index(indices, dense.shape)] = values
        except Exception:  # a damaged tensor makes it raise anything
            raise GraphError(f"sparse initializer {name} is damaged: its indices do not fit its shape; "
                             "export the model again", code="invalid-model") from None
        graph.initializer.append(numpy_helper.from_array(dense, name))
    del graph.sparse_initializer[:]
    return model
