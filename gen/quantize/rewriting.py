"""Rules that put other nodes in the place of some of a float model."""

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import onnx
from onnx import NodeProto, helper

from gen.onnx.index import GraphIndex
from gen.onnx.passes import drop_unused

__all__ = ["WEIGHTED", "Rewriting", "rewritten"]

#: Operators of layers with weights.
WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")


class Rewriting:
    """One rule: ``layers`` says what a node of ``OPERATORS`` becomes, by the graph as it is before any of it changes.
    Where that makes the result of another node, too, that node is gone. Rules make new nodes and constants by the
    methods here.
    """

    OPERATORS: ClassVar[frozenset[str]]

    def __init__(self, index: GraphIndex) -> None:
        self._index, self._model = index, index.model
        self._constants, self._makers, self._readers = index.constants, index.makers, index.readers
        self._outputs, self._number, self._made, self._name = index.outputs, index.number, index.made, index.name
        self._attributes = index.attributes

    @property
    def _shapes(self) -> dict[str, list[int]]:
        return self._index.shapes

    @property
    def _integers(self) -> set[str]:
        return self._index.integers

    def layers(self, node: NodeProto) -> Iterable[NodeProto]:
        """What a node becomes; nothing where it stays as it is."""
        raise NotImplementedError

    def _constant(self, owner: str, value: np.ndarray | float) -> str:
        """A new constant, float32 for a number."""
        array = value if isinstance(value, np.ndarray) else np.array(value, np.float32)
        return self._index.constant(f"{owner}/constant", np.ascontiguousarray(array))

    def _node(self, owner: NodeProto, op: str, *inputs: str, result: str = "", **attributes: Any) -> NodeProto:
        """A new node, called after ``owner``, as is what it makes, if that is no ``result``."""
        name = self._name(f"{owner.name or owner.output[0]}/{op}")
        return helper.make_node(op, inputs, [result or name], name=name, **attributes)


def rewritten(model: onnx.ModelProto, *rules: type[Rewriting]) -> onnx.ModelProto:
    """``model`` after each of ``rules``, one walk for each that has nodes of its operators. What is known of the graph
    is found again only where a rule changed it.
    """
    index = None
    for rule in rules:
        if rule.OPERATORS.isdisjoint(node.op_type for node in model.graph.node):
            continue
        applied = rule(index := index or GraphIndex(model))
        found = [list(applied.layers(node)) if node.op_type in rule.OPERATORS else [] for node in model.graph.node]
        if not any(found):
            continue
        made = {name for nodes in found for node in nodes for name in node.output if name}
        nodes = [other for node, others in zip(model.graph.node, found, strict=True)
                 for other in others or ([node] if made.isdisjoint(node.output) else [])]
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        model, index = drop_unused(model), None
    return model
