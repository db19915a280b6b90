"""Reading an ONNX file: checked, made plain by the passes of `gen.onnx.passes`, and taken apart."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto, helper, numpy_helper

from gen.files.read import is_zip, read_file
from gen.ir.errors import GraphError
from gen.ir.graph import MAX_VALUES
from gen.onnx.fold import budget
from gen.onnx.model import Model, ModelInput, Node
from gen.onnx.passes import fold_constants, run_passes
from gen.onnx.passes.enclose import ENCLOSED, enclosed

__all__ = [
    "MAX_OPSET", "MIN_OPSET", "OpenShapeError", "Shapes", "constants_of", "nodes_of", "of_proto", "open_model", "parse",
    "read",
]

Shapes = Mapping[str, Sequence[int]]

#: Opsets that the operator handlers know.
MIN_OPSET, MAX_OPSET = 7, 25
#: What a TensorFlow Lite file has after its first four bytes.
_TFLITE = b"TFL3"
#: Bytes of a file that protobuf reads at most; weights beyond that are kept in files beside it.
_MAX_FILE = (1 << 31) - 1


class OpenShapeError(GraphError):
    """An input leaves open more than the number of samples."""

    code = "open-shape"


def _attribute(node: onnx.NodeProto, attribute: onnx.AttributeProto) -> Any:
    try:
        value = helper.get_attribute_value(attribute)
    except ValueError:
        raise GraphError(f"node {node.name} ({node.op_type}): attribute {attribute.name} has no value that can be "
                         "read; export the model again", code="invalid-model") from None
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _array(tensor: TensorProto) -> np.ndarray:
    if tensor.data_type == TensorProto.STRING:
        raise GraphError(f"initializer {tensor.name} holds text; the machine computes with numbers", code="value-type")
    try:
        if min(tensor.dims, default=0) < 0:
            raise ValueError("a negative dimension")
        return numpy_helper.to_array(tensor)
    except Exception:  # a damaged tensor makes it raise anything
        shape = ", ".join(map(str, tensor.dims))
        raise GraphError(f"initializer {tensor.name} is damaged: its data is not that of a tensor of shape ({shape}); "
                         "export the model again", code="invalid-model") from None


def _input_shape(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
        raise GraphError(f"input {value.name} has no shape; export the model with fixed input shapes",
                         code="open-shape", input=value.name)
    dims = [d.dim_value if d.HasField("dim_value") else 0 for d in value.type.tensor_type.shape.dim]
    if any(d <= 0 for d in dims[1:]):
        wanted = ",".join(["1", *(str(d.dim_value if d.dim_value > 0 else d.dim_param or "?")
                                  for d in value.type.tensor_type.shape.dim[1:])])
        raise OpenShapeError(f"input {value.name} has a dynamic shape; give it one, with numbers in --shape "
                         f"{value.name}={wanted}", input=value.name)
    if math.prod(dims[1:]) > MAX_VALUES:
        raise GraphError(f"input {value.name} has {math.prod(dims[1:]):,} values a sample; at most {MAX_VALUES:,} "
                         "are supported", code="model-too-large", limit=MAX_VALUES)
    return (1, *dims[1:])


def _load(path: Path) -> onnx.ModelProto:
    """A file as it is, without the weights that are kept in files beside it."""
    try:
        if is_zip(path):
            raise GraphError("a program or another zip file, where an ONNX model is needed", code="not-a-model")
        content = read_file(path, _MAX_FILE)
        if content[4:8] == _TFLITE:
            raise GraphError("a TensorFlow Lite file; convert it to ONNX first, for example with tf2onnx",
                             code="not-a-model")
        return onnx.load_model_from_string(content)
    except OSError as error:
        raise GraphError(error.strerror or str(error), code="unreadable-file") from None
    except (DecodeError, ValueError, TypeError) as error:
        if isinstance(error, GraphError):
            raise
        raise GraphError("not a readable ONNX file, or a damaged one", code="not-a-model") from None


def constants_of(graph: onnx.GraphProto) -> dict[str, np.ndarray]:
    """The initializers. Raises GraphError for text and for what is damaged."""
    return {tensor.name: _array(tensor) for tensor in graph.initializer}


def nodes_of(graph: onnx.GraphProto) -> tuple[Node, ...]:
    """Raises GraphError for an attribute without a value."""
    return tuple(
        Node("" if n.domain in ("ai.onnx", ENCLOSED) else n.domain, enclosed(n) or n.op_type, n.name, tuple(n.input),
             tuple(n.output), {a.name: _attribute(n, a) for a in n.attribute}, n)
        for n in graph.node)


def _model(name: str, proto: onnx.ModelProto, folder: Path | None, shapes: Shapes | None = None) -> Model:
    """What is in a file of that name in ``folder``, checked."""
    if not proto.graph.node and not proto.graph.output:
        raise GraphError("not an ONNX model, or an empty one", code="not-a-model")
    proto = run_passes(proto, folder=folder, shapes=shapes)
    # A model of trees may have no operators of ONNX's own, and import none.
    opset = max((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), default=MAX_OPSET)
    if not MIN_OPSET <= opset <= MAX_OPSET:
        raise GraphError(f"opset {opset} is not supported; convert the model to one in "
                         f"{MIN_OPSET}..{MAX_OPSET} (onnx.version_converter)", code="unsupported-opset", found=opset)
    graph = proto.graph
    constants, nodes = constants_of(graph), nodes_of(graph)
    inputs = tuple(ModelInput(i.name, i.type.tensor_type.elem_type, _input_shape(i))
                   for i in graph.input if i.name not in constants)
    return fold_constants(Model(
        name, proto, opset, nodes, constants, inputs, tuple(o.name for o in graph.output), budget(constants)))


def read(path: str | Path, shapes: Shapes | None = None) -> Model:
    """An ONNX file, through all passes; ``shapes`` are for `gen.onnx.passes.bind_shapes`.

    Raises GraphError, one line that names the file, when it is none or not valid.
    """
    try:
        return _model(str(path), _load(Path(path)), Path(path).parent, shapes)
    except GraphError as error:
        raise type(error).of(error, f"{path}: {error}", file=str(path)) from None


def parse(name: str, content: bytes) -> Model:
    """As `read`, of a model inside the file ``name``: all in one, it may not ask for further files."""
    try:
        return of_proto(name, onnx.load_model_from_string(content))
    except GraphError as error:
        raise GraphError.of(error, f"{name}: {error}", file=name) from None
    except (DecodeError, ValueError, TypeError):
        raise GraphError(f"{name}: the model inside is damaged", code="invalid-model", file=name) from None


def of_proto(name: str, proto: onnx.ModelProto) -> Model:
    """As `parse`, of a model that is parsed already; ``proto`` is changed and becomes the model's. Raises GraphError,
    without the name.
    """
    return _model(name, proto, None)


def open_model(path: str | Path, content: bytes | None = None, shapes: Shapes | None = None) -> Model:
    """`read`; with ``content`` the model is that, found inside the file at ``path``, which it is named by."""
    return read(path, shapes) if content is None else parse(str(path), content)
