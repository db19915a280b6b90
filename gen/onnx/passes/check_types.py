"""Refuses types that an operator does not take."""

import math

import onnx
from onnx import helper, shape_inference

from gen.ir.errors import GraphError
from gen.onnx.passes.report import sentence

__all__ = ["check_types", "value_types"]

#: Initializers up to this size may decide about shapes, and take part in type inference with their values.
_SMALL = 1024


def check_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """Raises GraphError where an operator gets a type that ONNX does not give it; what onnxruntime refuses, too."""
    try:
        shape_inference.infer_shapes(_skeleton(model), check_type=True)
    except (shape_inference.InferenceError, ValueError, RuntimeError) as error:
        raise GraphError(sentence(error)) from None
    return model


def value_types(model: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
    """Of inputs, and of results as far as they can be inferred for one sample."""
    skeleton = _skeleton(model)
    for value in skeleton.graph.input:
        dims = value.type.tensor_type.shape.dim
        if dims and not dims[0].dim_value:
            dims[0].dim_value = 1
    graph = shape_inference.infer_shapes(skeleton, data_prop=True).graph
    # What infers nothing for an output leaves it without a type.
    return {value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)
            if value.type.tensor_type.elem_type}


def _skeleton(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` without the values of its larger initializers, and without the shapes that it says outputs have."""
    large = [tensor for tensor in model.graph.initializer if math.prod(tensor.dims) > _SMALL]
    inputs = {value.name: value for value in model.graph.input}
    inputs |= {t.name: helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in large}
    skeleton = helper.make_graph(
        model.graph.node, "types", list(inputs.values()),
        [helper.make_tensor_value_info(o.name, o.type.tensor_type.elem_type, None) for o in model.graph.output],
        [tensor for tensor in model.graph.initializer if math.prod(tensor.dims) <= _SMALL])
    return helper.make_model(skeleton, opset_imports=model.opset_import)
