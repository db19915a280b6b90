"""The larger, or the smaller, of two activations, as a difference of which a Relu leaves what is positive.

max(a, b) is b + Relu(a - b), and min(a, b) is a - Relu(a - b): layers that add and subtract. Networks that choose
between halves of their channels so have no other activation.
"""

from collections.abc import Iterator

import onnx
from onnx import NodeProto, helper

from gen.onnx.functions import ELEMENTWISE
from gen.quantize.rewriting import Rewriting

__all__ = ["spread_maxima"]

_OPERATORS = ("Max", "Min")
_WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def spread_maxima(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with such steps where a layer with weights depends on the result; as it is without any."""
    return _Maxima(model).run() if any(node.op_type in _OPERATORS for node in model.graph.node) else model


class _Maxima(Rewriting):
    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__(model)
        #: Values that a layer with weights depends on.
        self._wanted: set[str] = set()
        for node in reversed(model.graph.node):
            if node.op_type in _WEIGHTED and node.input[1] in self._constants or self._wanted & {*node.output}:
                self._wanted.update(node.input)

    def layers(self, node: NodeProto) -> Iterator[NodeProto]:
        if node.op_type not in _OPERATORS or not self._is_choice(node):
            yield node
            return
        one, other = node.input
        less, positive = (self._name(f"{node.name}/{what}") for what in ("Sub", "Relu"))
        yield helper.make_node("Sub", [one, other], [less], name=less)
        yield helper.make_node("Relu", [less], [positive], name=positive)
        op, first, second = ("Add", other, positive) if node.op_type == "Max" else ("Sub", one, positive)
        yield helper.make_node(op, [first, second], [node.output[0]], name=node.name)

    def _is_choice(self, node: NodeProto) -> bool:
        """Whether it is one of two maps of a shape that no table stands for."""
        shapes = [self._shapes.get(name, []) for name in node.input]
        return (len(shapes) == 2 and shapes[0] == shapes[1] and len(shapes[0]) > 1 and all(shapes[0][1:])
                and self._constants.keys().isdisjoint(node.input) and node.output[0] in self._wanted
                and self._integers.isdisjoint(node.input) and self._root(node.input[0]) != self._root(node.input[1]))

    def _root(self, name: str) -> str:
        """What a value is a function of, value by value."""
        while (node := self._makers.get(name)) is not None and ("", node.op_type) in ELEMENTWISE:
            varying = [one for one in node.input if one and one not in self._constants]
            if len(varying) != 1:
                break
            name = varying[0]
        return name
