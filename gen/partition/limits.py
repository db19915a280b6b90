"""What a model may be of which the processor runs a part, or all: a program may come from anywhere."""

import math

import onnx
from onnx import helper, shape_inference

from gen.ir.errors import GraphError
from gen.ir.graph import MAX_VALUES
from gen.onnx.passes import value_types

__all__ = ["require_bounded", "require_plain"]

#: Values of all results together, for time.
_MAX_RESULTS = 64 * MAX_VALUES


def require_plain(model: onnx.ModelProto) -> None:
    """Raises GraphError for control flow: a branch reads values that are not inputs of its node, and a loop may never
    end.
    """
    for node in model.graph.node:
        if any(attribute.g.node or attribute.graphs for attribute in node.attribute):
            raise GraphError(f"node {node.name} ({node.op_type}): is control flow, which neither the accelerator nor "
                             "the processor's part of a program has; export the model without it", code="control-flow")


def require_bounded(model: onnx.ModelProto) -> None:
    """Raises GraphError for a model that the processor is not to run.

    It has control flow, results that are too large, as far as shapes can be inferred, or inputs and outputs that are
    no arrays of numbers.
    """
    require_plain(model)
    for value in (*model.graph.input, *model.graph.output):
        number = value.type.tensor_type.elem_type
        if not number or helper.tensor_dtype_to_np_dtype(number).kind not in "biuf":
            raise GraphError(f"value {value.name} is no tensor of numbers, and an input or output of what is left to "
                             "the processor", code="value-type")
    try:
        types = value_types(model)
    except (shape_inference.InferenceError, ValueError, RuntimeError):
        raise GraphError("the shapes of the processor's part contradict each other", code="invalid-model") from None
    total = 0
    for node in model.graph.node:
        for name in node.output:
            size = math.prod(dim.dim_value or 1 for dim in types[name].tensor_type.shape.dim) if name in types else 0
            total += size
            if size > MAX_VALUES or total > _MAX_RESULTS:
                raise GraphError(f"node {node.name} ({node.op_type}): its result has {size:,} values, with those of "
                                 f"the nodes before it {total:,}; at most {MAX_VALUES:,} and {_MAX_RESULTS:,} are "
                                 "supported", code="model-too-large", limit=MAX_VALUES)
