"""Signs with the part of a straight-through estimator that is there for its gradient alone."""

import onnx

from gen.onnx.index import GraphIndex
from gen.onnx.patterns import any_of, first, op, value

__all__ = ["fold_straight_through"]

_SIGN = op("Sign", label="sign")
_FOLDED = op("Add", op("Sub", any_of(_SIGN, op("Mul", op("Sign"), value("factor"), label="sign")), value("c")),
             value("c"))


def fold_straight_through(model: onnx.ModelProto) -> onnx.ModelProto:
    """(s - c) + c -> s, for ``s`` that Sign makes, or a product of such: as PyTorch exports ``s.detach() - c.detach() +
    c``. In numbers that is s; in float32 it is up to two roundings of c away.
    """
    index = GraphIndex(model)
    for node in model.graph.node:
        if node.op_type == "Add" and (found := first(index, _FOLDED, node.output[0])) is not None:
            node.CopyFrom(onnx.helper.make_node("Identity", [found["sign"]], node.output, name=node.name))
    return model
