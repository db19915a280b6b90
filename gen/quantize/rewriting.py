"""Passes on a float model that put other nodes in the place of some."""

from collections.abc import Iterable
from typing import ClassVar

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from gen.onnx.light import inferred
from gen.onnx.names import unique
from gen.onnx.passes import drop_unused
from gen.onnx.passes.constants import constants_of

__all__ = ["Rewriting"]


_INTEGERS = (TensorProto.INT32, TensorProto.INT64)


class Rewriting:
    """Who makes and reads each value, and its shape, 0 for a size that is not known. Outputs of the model are read by
    who runs it, too.
    """

    #: Whether shapes are to be followed through what computes them.
    DATA_PROP: ClassVar[bool] = False

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = inferred(model, data_prop=self.DATA_PROP)
        self._model = model
        values = [*graph.input, *graph.value_info, *graph.output]
        #: Values that are known to be integers, as sizes are.
        self._integers = {value.name for value in values if value.type.tensor_type.elem_type in _INTEGERS}
        self._sizes = {value.name: value.type.tensor_type.shape.dim
                       for value in values}
        self._shapes = {name: [dim.dim_value for dim in dims] for name, dims in self._sizes.items()}
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._constant_of = constants_of(model.graph)
        self._makers = {name: node for node in model.graph.node for name in node.output}
        self._outputs = {value.name for value in model.graph.output}
        self._readers: dict[str, list[NodeProto]] = {name: [] for name in self._outputs}
        for node in model.graph.node:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)
        self._taken = {*self._makers, *self._readers, *self._constants, *(node.name for node in model.graph.node)}

    def layers(self, node: NodeProto) -> Iterable[NodeProto]:
        """What a node becomes: itself, if it stays as it is."""
        raise NotImplementedError

    def run(self) -> onnx.ModelProto:
        """The model, of which every node has become its `layers`."""
        nodes = [made for node in self._model.graph.node for made in self.layers(node)]
        del self._model.graph.node[:]
        self._model.graph.node.extend(nodes)
        return drop_unused(self._model)

    def _number(self, name: str) -> np.ndarray | None:
        """A constant; None for any other value."""
        return self._constant_of(name)

    def _made(self, name: str, op: str) -> NodeProto | None:
        """The node that makes a value, if it is of this operator."""
        maker = self._makers.get(name)
        return maker if maker is not None and maker.op_type == op else None

    def _constant(self, owner: str, value: np.ndarray | float) -> str:
        """A new constant, float32 for a number."""
        array = value if isinstance(value, np.ndarray) else np.array(value, np.float32)
        name = self._name(f"{owner}/constant")
        self._model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def _name(self, wanted: str) -> str:
        name = unique(wanted, self._taken)
        self._taken.add(name)
        return name

    @staticmethod
    def _attributes(node: NodeProto) -> dict:
        return {a.name: helper.get_attribute_value(a) for a in node.attribute}
