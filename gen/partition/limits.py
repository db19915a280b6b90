"""What a model may be of which the processor runs a part, or all: a program may come from anywhere."""

import math
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, shape_inference

from gen.ir.errors import GraphError
from gen.ir.graph import MAX_VALUES
from gen.onnx.held import small_constants
from gen.onnx.inner import inner_graphs
from gen.onnx.passes import value_types

__all__ = ["require_bounded"]

#: Values of all results together, for time.
_MAX_RESULTS = 64 * MAX_VALUES
#: How often what is in a loop may run, with those around it.
_MAX_STEPS = 1 << 16


def require_bounded(model: onnx.ModelProto) -> None:
    """Raises GraphError for a model that the processor is not to run.

    It has loops that may not end, results that are too large, as far as shapes can be inferred, or inputs and outputs
    that are no arrays of numbers.
    """
    for value in (*model.graph.input, *model.graph.output):
        number = value.type.tensor_type.elem_type
        if not number or helper.tensor_dtype_to_np_dtype(number).kind not in "biuf":
            raise GraphError(f"value {value.name} is no tensor of numbers, and an input or output of what is left to "
                             "the processor", code="value-type")
    try:
        types = value_types(model)
    except (shape_inference.InferenceError, ValueError, RuntimeError):
        raise GraphError("the shapes of the processor's part contradict each other", code="invalid-model") from None
    _Bound(types).add(model.graph, 1, {})


class _Bound:
    """Counts the values of results, those within loops as often as these run. ``types``: of the model's values."""

    def __init__(self, types: Mapping[str, onnx.TypeProto]) -> None:
        self._types, self._total = types, 0

    def add(self, graph: onnx.GraphProto, times: int, outside: Mapping[str, np.ndarray]) -> None:
        """``outside``: small constants that are known there."""
        hidden = {value.name for value in graph.input}
        known = {**{name: array for name, array in outside.items() if name not in hidden}, **small_constants(graph, 1)}
        for node in graph.node:
            often = times * self._steps(node, known)
            if often > _MAX_STEPS:
                raise GraphError(f"node {node.name} ({node.op_type}): what it repeats would run {often:,} times; at "
                                 f"most {_MAX_STEPS:,} are supported", code="model-too-large", limit=_MAX_STEPS)
            for name in node.output:
                size = times * math.prod(dim.dim_value or 1 for dim in self._types[name].tensor_type.shape.dim) \
                    if name in self._types else 0
                self._total += size
                if size > MAX_VALUES or self._total > _MAX_RESULTS:
                    raise GraphError(f"node {node.name} ({node.op_type}): its result has {size:,} values, with those "
                                     f"of the nodes before it {self._total:,}; at most {MAX_VALUES:,} and "
                                     f"{_MAX_RESULTS:,} are supported", code="model-too-large", limit=MAX_VALUES)
            for inner in inner_graphs(node):
                self.add(inner, often, known)

    def _steps(self, node: onnx.NodeProto, known: Mapping[str, np.ndarray]) -> int:
        """How often the graphs within a node run at most."""
        if node.op_type == "Loop":
            count = known.get(node.input[0]) if node.input else None
            if count is None or count.size != 1 or count.dtype.kind != "i":
                raise GraphError(f"node {node.name} (Loop): how often it runs is no constant of the model, so it may "
                                 "never end; export the model without it", code="control-flow")
            return max(int(count.item()), 0)
        if node.op_type == "Scan":
            inputs = next((a.i for a in node.attribute if a.name == "num_scan_inputs"), 1)
            shapes = [self._types[name].tensor_type.shape.dim for name in node.input[-inputs:] if name in self._types]
            return max((dim.dim_value for dims in shapes for dim in dims), default=0) or _MAX_STEPS
        return 1
