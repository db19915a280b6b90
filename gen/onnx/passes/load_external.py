"""Initializers that are kept in files beside the model."""

import math
from pathlib import Path

import onnx
from google.protobuf.message import Message  # type: ignore[import-untyped]
from onnx import TensorProto, helper
from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data

from gen.ir.errors import GraphError

__all__ = ["load_external"]

#: Bytes of the weights in files beside the model, as of the model itself.
_MAX_EXTERNAL = 1 << 31
#: Types of which several share a byte.
_PACKED_BITS: dict[int, int] = {TensorProto.INT4: 4, TensorProto.UINT4: 4, TensorProto.FLOAT4E2M1: 4,
                                TensorProto.INT2: 2, TensorProto.UINT2: 2}


def _external(message: Message) -> int:
    """Tensors anywhere in a message that are kept in other files."""
    if isinstance(message, TensorProto):
        return int(uses_external_data(message))
    return sum(_external(item) for field, value in message.ListFields() if field.type == field.TYPE_MESSAGE
               for item in ([value] if isinstance(value, Message) else value))


def load_external(model: onnx.ModelProto, *, folder: Path | None) -> onnx.ModelProto:
    """Read the initializers that are kept in files in ``folder``, which onnx lets no model leave.

    Raises GraphError when one is not there or elsewhere, when its size is not that of the tensor, or where there is no
    folder.
    """
    tensors = [tensor for tensor in model.graph.initializer if uses_external_data(tensor)]
    if _external(model) > len(tensors):
        raise GraphError("a constant of a node is kept in another file; only initializers may be", code="external-data")
    if tensors and folder is None:
        raise GraphError("the model inside has weights in another file; compile it again", code="external-data")
    sizes = [_bytes(tensor) for tensor in tensors]
    if sum(sizes) > _MAX_EXTERNAL:
        raise GraphError(f"the initializers in other files have {sum(sizes):,} bytes, at most {_MAX_EXTERNAL:,} are "
                         "supported", code="model-too-large", limit=_MAX_EXTERNAL)
    for tensor, size in zip(tensors, sizes, strict=True):
        named = {entry.key: entry.value for entry in tensor.external_data}
        if named.setdefault("length", str(size)) != str(size):
            raise GraphError(f"initializer {tensor.name} needs {size:,} bytes, and names {named['length']} in another "
                             "file; export the model again", code="external-data")
        del tensor.external_data[:]
        tensor.external_data.extend(onnx.StringStringEntryProto(key=k, value=v) for k, v in named.items())
        try:
            load_external_data_for_tensor(tensor, str(folder))
        except (onnx.checker.ValidationError, OSError, ValueError, RuntimeError):    # the last for names without end
            raise GraphError(f"initializer {tensor.name} is kept in {named.get('location', '')!r}, which is no file "
                             "in the model's folder, or not a whole one", code="external-data") from None
    return model


def _bytes(tensor: TensorProto) -> int:
    """What a tensor takes as raw data. Raises GraphError unless its type is a number and its shape is one."""
    if min(tensor.dims, default=0) < 0:
        raise GraphError(f"initializer {tensor.name} has a negative dimension; export the model again",
                         code="invalid-model")
    try:
        bits = 8 * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    except KeyError:
        raise GraphError(f"initializer {tensor.name} is of an unknown type; export the model again",
                         code="invalid-model") from None
    return -(-math.prod(tensor.dims) * _PACKED_BITS.get(tensor.data_type, bits) // 8)
