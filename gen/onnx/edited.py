"""A graph that changes node by node, of which who makes and reads each value is always known.

To find that out anew after each change takes time that grows with the square of a model's nodes.
"""

from collections.abc import Sequence

import onnx
from onnx import NodeProto

from gen.onnx.index import GraphIndex

__all__ = ["EditedGraph"]


class EditedGraph(GraphIndex):
    """Nodes get other inputs by `connect` and `replace`. What is put in the place of a node, and what is removed, is in
    the model after `finish`. Shapes are those of the model at first.
    """

    def __init__(self, model: onnx.ModelProto, known: onnx.GraphProto | None = None) -> None:
        super().__init__(model, known)
        #: In the place of each node of the model, which is first in its list, unless it is removed.
        self._places: list[list[NodeProto]] = [[node] for node in model.graph.node]
        self._place_of = {node.output[0]: place for place in self._places for node in place if node.output}

    @property
    def nodes(self) -> list[NodeProto]:
        """All there are, in order."""
        return [node for place in self._places for node in place]

    def reading(self, name: str) -> list[NodeProto]:
        """The nodes that read a value, each of them once."""
        return list({node.output[0]: node for node in self.readers[name]}.values())

    def connect(self, node: NodeProto, place: int, name: str) -> None:
        """Have a node read another value, or one more."""
        self._leave(node)
        node.input[place:place + 1] = [name]
        self._enter(node)

    def replace(self, old: str, new: str) -> None:
        """Have all nodes read another value than ``old``."""
        for node in self.reading(old):
            node.input[:] = [new if name == old else name for name in node.input]
        self.readers[new] += self.readers.pop(old, [])

    def remove(self, node: NodeProto) -> None:
        self.put(node, [])

    def put(self, node: NodeProto, nodes: Sequence[NodeProto]) -> None:
        """Others in the place of a node; the last of them makes what it made."""
        self._leave(node)
        place = self._place_of.pop(node.output[0])
        index = next(number for number, other in enumerate(place) if other.output[0] == node.output[0])
        place[index:index + 1] = nodes
        for other in nodes:
            self._place_of[other.output[0]] = place
            self._enter(other)

    def finish(self) -> None:
        nodes, made = self.nodes, {name for node in self.graph.node for name in node.output}
        values = [value for value in self.graph.value_info if value.name in self.makers or value.name not in made]
        del self.graph.node[:], self.graph.value_info[:]
        self.graph.node.extend(nodes)
        self.graph.value_info.extend(values)

    def _enter(self, node: NodeProto) -> None:
        for name in node.output:
            self.makers[name] = node
        for name in node.input:
            self.readers[name].append(node)
        self._taken.update((*node.input, *node.output))

    def _leave(self, node: NodeProto) -> None:
        for name in node.output:
            self.makers.pop(name, None)
        for name in set(node.input):
            self.readers[name] = [other for other in self.readers[name] if other.output[0] != node.output[0]]
