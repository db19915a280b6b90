"""An ONNX model checked and brought into the form that the importer walks: plain nodes that its outputs need."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import Message  # type: ignore[import-untyped]
from onnx import NodeProto, TensorProto, helper, inliner, numpy_helper, shape_inference
from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data

from gen.ir.errors import GraphError
from gen.ir.graph import MAX_VALUES

__all__ = ["load_external", "simplify"]

#: Nodes of a model at most, its functions inlined: many times what a machine of a few MiB can hold.
_MAX_NODES = 20_000
#: Bytes of its functions' bodies, as often as they are inlined: constants in them are copied with them.
_MAX_INLINED = 1 << 28
#: Bytes of the weights in files beside the model, as of the model itself.
_MAX_EXTERNAL = 1 << 31
#: Initializers up to this size may decide about shapes, and take part in type inference with their values.
_SMALL = 1024
#: Types of which several share a byte.
_PACKED_BITS: dict[int, int] = {TensorProto.INT4: 4, TensorProto.UINT4: 4, TensorProto.FLOAT4E2M1: 4,
                                TensorProto.INT2: 2, TensorProto.UINT2: 2}
#: What onnx's type inference says of a node, and of a type.
_NODE = re.compile(r"\(op_type:(?P<op>[^,]*), node name: (?P<name>.*?)\): (?:\[\w+\] )?(?P<what>[^\n]*)", re.DOTALL)
_UNSUPPORTED = re.compile(r"(\w+) typestr: [^,]+, has unsupported type: (?:sparse_)?tensor\((\w+)\)")
_INCONSISTENT = re.compile(r"(\w+) has inconsistent type (?:sparse_)?tensor\((\w+)\)")


def _sentence(error: Exception) -> str:
    """What one of onnx's errors says, on one line and without its own labels."""
    found = _NODE.search(str(error))
    if found:
        what = _UNSUPPORTED.sub(r"its input \1 is \2, which the operator does not take", found["what"])
        what = _INCONSISTENT.sub(r"its input \1 is \2, which does not go with the types of the others", what)
        return f"node {found['name']} ({found['op']}): {what}"
    text = re.sub(r"\[\w*Error\]\s*", "", str(error).split("==> Context")[0])
    return f"not a valid ONNX model: {' '.join(text.split())[:300]}"


def simplify(model: onnx.ModelProto) -> onnx.ModelProto:
    """Check ``model`` and return it with functions inlined, sparse constants made dense, every node with a name of its
    own, and without what no output needs.

    Raises GraphError.
    """
    # Older files must list initializers among the inputs, which writers forget and nobody needs.
    model.ir_version = max(model.ir_version, 4)
    _bound_nodes(model)
    _check_order(model.graph)
    try:
        onnx.checker.check_model(model)
        if model.functions:
            model = inliner.inline_local_functions(model)
    except (onnx.checker.ValidationError, ValueError, RuntimeError) as error:
        raise GraphError(_sentence(error)) from None
    graph = model.graph
    if not graph.output:
        raise GraphError("the model has no outputs; name at least one")
    _name_nodes(graph.node)
    _make_dense(graph)
    _check_types(model)
    _drop_unused(graph)
    return model


def _external(message: Message) -> int:
    """Tensors anywhere in a message that are kept in other files."""
    if isinstance(message, TensorProto):
        return int(uses_external_data(message))
    return sum(_external(item) for field, value in message.ListFields() if field.type == field.TYPE_MESSAGE
               for item in ([value] if isinstance(value, Message) else value))


def load_external(model: onnx.ModelProto, folder: Path | None) -> None:
    """Read the initializers that are kept in files in ``folder``, which onnx lets no model leave.

    Raises GraphError when one is not there or elsewhere, when its size is not that of the tensor, or where there is no
    folder.
    """
    tensors = [tensor for tensor in model.graph.initializer if uses_external_data(tensor)]
    if _external(model) > len(tensors):
        raise GraphError("a constant of a node is kept in another file; only initializers may be")
    if tensors and folder is None:
        raise GraphError("the model inside has weights in another file; compile it again")
    sizes = [_bytes(tensor) for tensor in tensors]
    if sum(sizes) > _MAX_EXTERNAL:
        raise GraphError(f"the initializers in other files have {sum(sizes):,} bytes, at most {_MAX_EXTERNAL:,} are "
                         "supported")
    for tensor, size in zip(tensors, sizes, strict=True):
        named = {entry.key: entry.value for entry in tensor.external_data}
        if named.setdefault("length", str(size)) != str(size):
            raise GraphError(f"initializer {tensor.name} needs {size:,} bytes, and names {named['length']} in another "
                             "file; export the model again")
        del tensor.external_data[:]
        tensor.external_data.extend(onnx.StringStringEntryProto(key=k, value=v) for k, v in named.items())
        try:
            load_external_data_for_tensor(tensor, str(folder))
        except (onnx.checker.ValidationError, OSError, ValueError):
            raise GraphError(f"initializer {tensor.name} is kept in {named.get('location', '')!r}, which is no file "
                             "in the model's folder, or not a whole one") from None


def _bytes(tensor: TensorProto) -> int:
    """What a tensor takes as raw data. Raises GraphError unless its type is a number and its shape is one."""
    if min(tensor.dims, default=0) < 0:
        raise GraphError(f"initializer {tensor.name} has a negative dimension; export the model again")
    try:
        bits = 8 * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    except KeyError:
        raise GraphError(f"initializer {tensor.name} is of an unknown type; export the model again") from None
    return -(-math.prod(tensor.dims) * _PACKED_BITS.get(tensor.data_type, bits) // 8)


def _title(node: NodeProto) -> str:
    return f"node {node.name or next(iter(node.output), 'without a name')} ({node.op_type})"


def _nested(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Nodes, and those of their subgraphs."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nested(graph.node)


def _bound_nodes(model: onnx.ModelProto) -> None:
    """Functions that call each other can stand for more nodes, and more bytes, than there are atoms."""
    functions = {(f.domain, f.name): f for f in model.functions}
    calls = {name: Counter((n.domain, n.op_type) for n in _nested(f.node)) for name, f in functions.items()}
    nodes: dict[tuple[str, str], int] = {}
    size: dict[tuple[str, str], int] = {}

    def total(called: Counter[tuple[str, str]], each: dict[tuple[str, str], int], other: int) -> int:
        return sum(times * each.get(name, other) for name, times in called.items())

    try:
        for name in TopologicalSorter({name: called.keys() & calls.keys() for name, called in calls.items()}
                                      ).static_order():
            nodes[name] = total(calls[name], nodes, 1)
            size[name] = functions[name].ByteSize() + total(calls[name], size, 0)
    except CycleError:
        raise GraphError("not a valid ONNX model: a function of it calls itself") from None
    called = Counter((n.domain, n.op_type) for n in _nested(model.graph.node))
    if (found := total(called, nodes, 1)) > _MAX_NODES:
        raise GraphError(f"the model has {found:,} nodes, functions inlined; at most {_MAX_NODES:,} are supported")
    if (found := total(called, size, 0)) > _MAX_INLINED:
        raise GraphError(f"the model's functions have {found:,} bytes, inlined; at most {_MAX_INLINED:,} are "
                         "supported: make their constants initializers")


def _check_order(graph: onnx.GraphProto) -> None:
    """Every name that a node reads is that of a constant, of an input or of something made before."""
    known = {value.name for value in (*graph.input, *graph.initializer)}
    known |= {sparse.values.name for sparse in graph.sparse_initializer}
    made = {name for node in graph.node for name in node.output}
    for node in graph.node:
        for name in node.input:
            if name and name not in known:
                what = "made only by a later node; sort the nodes" if name in made else "made nowhere"
                raise GraphError(f"{_title(node)}: its input {name} is {what}")
        known.update(node.output)


def _name_nodes(nodes: Sequence[NodeProto]) -> None:
    """Names for nodes without one: messages, reports and the comparison go by names."""
    taken = Counter(node.name for node in nodes if node.name)
    twice = next((name for name, times in taken.items() if times > 1), None)
    if twice is not None:
        raise GraphError(f"not a valid ONNX model: two nodes have the name {twice}; give each its own, or none")
    for node in nodes:
        if not node.name:
            wanted = next((n for n in node.output if n), node.op_type)
            node.name = wanted if wanted not in taken else next(
                n for n in (f"{wanted}_{i}" for i in count(2)) if n not in taken)
            taken[node.name] += 1


def _make_dense(graph: onnx.GraphProto) -> None:
    """``sparse_initializer`` -> initializer."""
    elements = sum(math.prod(sparse.dims) for sparse in graph.sparse_initializer)
    if elements > MAX_VALUES:
        raise GraphError(f"the sparse initializers have {elements:,} elements, at most {MAX_VALUES:,} are supported; "
                         "store them as dense ones")
    for sparse in graph.sparse_initializer:
        name = sparse.values.name
        try:
            values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
            dense = np.zeros(tuple(sparse.dims), values.dtype)
            dense[tuple(indices.T) if indices.ndim == 2 else np.unravel_index(indices, dense.shape)] = values
        except Exception:  # a damaged tensor makes it raise anything
            raise GraphError(f"sparse initializer {name} is damaged: its indices do not fit its shape; "
                             "export the model again") from None
        graph.initializer.append(numpy_helper.from_array(dense, name))
    del graph.sparse_initializer[:]


def _check_types(model: onnx.ModelProto) -> None:
    """Raises GraphError where an operator gets a type that ONNX does not give it; what onnxruntime refuses, too."""
    large = [tensor for tensor in model.graph.initializer if math.prod(tensor.dims) > _SMALL]
    inputs = {value.name: value for value in model.graph.input}
    inputs |= {t.name: helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in large}
    skeleton = helper.make_graph(
        model.graph.node, "types", list(inputs.values()),
        [helper.make_tensor_value_info(o.name, o.type.tensor_type.elem_type, None) for o in model.graph.output],
        [tensor for tensor in model.graph.initializer if math.prod(tensor.dims) <= _SMALL])
    try:
        shape_inference.infer_shapes(helper.make_model(skeleton, opset_imports=model.opset_import), check_type=True)
    except (shape_inference.InferenceError, ValueError, RuntimeError) as error:
        raise GraphError(_sentence(error)) from None


def _drop_unused(graph: onnx.GraphProto) -> None:
    needed, nodes = {output.name for output in graph.output}, []
    for node in reversed(graph.node):
        if not needed.isdisjoint(node.output):
            nodes.append(node)
            needed.update(name for inner in _nested([node]) for name in inner.input)
    absent = {tensor.name for tensor in graph.initializer} - needed
    _keep(graph.node, nodes[::-1])
    _keep(graph.initializer, [tensor for tensor in graph.initializer if tensor.name not in absent])
    _keep(graph.input, [value for value in graph.input if value.name not in absent])


def _keep(field: Any, items: list[Any]) -> None:
    if len(items) < len(field):
        del field[:]
        field.extend(items)
