"""Signs with the part of a straight-through estimator that is there for its gradient alone."""

from collections.abc import Mapping

import onnx
from onnx import NodeProto

__all__ = ["fold_straight_through"]


def fold_straight_through(model: onnx.ModelProto) -> onnx.ModelProto:
    """(s - c) + c -> s, for ``s`` that Sign makes, or a product of such: as PyTorch exports ``s.detach() - c.detach() +
    c``. In numbers that is s; in float32 it is up to two roundings of c away.
    """
    graph = model.graph
    makers = {name: node for node in graph.node for name in node.output}
    for node in graph.node:
        for difference, added in (node.input, reversed(node.input)) if node.op_type == "Add" else ():
            maker = makers.get(difference)
            if (maker is not None and maker.op_type == "Sub" and maker.input[1] == added
                    and _is_sign(makers.get(maker.input[0]), makers)):
                source, result = maker.input[0], node.output[0]
                node.CopyFrom(onnx.helper.make_node("Identity", [source], [result], name=node.name))
                makers[result] = node
                break
    return model


def _is_sign(node: NodeProto | None, makers: Mapping[str, NodeProto]) -> bool:
    """Whether a node is a Sign, or the product of one and something else."""
    if node is None:
        return False
    return node.op_type == "Sign" or (node.op_type == "Mul" and any(
        name in makers and makers[name].op_type == "Sign" for name in node.input))
