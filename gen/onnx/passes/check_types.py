"""Refuses types that an operator does not take."""

import math

import onnx
from onnx import helper, shape_inference

from gen.ir.errors import GraphError
from gen.onnx.passes.report import sentence

__all__ = ["check_types"]

#: Initializers up to this size may decide about shapes, and take part in type inference with their values.
_SMALL = 1024


def check_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """Raises GraphError where an operator gets a type that ONNX does not give it; what onnxruntime refuses, too."""
    large = [tensor for tensor in model.graph.initializer if math.prod(tensor.dims) > _SMALL]
    inputs = {value.name: value for value in model.graph.input}
    inputs |= {t.name: helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in large}
    skeleton = helper.make_graph(
        model.graph.node, "types", list(inputs.values()),
        [helper.make_tensor_value_info(o.name, o.type.tensor_type.elem_type, None) for o in model.graph.output],
        [tensor for tensor in model.graph.initializer if math.prod(tensor.dims) <= _SMALL])
    try:
        shape_inference.infer_shapes(helper.make_model(skeleton, opset_imports=model.opset_import), check_type=True)
    except (shape_inference.InferenceError, ValueError, RuntimeError) as error:
        raise GraphError(sentence(error)) from None
    return model
