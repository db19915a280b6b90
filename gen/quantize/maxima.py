"""The larger, or the smaller, of two activations, as a difference of which a Relu leaves what is positive.

max(a, b) is b + Relu(a - b), and min(a, b) is a - Relu(a - b): layers that add and subtract. Networks that choose
between halves of their channels so have no other activation.
"""

from collections.abc import Iterator

from onnx import NodeProto, helper

from gen.onnx.functions import ELEMENTWISE
from gen.onnx.index import GraphIndex, depended_on
from gen.quantize.rewriting import WEIGHTED, Rewriting

__all__ = ["Maxima"]


class Maxima(Rewriting):
    """Replaces Max and Min where a layer with weights depends on the result."""

    OPERATORS = frozenset(("Max", "Min"))

    def __init__(self, index: GraphIndex) -> None:
        super().__init__(index)
        self._wanted = depended_on(index.model, WEIGHTED, index.constants)

    def layers(self, node: NodeProto) -> Iterator[NodeProto]:
        if not self._is_choice(node):
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
