"""The model of a segment of a model."""

from collections.abc import Mapping, Sequence, Set

import onnx
from onnx import helper, numpy_helper

from gen.ir.errors import GraphError
from gen.onnx.model import Model
from gen.partition.probe import Probed

__all__ = ["extract"]


def extract(model: Model, probed: Probed, types: Mapping[str, onnx.TypeProto], nodes: Set[str],
            outputs: Sequence[str]) -> onnx.ModelProto:
    """The ``nodes`` of that name, and copies of those that only move or convert what they and the outputs read.

    ``types``: of the model's values. Raises GraphError for a value at its edge whose type is not known.
    """
    makers = {name: node for node in model.nodes for name in node.outputs if name}
    taken: set[str] = set()
    inputs: dict[str, None] = {}
    constants: dict[str, None] = {}
    waiting = [*outputs, *(name for node in model.nodes if node.name in nodes for name in node.outputs if name)]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if not name or name in seen:
            continue
        seen.add(name)
        maker = makers.get(name)
        if name in probed.constants:
            constants[name] = None
        elif maker is not None and (maker.name in nodes or probed.is_copied(maker)):
            taken.add(maker.name)
            waiting += maker.inputs
        else:
            inputs[name] = None
    kept = [node for node in model.nodes if node.name in taken]
    order = {model_input.name: place for place, model_input in enumerate(model.inputs)}
    graph = helper.make_graph(
        [node.proto for node in kept], model.proto.graph.name or "segment",
        [_value(name, types, model) for name in sorted(inputs, key=lambda name: (order.get(name, len(order)), name))],
        [_value(name, types, model) for name in outputs],
        [numpy_helper.from_array(probed.constants[name], name) for name in sorted(constants)])
    return helper.make_model(graph, opset_imports=model.proto.opset_import, ir_version=model.proto.ir_version)


def _value(name: str, types: Mapping[str, onnx.TypeProto], model: Model) -> onnx.ValueInfoProto:
    """Of one sample."""
    found = types.get(name)
    if found is None:
        raise GraphError(f"{model.path}: value {name} lies between accelerator and processor, and its type cannot be "
                         "inferred; export the model with the types of its values (onnx.shape_inference)")
    value = onnx.ValueInfoProto(name=name, type=found)
    dims = value.type.tensor_type.shape.dim
    if dims and not dims[0].dim_value and name in _of_samples(model):
        dims[0].dim_value = 1
    return value


def _of_samples(model: Model) -> set[str]:
    """Outputs whose first axis the model says to be that of the samples."""
    first = {value.name: dims[0] for value in (*model.proto.graph.input, *model.proto.graph.output)
             if (dims := value.type.tensor_type.shape.dim)}
    named = {first[i.name].dim_param for i in model.inputs} - {""}
    return {name for name in model.outputs
            if name in first and (first[name].dim_value == 1 or first[name].dim_param in named)}
