"""Casts to the type that a value has already."""

import onnx
from onnx import TensorProto, helper

from gen.onnx.passes.check_types import known_types

__all__ = ["drop_casts"]


def drop_casts(model: onnx.ModelProto) -> onnx.ModelProto:
    """An Identity in the place of each: exporters leave them where types were mixed, and nothing is converted."""
    if not any(map(_target, model.graph.node)):
        return model
    types = known_types(model)
    types |= {tensor.name: helper.make_tensor_type_proto(tensor.data_type, None) for tensor in model.graph.initializer}
    for node in model.graph.node:
        if (target := _target(node)) and node.input[0] in types \
                and types[node.input[0]].tensor_type.elem_type == target:
            node.CopyFrom(helper.make_node("Identity", list(node.input), list(node.output), name=node.name))
    return model


def _target(node: onnx.NodeProto) -> int:
    """The type that a Cast is to; 0 for other nodes."""
    if node.op_type != "Cast":
        return TensorProto.UNDEFINED
    return next((attribute.i for attribute in node.attribute if attribute.name == "to"), TensorProto.UNDEFINED)
