"""The models of the segments of a model."""

from collections.abc import Mapping, Sequence, Set

import numpy as np
import onnx
from onnx import helper, numpy_helper

from gen.ir.errors import GraphError
from gen.onnx.model import Model
from gen.onnx.names import unique
from gen.onnx.passes import disclose
from gen.partition.probe import Probed, is_known

__all__ = ["Extractor"]


class Extractor:
    """Makes models of parts of ``model``; ``types``: of the model's values.

    Whatever crosses between segments has the sample's axis first, as inputs and outputs of any model have. A value
    whose first axis is another, as of windows or of tokens, crosses with an axis of 1 in front of it, under another
    name.
    """

    def __init__(self, model: Model, probed: Probed, types: Mapping[str, onnx.TypeProto]) -> None:
        self._model, self._probed, self._types = model, probed, types
        self._makers = {name: number for number, node in enumerate(model.nodes) for name in node.outputs if name}
        self._place = {node.name: number for number, node in enumerate(model.nodes)}
        self._order = {model_input.name: place for place, model_input in enumerate(model.inputs)}
        self._of_samples = _of_samples(model)
        self._declared = {value.name: value.type for value in model.proto.graph.output
                          if value.type.tensor_type.HasField("shape")}
        taken = {*self._makers, *self._order, *probed.constants}
        taken.update(self._place)
        #: Value whose first axis is not that of the samples -> its name where it crosses, and that of the shape which
        #: it is given there or given back.
        self._crossing: dict[str, str] = {}
        self._shape: dict[str, str] = {}
        for name in (*self._makers, *self._order):
            if name in types and name not in self._order and _is_loose(types[name].tensor_type):
                self._crossing[name] = unique(f"{name}/sample", taken)
                self._shape[name] = unique(f"{name}/sample/shape", taken)
                taken.update((self._crossing[name], self._shape[name]))

    def __call__(self, nodes: Set[str], outputs: Sequence[str], handed: Sequence[str]) -> onnx.ModelProto:
        """The ``nodes`` of that name, and copies of those that only move or convert what they and the results read.

        ``outputs``: those that are outputs of the model; ``handed``: what other segments read. Raises GraphError for a
        value at an edge whose type is not known.
        """
        model, probed = self._model, self._probed
        taken: set[int] = set()
        inputs: dict[str, None] = {}
        constants: dict[str, None] = {}
        waiting = [*outputs, *handed]
        waiting += (name for node in nodes for name in model.nodes[self._place[node]].outputs if name)
        seen: set[str] = set()
        while waiting:
            name = waiting.pop()
            if not name or name in seen:
                continue
            seen.add(name)
            maker = self._makers.get(name)
            if name in probed.constants:
                constants[name] = None
            elif maker is not None and (model.nodes[maker].name in nodes or probed.is_copied(model.nodes[maker])):
                taken.add(maker)
                waiting += model.nodes[maker].inputs
            else:
                inputs[name] = None
        read = sorted(inputs, key=lambda name: (self._order.get(name, len(self._order)), name))
        results = {name: self._value(name) for name in outputs}
        for name in handed:
            results.setdefault(self._crossing.get(name, name), self._value(name, crossing=True))
        moved = [(name, name in inputs) for name in (*read, *handed) if name in self._crossing]
        shapes = {self._shape[name]: np.array(self._dims(name, crossing=not entering), np.int64)
                  for name, entering in moved}
        reshapes = [self._reshape(name, entering=entering) for name, entering in moved]
        entering = sum(is_input for _, is_input in moved)
        graph = helper.make_graph(
            [*reshapes[:entering], *(model.nodes[number].proto for number in sorted(taken)), *reshapes[entering:]],
            model.proto.graph.name or "segment",
            [self._value(name, crossing=True) for name in read], list(results.values()),
            [*(numpy_helper.from_array(probed.constants[name], name) for name in sorted(constants)),
             *(numpy_helper.from_array(array, name) for name, array in shapes.items())])
        return disclose(helper.make_model(graph, opset_imports=model.proto.opset_import,
                                          ir_version=model.proto.ir_version, functions=model.proto.functions))

    def _reshape(self, name: str, *, entering: bool) -> onnx.NodeProto:
        """Between a value and what crosses in its place."""
        crossing = self._crossing[name]
        source, result = (crossing, name) if entering else (name, crossing)
        return helper.make_node("Reshape", [source, self._shape[name]], [result], name=crossing)

    def _dims(self, name: str, *, crossing: bool) -> list[int]:
        dims = [dim.dim_value for dim in self._types[name].tensor_type.shape.dim]
        return [1, *dims] if crossing else dims

    def _type(self, name: str) -> onnx.TypeProto | None:
        """With a shape, of which ONNX wants one at the ends of a graph: of outputs what the model says, where nothing
        can be inferred.
        """
        if name in self._probed.constants:
            array = self._probed.constants[name]
            return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        found = self._types.get(name)
        if found is None or not found.tensor_type.HasField("shape"):
            found = self._declared.get(name, found)
        return found

    def _value(self, name: str, *, crossing: bool = False) -> onnx.ValueInfoProto:
        """Of one sample; ``crossing``: as it crosses."""
        found = self._type(name)
        if found is None:
            raise GraphError(f"value {name} lies between accelerator and processor, and its type "
                             "cannot be inferred; export the model with the types of its values "
                             "(onnx.shape_inference)", code="unknown-type")
        if crossing and name in self._crossing:
            return helper.make_tensor_value_info(self._crossing[name], found.tensor_type.elem_type,
                                                 self._dims(name, crossing=True))
        value = onnx.ValueInfoProto(name=name, type=found)
        dims = value.type.tensor_type.shape.dim
        if dims and not dims[0].dim_value and name in self._of_samples:
            dims[0].dim_value = 1
        return value


def _is_loose(type_: onnx.TypeProto.Tensor) -> bool:
    """Whether a value's shape is known, and its first axis not that of one sample."""
    return bool(type_.shape.dim) and is_known(type_) and type_.shape.dim[0].dim_value > 1


def _of_samples(model: Model) -> set[str]:
    """Outputs whose first axis the model says to be that of the samples."""
    first = {value.name: dims[0] for value in (*model.proto.graph.input, *model.proto.graph.output)
             if (dims := value.type.tensor_type.shape.dim)}
    named = {first[i.name].dim_param for i in model.inputs} - {""}
    return {name for name in model.outputs
            if name in first and (first[name].dim_value == 1 or first[name].dim_param in named)}
