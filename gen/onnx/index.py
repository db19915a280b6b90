"""Who makes and who reads each value of a model, and what is known of it."""

from collections import defaultdict
from collections.abc import Collection
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from gen.onnx.held import array_of, held_by
from gen.onnx.light import inferred
from gen.onnx.names import unique

__all__ = ["GraphIndex", "depended_on"]

_INTEGERS = (TensorProto.INT32, TensorProto.INT64)


class GraphIndex:
    """Of a model as it is at first, found in one walk; `gen.onnx.edited` follows changes. By the name of a value:
    ``makers``; ``readers``, a node as often as it reads the value; ``constants``. ``outputs``: of the model, which are
    read by who runs it, too. ``known`` has types and shapes of the values, where they are inferred already.
    """

    def __init__(self, model: onnx.ModelProto, known: onnx.GraphProto | None = None) -> None:
        self.model, self.graph, self._known = model, model.graph, known
        self.constants: dict[str, TensorProto] = {tensor.name: tensor for tensor in model.graph.initializer}
        self.outputs = {value.name for value in model.graph.output}
        self.makers: dict[str, NodeProto] = {}
        self.readers = defaultdict[str, list[NodeProto]](list)
        for node in model.graph.node:
            for name in node.output:
                self.makers[name] = node
            for name in node.input:
                self.readers[name].append(node)

    @cached_property
    def sizes(self) -> dict[str, list[int | str]]:
        """Of values that have a shape, as onnx infers them; of a size that is not known its name, or ""."""
        return {name: [dim.dim_value or dim.dim_param for dim in value.type.tensor_type.shape.dim]
                for name, value in self._values.items()}

    @cached_property
    def shapes(self) -> dict[str, list[int]]:
        """`sizes` with 0 for those that are not known."""
        return {name: [size if isinstance(size, int) else 0 for size in sizes] for name, sizes in self.sizes.items()}

    @cached_property
    def integers(self) -> set[str]:
        """Values that are known to be integers, as sizes are."""
        return {name for name, value in self._values.items() if value.type.tensor_type.elem_type in _INTEGERS}

    @cached_property
    def _values(self) -> dict[str, onnx.ValueInfoProto]:
        known = self._known or inferred(self.model, data_prop=True)
        return {value.name: value for value in (*known.input, *known.value_info, *known.output)}

    def made(self, name: str, *operators: str) -> NodeProto | None:
        """The node that makes a value, if it is of one of these operators."""
        maker = self.makers.get(name)
        return maker if maker is not None and maker.op_type in operators else None

    def uses(self, name: str) -> int:
        """How often a value is read, or is a result of the model."""
        return len(self.readers[name]) + (name in self.outputs)

    def reader(self, name: str) -> NodeProto | None:
        """What alone reads a value; None where anything else does."""
        return self.readers[name][0] if self.uses(name) == 1 and self.readers[name] else None

    def number(self, name: str) -> np.ndarray | None:
        """The array of a constant, an initializer or a Constant's; None for any other value, and for damaged ones."""
        if (tensor := self.constants.get(name)) is not None:
            return array_of(tensor)
        maker = self.made(name, "Constant")
        return None if maker is None else held_by(maker)

    def constant(self, wanted: str, array: np.ndarray) -> str:
        """A new constant of such a name."""
        name = self.name(wanted)
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        self.constants[name] = self.graph.initializer[-1]
        return name

    def name(self, wanted: str) -> str:
        """A name that no value and no node has."""
        name = unique(wanted, self._taken)
        self._taken.add(name)
        return name

    @cached_property
    def _taken(self) -> set[str]:
        graph = self.graph
        return {*self.makers, *self.readers, *self.constants, *self.outputs, *(node.name for node in graph.node),
                *(value.name for value in graph.input)}

    @staticmethod
    def attributes(node: NodeProto) -> dict[str, Any]:
        return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def depended_on(model: onnx.ModelProto, operators: Collection[str], weights: Collection[str] | None = None) -> set[str]:
    """Values that a node of one of these operators depends on; with ``weights``, of those that have one of these
    second.
    """
    found: set[str] = set()
    for node in reversed(model.graph.node):
        if (node.op_type in operators and (weights is None or node.input[1] in weights)
                or not found.isdisjoint(node.output)):
            found.update(node.input)
    return found
