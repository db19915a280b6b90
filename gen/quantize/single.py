"""Models in other floating-point numbers than float32, as those."""

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from gen.onnx.inner import all_graphs
from gen.onnx.names import unique
from gen.onnx.passes import disclose, enclose

__all__ = ["in_single"]

_SHORT = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
#: Attributes that say which numbers a node makes.
_KINDS = ("to", "dtype", "output_dtype")


def in_single(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with float32 in place of float16 and bfloat16; and of double, where weights have that. Inputs and
    outputs keep their types, by a Cast. The model stays as it is; one without such numbers is given back.
    """
    plain = onnx.ModelProto()
    plain.CopyFrom(model)
    disclose(plain)
    kinds = set(_kinds_of(plain.graph))
    wanted = tuple(kinds.intersection(_SHORT)) + (TensorProto.DOUBLE,) * _has_weights(plain.graph, TensorProto.DOUBLE)
    if not wanted:
        return model
    _convert(plain.graph, wanted)
    _cast_ends(plain.graph, wanted)
    return enclose(plain)


def _tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    """Those that are written down in it."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                yield attribute.t


def _kinds_of(graph: onnx.GraphProto) -> Iterator[int]:
    for inner in all_graphs(graph):
        yield from (tensor.data_type for tensor in _tensors(inner))
        yield from (value.type.tensor_type.elem_type for value in (*inner.input, *inner.output))
        yield from (a.i for node in inner.node for a in node.attribute if a.name in _KINDS)


def _has_weights(graph: onnx.GraphProto, kind: int) -> bool:
    return any(tensor.data_type == kind and len(tensor.dims) > 1
               for inner in all_graphs(graph) for tensor in _tensors(inner))


def _convert(graph: onnx.GraphProto, kinds: tuple[int, ...]) -> None:
    """Constants, what nodes make, and what goes into and out of graphs within nodes."""
    constants = {tensor.name for tensor in graph.initializer}
    for inner in all_graphs(graph):
        for tensor in _tensors(inner):
            if tensor.data_type in kinds:
                tensor.CopyFrom(numpy_helper.from_array(_single(numpy_helper.to_array(tensor)), tensor.name))
        for node in inner.node:
            for attribute in node.attribute:
                if attribute.name in _KINDS and attribute.i in kinds:
                    attribute.i = TensorProto.FLOAT
        del inner.value_info[:]
        for value in (*inner.input, *inner.output):
            if value.type.tensor_type.elem_type in kinds and (inner is not graph or value.name in constants):
                value.type.tensor_type.elem_type = TensorProto.FLOAT


def _single(array: np.ndarray) -> np.ndarray:
    """In float32; what is finite stays so, as the least double of a mask does."""
    limit = np.finfo(np.float32).max
    return np.where(np.isfinite(array), np.clip(array.astype(np.float64), -limit, limit), array).astype(np.float32)


def _cast_ends(graph: onnx.GraphProto, kinds: tuple[int, ...]) -> None:
    """Casts after inputs and in front of outputs of such a type; nodes read and make values of other names."""
    taken = {value.name for value in (*graph.input, *graph.output, *graph.initializer)}
    taken |= {name for inner in all_graphs(graph) for node in inner.node for name in (node.name, *node.output)}
    renamed: dict[str, str] = {}

    def other(value: onnx.ValueInfoProto) -> str:
        """Its name between nodes; "" where its type stays."""
        if value.type.tensor_type.elem_type not in kinds or value.name in renamed:
            return ""
        name = renamed[value.name] = unique(f"{value.name}/single", taken)
        taken.add(name)
        return name

    first = [helper.make_node("Cast", [value.name], [name], name=name, to=TensorProto.FLOAT)
             for value in graph.input if (name := other(value))]
    last = [helper.make_node("Cast", [name], [value.name], name=name, to=value.type.tensor_type.elem_type)
            for value in graph.output if (name := other(value))]
    for inner in all_graphs(graph):
        for node in inner.node:
            for names in (node.input, node.output):
                for place, name in enumerate(names):
                    names[place] = renamed.get(name, name)
    nodes = [*first, *graph.node, *last]
    del graph.node[:]
    graph.node.extend(nodes)
