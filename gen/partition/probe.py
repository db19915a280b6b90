"""Which nodes of a model the accelerator takes.

The model is imported as always, but what is refused does not end that: the node is left to the processor, and its
results are from then on what inputs of a model are. Where nothing is refused the walk has imported the model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

import numpy as np
import onnx
from onnx import TensorProto, helper

from cores.errors import Reason
from gen.ir.errors import GraphError
from gen.ir.graph import MAX_VALUES, Layer
from gen.ir.host import HostStep
from gen.onnx.importer import Imported, Importer
from gen.onnx.machine import Units
from gen.onnx.model import Model, ModelInput, Node, NodeError
from gen.onnx.passes import value_types
from gen.onnx.values import Constant, Quantised, QuantisedConstant, RawInput, Real, Value

__all__ = ["Probed", "is_known", "probe"]

#: What an input of a model may be.
_NUMBERS = (TensorProto.FLOAT, TensorProto.INT8, TensorProto.UINT8)


@dataclass(frozen=True)
class Outside:
    """A value of the processor that no segment on the accelerator could begin with, for its type or its shape:
    ``what`` says of which it is. ``maker``: the node that makes it, "" for inputs of the model.
    """

    maker: str
    what: str
    order: np.ndarray = field(default_factory=lambda: np.zeros((1, 0), np.int64), repr=False)


@dataclass(frozen=True, eq=False)
class Probed:
    """Nodes by name. Those that are nowhere here move, quantise or dequantise values, or prepare constants."""

    #: Why a node is left to the processor.
    host: Mapping[str, Reason]
    #: What runs on the accelerator.
    layers: Sequence[Layer]
    #: Values that are known when the model is compiled.
    constants: Mapping[str, np.ndarray]
    #: Values that the accelerator has only as sums on the way to a quantised tensor -> the node that needs them on the
    #: processor, "" for outputs of the model.
    unquantised: Mapping[str, str]
    #: Outputs of the model that the accelerator makes, whose first axis is not that of the samples.
    loose: frozenset[str]
    #: Of the model's values, as far as they can be told.
    types: Mapping[str, onnx.TypeProto]
    #: The model, where the accelerator takes all of it.
    whole: Imported | None = None

    @cached_property
    def in_layers(self) -> frozenset[str]:
        """Nodes that are part of a layer."""
        return frozenset(name for layer in self.layers for name in layer.onnx_nodes)

    def is_copied(self, node: Node) -> bool:
        """Whether a node is there for each of its readers, on whichever side that is."""
        return node.name not in self.host and node.name not in self.in_layers


class _Prober(Importer):
    def __init__(self, model: Model, host: Mapping[str, Reason], types: Mapping[str, onnx.TypeProto],
                 units: Units | None) -> None:
        super().__init__(model, units=units)
        self._types = types
        self.host = dict(host)
        #: Nodes that turned out to be at fault for what is refused after them, and why.
        self.blamed: dict[str, Reason] = {}
        self.constants = dict(model.constants)
        self.unquantised: dict[str, str] = {}
        #: Outputs of the model whose first axis is not that of the samples.
        self.loose: set[str] = set()
        #: Results of the processor whose type is known, and not their shape.
        self.open: set[str] = set()
        #: Outputs of the model that the accelerator can hand over.
        self._ends: dict[str, tuple[str, tuple[HostStep, ...]]] = {}

    def probe(self) -> Probed:
        self._visit_all()
        for name in self._model.outputs:
            self._leave(name, "")
        return Probed(self.host, self._graph.layers, self.constants, self.unquantised, frozenset(self.loose),
                      self._types, self._whole())

    def _whole(self) -> Imported | None:
        if self.host or self.unquantised or self.loose:
            return None
        try:
            return self._imported({name: self._ends.get(name) or self._output(name) for name in self._model.outputs})
        except GraphError:
            return None

    def _input(self, model_input: ModelInput, *, others_quantised: bool) -> Value:
        if model_input.elem_type not in _NUMBERS:
            return Outside("", _number(model_input.elem_type))  # type: ignore[return-value]
        return super()._input(model_input, others_quantised=others_quantised)

    def _visit(self, node: Node) -> list[Value]:
        if node.name not in self.host:
            try:
                for name in node.inputs:
                    if isinstance(value := self._values.get(name), Outside):
                        self._handler(node)     # no other input would help one without
                        by = f"makes it in node {value.maker}" if value.maker else "has it"
                        raise NodeError(f"its input {name} is {value.what}: the processor {by}", code="value-type")
                outputs = super()._visit(node)
            except NodeError as error:
                self.host[node.name] = reason = Reason.of(error)
                if error.at not in ("", *self.host):
                    self.blamed[error.at] = reason
            else:
                self.constants.update((name, value.array) for name, value in zip(node.outputs, outputs, strict=False)
                                      if isinstance(value, Constant))
                return outputs
        for name in node.inputs:
            if name:
                self._leave(name, node.name)
        return [self._made_on_host(name, node) for name in node.outputs]

    def _made_on_host(self, name: str, node: Node) -> Value:
        type_ = self._types[name].tensor_type if name in self._types else onnx.TypeProto.Tensor()
        shape = tuple(d.dim_value for d in type_.shape.dim)
        if name in self._types and not is_known(type_):
            self.open.add(name)
        # Shapes in the file may be anything: none below 1, and no more values than a layer may have.
        possible = shape and min(shape) > 0 and prod(shape) <= MAX_VALUES
        if type_.elem_type not in _NUMBERS:
            return Outside(node.name, _number(type_.elem_type))  # type: ignore[return-value]
        if not possible:
            what = "of a shape that is not known" if name in self.open else f"of shape {shape}"
            return Outside(node.name, what)  # type: ignore[return-value]
        # One whose first axis is not the sample's crosses with that in front of it (`gen.partition.extract`).
        crossing = shape if shape[0] == 1 else (1, *shape)
        value = self._graph.add_input(ModelInput(name, type_.elem_type, crossing), others_quantised=True)
        if crossing is not shape:
            value = replace(value, order=value.order.reshape(shape))
        return replace(value, maker=node.name) if isinstance(value, RawInput) else value

    def _leave(self, name: str, reader: str) -> None:
        """Notes a value that the accelerator cannot hand to ``reader`` on the processor."""
        value = self._values.get(name)
        if value is None or isinstance(value, Constant | QuantisedConstant | RawInput | Outside):
            return
        if isinstance(value, Real | Quantised):
            quantised = value.quantised if isinstance(value, Real) else value
            if self._graph.is_input(quantised.tensor):
                return      # whoever reads it has a copy of what moves and quantises an input
            if quantised.order.shape[0] != 1:
                if not reader:
                    self.loose.add(name)
                quantised = replace(quantised, order=quantised.order[None])
                value = replace(value, quantised=quantised) if isinstance(value, Real) else quantised
        try:
            handed = self._handed(name, value)
        except GraphError:
            self.unquantised.setdefault(name, reader)
        else:
            if not reader:
                self._ends[name] = handed


def _number(elem_type: int) -> str:
    """The type of a value, in words."""
    return str(helper.tensor_dtype_to_np_dtype(elem_type)) if elem_type else "of a type that is not known"


def is_known(type_: onnx.TypeProto.Tensor) -> bool:
    """Whether a type has a shape without a dimension that is left open."""
    return type_.HasField("shape") and all(dim.HasField("dim_value") for dim in type_.shape.dim)


def probe(model: Model, host: Mapping[str, Reason], types: Mapping[str, onnx.TypeProto],
          units: Units | None = None) -> Probed:
    """A walk in which the nodes of ``host`` are left to the processor from the start, and those that turn out to be at
    fault for what is refused after them.

    ``types``: of the model's values, to which those are added that depend on shapes which the walk has found;
    ``units``: as of an `Importer`. Raises GraphError for a model that is too large, or not one.
    """
    while True:
        prober = _Prober(model, host, types, units)
        found = prober.probe()
        if prober.blamed:
            host = {**host, **prober.blamed}
            continue
        if not prober.open:
            return found
        more = value_types(model.proto, found.constants)
        if not any(name in more and is_known(more[name].tensor_type) for name in prober.open):
            return found
        types = more
