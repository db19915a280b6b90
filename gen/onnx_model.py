"""Reading an ONNX file: nodes, constants and the shapes of the inputs, without any meaning yet."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from gen.files import is_zip
from gen.ir import GraphError

__all__ = ["Model", "ModelInput", "Node", "first_line", "fold", "read"]

#: Opsets that the operator handlers know.
MIN_OPSET, MAX_OPSET = 7, 25
#: What a TensorFlow Lite file has behind its first four bytes.
_TFLITE = b"TFL3"


@dataclass(frozen=True)
class Node:
    """An ONNX node with its attributes as Python values; ``""`` stands for an input left out."""

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    proto: onnx.NodeProto

    def __str__(self) -> str:
        return f"node {self.name} ({self.op})"


@dataclass(frozen=True)
class ModelInput:
    """A model input: ``shape`` has 1 in place of a symbolic number of samples."""

    name: str
    elem_type: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Model:
    path: str
    proto: onnx.ModelProto
    opset: int
    nodes: tuple[Node, ...]
    constants: Mapping[str, np.ndarray]
    inputs: tuple[ModelInput, ...]
    outputs: tuple[str, ...]


def first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _attribute(path: str, attribute: onnx.AttributeProto) -> Any:
    try:
        value = helper.get_attribute_value(attribute)
    except ValueError as error:
        raise GraphError(f"{path}: attribute {attribute.name} is malformed ({first_line(error)})") from None
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _array(path: str, tensor: TensorProto) -> np.ndarray:
    try:
        return numpy_helper.to_array(tensor)
    except Exception as error:  # a damaged tensor makes it raise anything
        raise GraphError(f"{path}: initializer {tensor.name} is malformed ({first_line(error)})") from None


def _input_shape(path: str, value: onnx.ValueInfoProto) -> tuple[int, ...]:
    if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
        raise GraphError(f"{path}: input {value.name} has no shape; export the model with fixed input shapes")
    dims = [d.dim_value if d.HasField("dim_value") else 0 for d in value.type.tensor_type.shape.dim]
    if len(dims) < 2:
        raise GraphError(f"{path}: input {value.name} has {len(dims)} dimensions; it needs samples and one more")
    if any(d <= 0 for d in dims[1:]):
        raise GraphError(f"{path}: input {value.name} has a dynamic shape; fix every dimension but the first "
                         "(python -m onnxruntime.tools.make_dynamic_shape_fixed)")
    if dims[0] > 1:
        raise GraphError(f"{path}: input {value.name} has a fixed batch of {dims[0]}; export the model "
                         "with batch 1 or a symbolic one")
    return (1, *dims[1:])


def read(path: str | Path) -> Model:
    """Parse and check an ONNX file. Raises GraphError, one line that names the file, when it is none or not valid."""
    name = str(path)
    try:
        other = is_zip(Path(path))
    except OSError as error:
        raise GraphError(f"{name}: {error.strerror or error}") from None
    if other:
        raise GraphError(f"{name}: a program or another zip file, where an ONNX model is needed")
    with open(path, "rb") as file:
        if file.read(8)[4:] == _TFLITE:
            raise GraphError(f"{name}: a TensorFlow Lite file; convert it to ONNX first, for example with tf2onnx")
    try:
        proto = onnx.load(name)
    except (OSError, DecodeError, ValueError, TypeError, onnx.checker.ValidationError) as error:
        raise GraphError(f"{name}: not a readable ONNX file ({first_line(error)})") from None
    if not proto.graph.node and not proto.graph.output:
        raise GraphError(f"{name}: not an ONNX model, or an empty one")
    # Older files must list initializers among the inputs, which writers forget and nobody needs.
    proto.ir_version = max(proto.ir_version, 4)
    try:
        onnx.checker.check_model(proto)
    except (onnx.checker.ValidationError, ValueError) as error:
        raise GraphError(f"{name}: not a valid ONNX model: {first_line(error)}") from None
    opset = max((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), default=0)
    if not MIN_OPSET <= opset <= MAX_OPSET:
        raise GraphError(f"{name}: opset {opset} is not supported; convert the model to one in "
                         f"{MIN_OPSET}..{MAX_OPSET} (onnx.version_converter)")
    graph = proto.graph
    constants = {i.name: _array(name, i) for i in graph.initializer}
    nodes = tuple(
        Node(n.op_type, n.name or n.output[0], tuple(n.input), tuple(n.output),
             {a.name: _attribute(name, a) for a in n.attribute}, n)
        for n in graph.node)
    inputs = tuple(ModelInput(i.name, i.type.tensor_type.elem_type, _input_shape(name, i))
                   for i in graph.input if i.name not in constants)
    return Model(name, proto, opset, nodes, constants, inputs, tuple(o.name for o in graph.output))


def fold(node: Node, opsets: Mapping[str, int], values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Outputs of a node all of whose inputs are constants.

    Raises whatever the reference evaluator raises for a node that it cannot run.
    """
    graph = helper.make_graph(
        [node.proto], "fold",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
         for n, v in values.items()],
        [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in node.outputs if n])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(d, v) for d, v in opsets.items()])
    return [np.asarray(v) for v in ReferenceEvaluator(model).run(None, dict(values))]
