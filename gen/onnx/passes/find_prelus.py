"""PRelus that are written as sums of two Relus."""

import numpy as np
import onnx
from onnx import helper

from gen.onnx.index import GraphIndex
from gen.onnx.patterns import constant, first, op, value

__all__ = ["find_prelus"]

_PRELU = op("Add", op("Relu", value("x"), alone=True), op(
    "Mul", op("Relu", op("Neg", value("x"), alone=True), alone=True), constant("slope"), alone=True))


def find_prelus(model: onnx.ModelProto) -> onnx.ModelProto:
    """Relu(x) + Relu(-x) * constant -> PRelu(x, -constant), as Keras writes its PReLU."""
    index = GraphIndex(model)
    for node in model.graph.node:
        if node.op_type == "Add" and (found := first(index, _PRELU, node.output[0])) is not None:
            slope = index.number(found["slope"])
            assert slope is not None
            name = index.constant(f"{found['slope']}/slope", np.asarray(-slope))
            node.CopyFrom(helper.make_node("PRelu", [found["x"], name], node.output, name=node.name))
    return model
