"""A node that stands for several, and the nodes that are made of it."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from onnx import NodeProto, TensorProto, helper, numpy_helper

from gen.onnx.names import unique

__all__ = ["Fused", "LaterError", "Spreads", "UnsupportedError"]


class UnsupportedError(Exception):
    """A form that is not spread: what is said after the operator's name."""


class LaterError(Exception):
    """A shape that is not known before other nodes are spread."""


class Fused:
    """A node, what is known around it, and the nodes and constants that are made in its place.

    ``shapes``: value -> its axes, 0 for one that is not known. ``taken``: names that are. ``zeros``: values that are
    zeros, though nodes make them.
    """

    def __init__(self, node: NodeProto, constants: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]],
                 taken: set[str], zeros: Collection[str] = ()) -> None:
        self.node, self._constants, self._shapes, self._taken = node, constants, shapes, taken
        self._zeros = zeros
        self.attributes: dict[str, Any] = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []

    def given(self, position: int) -> str:
        """An input, "" for one that is left out."""
        return self.node.input[position] if position < len(self.node.input) else ""

    def refuse(self, inputs: Mapping[int, str], outputs: Mapping[int, str]) -> None:
        """Raise UnsupportedError if the node has one of these inputs or outputs: position -> name in the message."""
        for names, whats in ((self.node.input, inputs), (self.node.output, outputs)):
            for position, name in enumerate(names):
                if name and position in whats:
                    raise UnsupportedError(f"has {whats[position]}, with which it is not taken apart")

    def array(self, name: str) -> np.ndarray | None:
        """What a constant holds; None for what is none."""
        return self._constants.get(name)

    def is_zero(self, name: str) -> bool:
        """Whether all that a value holds is 0."""
        array = self.array(name)
        return name in self._zeros or array is not None and not array.any()

    def shape(self, name: str) -> tuple[int, ...]:
        """Raises LaterError where that is not known."""
        if name not in self._shapes:
            raise LaterError
        return self._shapes[name]

    def constant(self, values: ArrayLike, what: str) -> str:
        array = np.asarray(values)
        name = self._name(what)
        self.initializers.append(numpy_helper.from_array(
            array.astype(np.float32) if array.dtype == np.float64 else array, name))
        return name

    def make(self, op: str, *inputs: str, result: str = "", what: str = "", domain: str = "", **attributes: Any) -> str:
        """A node; ``result``: a name that its output has, else it is named after the node and ``what``."""
        name = self._name(what or op)
        self.nodes.append(helper.make_node(op, list(inputs), [result or name], name=name, domain=domain, **attributes))
        return result or name

    def _name(self, what: str) -> str:
        name = unique(f"{self.node.name or self.node.output[0]}/{what}", self._taken)
        self._taken.add(name)
        return name


#: (domain, operator) -> fills in the nodes. Raises UnsupportedError and LaterError.
Spreads = Mapping[tuple[str, str], Callable[[Fused], None]]
