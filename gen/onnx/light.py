"""Models without the numbers of their large weights.

The tools of onnx, and onnxruntime, take a model as one message, and copy it several times on their way. VGG16's has
553 MB: copies of them, and the page faults of each, took most of the time to quantise it. Types and shapes can be told
without the numbers, and onnxruntime can be given them as arrays.
"""

import math
from collections.abc import Iterable

import onnx
from google.protobuf.message import Message  # type: ignore[import-untyped]
from onnx import TensorProto, shape_inference

__all__ = ["add_light", "inferred", "is_large", "light", "without_initializers"]

#: Initializers up to this size may decide about shapes.
_SMALL = 1024
#: What large weights are.
_TYPES = (TensorProto.FLOAT, TensorProto.INT8, TensorProto.UINT8)


def is_large(tensor: TensorProto) -> bool:
    """Whether a tensor is one whose numbers are left out."""
    return tensor.HasField("raw_data") and tensor.data_type in _TYPES and math.prod(tensor.dims) > _SMALL


def without_initializers(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model without its initializers."""
    result = onnx.ModelProto()
    _copy(model, result, but="graph")
    _copy(model.graph, result.graph, but="initializer")
    return result


def add_light(model: onnx.ModelProto, initializers: Iterable[TensorProto]) -> None:
    """Add initializers to a model: of large ones the type and the shape, and that their numbers are elsewhere."""
    for tensor in initializers:
        if is_large(tensor):
            model.graph.initializer.add(
                name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, data_location=TensorProto.EXTERNAL,
                external_data=[onnx.StringStringEntryProto(key="location", value="left out")])
        else:
            model.graph.initializer.append(tensor)


def light(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy without the numbers of large initializers."""
    result = without_initializers(model)
    add_light(result, model.graph.initializer)
    return result


def inferred(model: onnx.ModelProto, *, data_prop: bool = False) -> onnx.GraphProto:
    """The graph of a `light` copy with the types and shapes of its values, by onnx's inference. Raises as that does."""
    return shape_inference.infer_shapes(light(model), data_prop=data_prop).graph


def _copy(source: Message, target: Message, *, but: str) -> None:
    """All fields ``but`` one."""
    for field, value in source.ListFields():
        if field.name == but:
            continue
        if isinstance(value, Message):
            getattr(target, field.name).CopyFrom(value)
        elif isinstance(value, str | bytes | int | float):
            setattr(target, field.name, value)
        else:
            getattr(target, field.name).extend(value)
