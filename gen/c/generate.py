"""Models, or parts of them, as functions in C."""

import re
from collections import Counter

import numpy as np
import onnx
from onnx import helper

import gen.c.kernels  # noqa: F401  (registers the operators)
from gen.c.arena import place
from gen.c.context import Context
from gen.c.copies import copy
from gen.c.function import CFunction, Port
from gen.c.registry import OPERATORS
from gen.c.text import c_type, identifier
from gen.c.value import Size, Storage, Value, extent, most, strides_of
from gen.ir.errors import GraphError
from gen.onnx.fold import Folder, budget
from gen.onnx.model import Model, Node, NodeError
from gen.onnx.passes import check, check_types, inline_functions
from gen.onnx.read import MAX_OPSET, MIN_OPSET, constants_of, nodes_of

__all__ = ["generate"]


def generate(model: onnx.ModelProto, name: str) -> CFunction:
    """A model with all its weights inside and fixed shapes, as the function ``name``; a first axis that is left open is
    1. The model is not changed.

    Raises GraphError, one line that names the node, for what there is no C for.
    """
    if identifier(name) != name or name[:1].isdigit():
        raise ValueError(f"name must be a name in C, not {name!r}")
    own = onnx.ModelProto()
    own.CopyFrom(model)
    for apply in (check, inline_functions, check_types):
        own = apply(own)
    constants, nodes = constants_of(own.graph), nodes_of(own.graph)
    opset = max((o.version for o in own.opset_import if o.domain in ("", "ai.onnx")), default=0)
    if not MIN_OPSET <= opset <= MAX_OPSET:
        raise GraphError(f"opset {opset} is not supported; convert the model to one in {MIN_OPSET}..{MAX_OPSET} "
                         "(onnx.version_converter)", code="unsupported-opset", found=opset)
    c = Context(name, opset)
    inputs = [_input(c, value, number) for number, value in enumerate(
        one for one in own.graph.input if one.name not in constants)]
    c.values.update((word, Value(array.dtype, array.shape, array=array)) for word, array in constants.items())
    outputs = [value.name for value in own.graph.output]
    folder = Folder(Model("", own, opset, nodes, constants, (), tuple(outputs), budget(constants)))
    c.uses = Counter([*outputs, *(name for node in nodes for name in node.inputs)])
    for node in _needed(nodes, outputs):
        _emit(c, node, folder)
    return _function(c, inputs, outputs)


def _needed(nodes: tuple[Node, ...], outputs: list[str]) -> list[Node]:
    wanted, found = set(outputs), []
    for node in reversed(nodes):
        if wanted & {name for name in node.outputs if name}:
            wanted |= set(node.inputs)
            found.append(node)
    return found[::-1]


def _input(c: Context, value: onnx.ValueInfoProto, number: int) -> Port:
    tensor = value.type.tensor_type
    try:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        kind = c_type(dtype)
    except (KeyError, TypeError):
        raise GraphError(f"input {value.name} has a type that C code does not take; export the model with integers of "
                         "8 to 64 bits, or float32 or double", code="value-type", input=value.name) from None
    dims = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim]
    if not tensor.HasField("shape") or any(dim < 0 for dim in dims[1:]):
        raise GraphError(f"input {value.name} has a dynamic shape; export the model with fixed input shapes",
                         code="open-shape", input=value.name)
    shape = tuple([abs(dims[0]), *dims[1:]] if dims else [])
    word = f"in{number}"
    c.values[value.name] = Value(dtype, shape, Storage(word, dtype, extent(shape), in_arena=False))
    return Port(value.name, word, kind.name, shape)


def _emit(c: Context, node: Node, folder: Folder) -> None:
    c.node = node
    try:
        kernel = OPERATORS.get((node.domain, node.op))
        if _fold(c, node, folder, needed=kernel is None):
            return
        if node.op in ("Shape", "Size") and c.input(0).known:
            _shape(c, node)
            return
        if kernel is None:
            raise c.refusal("at all")
        kernel(node, c)
    except NodeError as error:
        raise GraphError.of(error, f"{node}: {error}", node=node.name, operator=node.op) from None
    except KeyError as error:
        raise GraphError(f"{node}: values of {error} have no type in C code; export the model with numbers of 8 to 64 "
                         "bits", code="value-type", node=node.name, operator=node.op) from None


def _fold(c: Context, node: Node, folder: Folder, *, needed: bool) -> bool:
    """Whether a node's results are constants, as its inputs are. Where that cannot be computed, they become what its
    kernel makes of them when the function runs; raises NodeError if that is ``needed``.

    What is dequantised stays integers, which are smaller.
    """
    found = {name: c.values[name].array for name in node.inputs if name}
    values = {name: array for name, array in found.items() if array is not None}
    if len(values) < len(found) or node.op == "DequantizeLinear":
        return False
    try:
        results = folder(node, values)
    except NodeError:
        if needed:
            raise
        return False
    for index, array in enumerate(results):
        c.result(Value(array.dtype, array.shape, array=np.ascontiguousarray(array)), index)
    return True


def _shape(c: Context, node: Node) -> None:
    shape = c.known(c.input(0))
    ends = slice(node.attributes.get("start"), node.attributes.get("end"))
    array = np.array(shape[ends], np.int64) if node.op == "Shape" else np.array(np.prod(shape, dtype=np.int64))
    c.result(Value(array.dtype, array.shape, array=array))


def _function(c: Context, inputs: list[Port], names: list[str]) -> CFunction:
    outputs, parameters = [], [f"const {port.c_type} *{port.word}" for port in inputs]
    for _ in range(2):      # all that is pending becomes statements, then all outputs are used after the last of them
        for name in names:
            c.pointer(c.values[name])
    #: Storages that are outputs themselves.
    taken: dict[int, str] = {}
    for number, name in enumerate(names):
        value, word = c.values[name], f"out{number}"
        kind = c_type(value.dtype)
        sized = not value.known
        outputs.append(Port(name, word, kind.name, tuple(most(dim) for dim in value.shape), sized))
        parameters.append(f"{kind.name} *{word}")
        if sized:
            parameters.append(f"size_t *{word}_shape")
            for axis, dim in enumerate(value.shape):
                text = dim.text if isinstance(dim, Size) else f"{dim}u"
                c.statements.append(f"{word}_shape[{axis}] = {text};")
        storage = value.storage
        if storage is not None and storage.in_arena and id(storage) not in taken:
            for one in _in_its_place(storage):
                taken[id(one)] = word
                one.in_arena = False
                c.statements[:0] = [f"{kind.name} *const {one.name} = {word};"]
                _moved_down(c)
            continue
        target = Value(value.dtype, value.shape, Storage(word, value.dtype, extent(value.shape), in_arena=False))
        copy(c, value, target, value.shape, strides_of(value.shape), strides_of(value.shape))
    return _source(c, inputs, outputs, [*parameters, "void *arena"])


def _in_its_place(storage: Storage) -> list[Storage]:
    """What of the arena can be where an output is: itself, and what it is written over, as far as that goes."""
    found = [storage]
    while (under := next((one for one in found[-1].over if one.in_arena and one.last == found[-1].first
                          and one.count == storage.count), None)) is not None:
        found.append(under)
    return found


def _moved_down(c: Context) -> None:
    """A statement has come before all others."""
    for storage in c.storages:
        if storage.first >= 0:
            storage.first, storage.last = storage.first + 1, storage.last + 1


def _source(c: Context, inputs: list[Port], outputs: list[Port], parameters: list[str]) -> CFunction:
    placed = [storage for storage in c.storages if storage.in_arena and storage.first >= 0]
    size = place(placed)
    lines = [f"{c_type(one.dtype).name} *const {one.name} = ({c_type(one.dtype).name} *)(void *)(base + {one.offset}u);"
             for one in placed]
    lines = ["uint8_t *const base = (uint8_t *)arena;", *lines] if placed else ["(void)arena;"]
    body = "\n    ".join([*lines, *c.statements])
    words = set(re.findall(r"\w+", body))
    unused = [f"(void){port.word};" for port in inputs if port.word not in words]
    body = "\n    ".join([*unused, body]) if unused else body
    prototype = f"void {c.name}({', '.join(parameters)})"
    source = f"{prototype}\n{{\n    {body}\n}}\n"
    return CFunction(c.name, source, prototype, tuple(inputs), tuple(outputs), size, tuple(c.helpers.values()))
