"""Refuses types that an operator does not take."""

import math
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

from gen.ir.errors import GraphError
from gen.onnx.inner import all_graphs
from gen.onnx.model import MICROSOFT
from gen.onnx.passes.check import of_runtime
from gen.onnx.passes.report import sentence

__all__ = ["as_shaped", "check_types", "known_types", "value_types"]

#: Initializers up to this size may decide about shapes, and take part in type inference with their values.
_SMALL = 1024
#: Operators of onnxruntime -> an ONNX one whose result has the same shape, and which of their
#: inputs that takes.
_SHAPED_AS = {
    "QLinearAdd": ("Add", slice(0, 6, 3)), "QLinearMul": ("Add", slice(0, 6, 3)),
    "QLinearSigmoid": ("Identity", slice(1)), "QLinearLeakyRelu": ("Identity", slice(1)),
    "QLinearSoftmax": ("Identity", slice(1)), "QLinearConcat": ("Concat", slice(2, None, 3)),
    "QLinearAveragePool": ("AveragePool", slice(1)), "QLinearGlobalAveragePool": ("GlobalAveragePool", slice(1)),
    "QGemm": ("Gemm", slice(0, 6, 3)),
    **{op: ("Identity", slice(1)) for op in (
        "FastGelu", "Gelu", "QuickGelu", "LayerNormalization", "SimplifiedLayerNormalization")},
    "DynamicQuantizeLSTM": ("LSTM", slice(3)),
}
#: Their attributes that those do not have.
_OWN = ("channels_last", "opset")


def check_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """Raises GraphError where an operator gets a type that ONNX does not give it; what onnxruntime refuses, too."""
    try:
        shape_inference.infer_shapes(_skeleton(model), check_type=True)
    except (shape_inference.InferenceError, ValueError, RuntimeError) as error:
        raise GraphError(sentence(error), code="invalid-model") from None
    return model


def value_types(model: onnx.ModelProto, known: Mapping[str, np.ndarray] | None = None, *,
                samples: int = 1) -> dict[str, onnx.TypeProto]:
    """Of inputs, and of results as far as they can be inferred for so many samples, where that is left open.

    ``known``: values that nodes make of the shapes of others, as shape inference cannot tell.
    """
    skeleton = _skeleton(model)
    _settle(skeleton.graph, known or {})
    constants = {tensor.name for tensor in skeleton.graph.initializer}
    for value in skeleton.graph.input:
        dims = value.type.tensor_type.shape.dim
        if dims and not dims[0].dim_value and value.name not in constants:
            dims[0].dim_value = samples
    graph = shape_inference.infer_shapes(as_shaped(skeleton), data_prop=True).graph
    # What infers nothing for an output leaves it without a type.
    return {value.name: value.type for inner in all_graphs(graph)
            for value in (*inner.input, *inner.value_info, *inner.output) if value.type.tensor_type.elem_type}


def as_shaped(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, in the place of onnxruntime's operators ONNX's own whose results have their shapes."""
    graph = of_runtime(model).graph
    types = {value.name: value.type.tensor_type.elem_type for value in graph.input}
    types |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    for node in graph.node:
        if node.domain != MICROSOFT:
            continue
        if node.op_type in _SHAPED_AS:
            _make_plain(node)
        elif node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            _make_cast(node, types)
    return model


def known_types(model: onnx.ModelProto, known: Mapping[str, np.ndarray] | None = None, *,
                samples: int = 1) -> dict[str, onnx.TypeProto]:
    """As `value_types`; none for a model whose shapes contradict each other, which is said later, or elsewhere."""
    try:
        return value_types(model, known, samples=samples)
    except (shape_inference.InferenceError, ValueError, RuntimeError):
        return {}


def _settle(graph: onnx.GraphProto, known: Mapping[str, np.ndarray]) -> None:
    """Make constants of values that nodes make and that are ``known``, but for large ones."""
    small = {name for name, array in known.items() if array.size <= _SMALL}
    made = [node for node in graph.node if node.output and small.issuperset(node.output)]
    if made:
        kept = [node for node in graph.node if not (node.output and small.issuperset(node.output))]
        graph.initializer.extend(numpy_helper.from_array(known[name], name) for node in made for name in node.output)
        del graph.node[:]
        graph.node.extend(kept)


def _make_plain(node: onnx.NodeProto) -> None:
    """Put the ONNX operator in the node's place from which its shape can be inferred: ONNX infers none of others."""
    if any(attribute.name == "channels_last" and attribute.i for attribute in node.attribute):
        return
    if node.op_type == "QGemm" and (len(node.input) < 8 or not node.input[7]):
        return      # its result is float
    op, inputs = _SHAPED_AS[node.op_type]
    outputs = list(node.output)
    plain = helper.make_node(op, list(node.input)[inputs], outputs if op == "LSTM" else outputs[:1])
    if op != "Identity":
        plain.attribute.extend(attribute for attribute in node.attribute if attribute.name not in _OWN)
    node.CopyFrom(plain)


def _make_cast(node: onnx.NodeProto, types: Mapping[str, int]) -> None:
    """Put a Cast in the place of a node that quantises or dequantises. ``types``: of the model's constants."""
    if node.op_type == "DequantizeLinear":
        wanted = types.get(node.input[1], TensorProto.FLOAT)
    else:
        zero = node.input[2] if len(node.input) > 2 else ""
        wanted = types.get(zero, 0) if zero else TensorProto.UINT8
    if wanted:
        node.CopyFrom(helper.make_node("Cast", list(node.input)[:1], list(node.output)[:1], to=wanted))


def _skeleton(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` without the values of its larger initializers, and without the shapes that it says outputs have; those
    that are inputs would take them from these.
    """
    large = [tensor for tensor in model.graph.initializer if math.prod(tensor.dims) > _SMALL]
    inputs = {value.name: value for value in model.graph.input}
    inputs |= {t.name: helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in large}
    skeleton = helper.make_graph(
        model.graph.node, "types", list(inputs.values()),
        [helper.make_tensor_value_info(o.name, o.type.tensor_type.elem_type, None) for o in model.graph.output
         if o.name not in inputs],
        [tensor for tensor in model.graph.initializer if math.prod(tensor.dims) <= _SMALL])
    return of_runtime(helper.make_model(skeleton, opset_imports=model.opset_import, functions=model.functions))
