"""A graph that changes node by node, of which who makes and reads each value is always known.

To find that out anew after each change takes time that grows with the square of a model's nodes.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, numpy_helper

from gen.onnx.light import inferred
from gen.onnx.names import unique

__all__ = ["EditedGraph"]


class EditedGraph:
    """``constants``, ``makers``: by the name of a value; ``outputs``: of the model; ``shapes``: of values as far as
    they are known, 0 for a size that is not.

    Nodes get other inputs by `connect` and `replace`. What is put in the place of a node, and what is removed, is in
    the model after `finish`.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._graph = model.graph
        self.constants: dict[str, TensorProto] = {tensor.name: tensor for tensor in model.graph.initializer}
        self.outputs = {value.name for value in model.graph.output}
        known = inferred(model)
        self.shapes = {value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
                       for value in (*known.input, *known.value_info, *known.output)}
        self.makers: dict[str, NodeProto] = {}
        #: Of each value the nodes that read it, one of them as often as it does.
        self._readers: dict[str, list[NodeProto]] = defaultdict(list)
        self._taken = {*self.constants, *(value.name for value in model.graph.input)}
        #: In the place of each node of the model, which is first in its list, unless it is removed.
        self._places: list[list[NodeProto]] = [[node] for node in model.graph.node]
        self._place_of = {node.output[0]: place for place in self._places for node in place}
        for node in model.graph.node:
            self._enter(node)

    @property
    def nodes(self) -> list[NodeProto]:
        """All there are, in order."""
        return [node for place in self._places for node in place]

    def uses(self, name: str) -> int:
        """How often a value is read, or is a result of the model."""
        return len(self._readers[name]) + (name in self.outputs)

    def readers(self, name: str) -> list[NodeProto]:
        """The nodes that read a value, each of them once."""
        return list({node.output[0]: node for node in self._readers[name]}.values())

    def connect(self, node: NodeProto, place: int, name: str) -> None:
        """Have a node read another value, or one more."""
        self._leave(node)
        node.input[place:place + 1] = [name]
        self._enter(node)

    def replace(self, old: str, new: str) -> None:
        """Have all nodes read another value than ``old``."""
        for node in self.readers(old):
            node.input[:] = [new if name == old else name for name in node.input]
        self._readers[new] += self._readers.pop(old, [])

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

    def constant(self, name: str, array: np.ndarray) -> str:
        """A new constant, float32, of that name or one like it."""
        name = self.name(name)
        self._graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array, np.float32), name))
        self.constants[name] = self._graph.initializer[-1]
        return name

    def name(self, wanted: str) -> str:
        """A name that no value has."""
        name = unique(wanted, self._taken)
        self._taken.add(name)
        return name

    def finish(self) -> None:
        nodes = self.nodes
        del self._graph.node[:]
        self._graph.node.extend(nodes)

    def _enter(self, node: NodeProto) -> None:
        for name in node.output:
            self.makers[name] = node
        for name in node.input:
            self._readers[name].append(node)
        self._taken.update((*node.input, *node.output))

    def _leave(self, node: NodeProto) -> None:
        for name in node.output:
            self.makers.pop(name, None)
        for name in set(node.input):
            self._readers[name] = [other for other in self._readers[name] if other.output[0] != node.output[0]]
