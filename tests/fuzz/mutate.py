"""Mutations of files, all from one generator of random numbers."""

import io
import json
import struct
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import Message
from onnx import TensorProto, helper

from cores.arch.isa import CHAIN, HEADER, HEADER_BITS, INSTRUCTION_BYTES, LAYOUTS, Opcode
from npudriver.archive import write_archive
from tests.npu_files import resealed

__all__ = [
    "STRINGS", "mutate_bytes", "mutate_config", "mutate_json", "mutate_model", "mutate_npz", "mutate_program",
    "mutate_value",
]

Rng = np.random.Generator

_INTEGERS = [0, 1, -1, 2, 3, 7, 63, 64, 255, 256, 1023, 65535, 1 << 20, (1 << 28) - 1, (1 << 31) - 1, -(1 << 31),
             1 << 32, 1 << 40, 1 << 62, (1 << 63) - 1, -(1 << 63)]
_FLOATS = [0.0, -0.0, 1.0, -1.0, 1e-45, 1e-38, 1e38, float("inf"), float("-inf"), float("nan"), 0.5, 256.0]
STRINGS = ["", "x", "../../victim", "/tmp/victim", "\x1b[2J", "a\nb", "[/red]", "$\\frac{", "%s%n{0}", "é\u202e",
            "x" * 3000, "SAME_UPPER", "VALID", "NOTSET", "ai.onnx", "com.microsoft", "custom", "file", "label"]
_OPERATORS = [
    "Relu", "Add", "Sub", "Mul", "Div", "Neg", "Conv", "Gemm", "MatMul", "MaxPool", "AveragePool", "GlobalAveragePool",
    "GlobalMaxPool", "ReduceMean", "Clip", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Pad", "Softmax",
    "Shape", "Sign", "Where", "Greater", "Less", "Identity", "Dropout", "BatchNormalization", "QuantizeLinear",
    "DequantizeLinear", "QLinearConv", "QLinearMatMul", "QGemm", "QLinearAdd", "Constant", "ConstantOfShape", "Loop",
    "If", "Scan", "RandomUniform", "Expand", "Tile", "Range", "Resize", "Concat", "Gather", "Cast", "LSTM", "Nothing"]


def _pick(rng: Rng, items: Any) -> Any:
    return items[int(rng.integers(len(items)))]


def _integer(rng: Rng, old: int) -> int:
    return _pick(rng, [*_INTEGERS, old + 1, old - 1, 2 * old, -old, int(rng.integers(-10, 100))])


def _edit(rng: Rng, content: bytes, edits: int) -> bytes:
    data = bytearray(content)
    for _ in range(edits):
        at = int(rng.integers(len(data) + 1))
        match int(rng.integers(7)):
            case 0:
                del data[at:at + int(rng.integers(1, 20))]
            case 1:
                data[at:at] = rng.bytes(int(rng.integers(1, 20)))
            case 2:
                data[at:at + 8] = struct.pack("<Q", _pick(rng, _INTEGERS) % (1 << 64))[:len(data[at:at + 8])]
            case 3 if rng.integers(3) == 0:
                del data[at:]
            case _ if at < len(data):
                data[at] ^= 1 << int(rng.integers(8))
    return bytes(data)


def mutate_bytes(rng: Rng, content: bytes) -> bytes:
    """A few bytes changed, mostly near the beginning, where the headers are."""
    head = int(rng.choice([64, 256, 2048, len(content)]))
    return _edit(rng, content[:head], int(rng.integers(1, 5))) + content[head:]


# -- models --------------------------------------------------------------------------------------------------------


def _fields(message: Message, depth: int = 0) -> list[tuple[Message, Any]]:
    """Every field that is set, of a message and those in it; of many alike, the first few and the last."""
    found = []
    for field, value in message.ListFields():
        found.append((message, field))
        if field.type == field.TYPE_MESSAGE:
            items = [value] if isinstance(value, Message) else list(value)
            for item in items:
                found += _fields(item, depth + 1)
    return found


def _scalar(rng: Rng, field: Any, old: Any, strings: list[str]) -> Any:
    if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        return _pick(rng, _FLOATS)
    if field.type == field.TYPE_STRING:
        return _pick(rng, strings if rng.integers(2) else STRINGS)
    if field.type == field.TYPE_BYTES:
        return _pick(rng, [b"", old + old, old[:-1], old[:len(old) // 2], _edit(rng, old, 2), bytes(len(old))])
    if field.type == field.TYPE_ENUM:
        return _pick(rng, [value.number for value in field.enum_type.values])
    value = _integer(rng, old)
    bits = 32 if field.type == field.TYPE_INT32 else 64
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1) if field.type in (
        field.TYPE_INT32, field.TYPE_INT64) else value % (1 << bits)


def _mutate_field(rng: Rng, message: Message, field: Any, strings: list[str]) -> None:
    value = getattr(message, field.name)
    if not hasattr(value, "__len__") or isinstance(value, str | bytes):
        if isinstance(value, Message) or rng.integers(8) == 0:
            message.ClearField(field.name)
        else:
            setattr(message, field.name, _scalar(rng, field, value, strings))
        return
    at = int(rng.integers(len(value)))
    match int(rng.integers(5)):
        case 0:
            del value[at]
        case 1 if field.type == field.TYPE_MESSAGE:
            value.add().CopyFrom(value[at])
        case 1:
            value.append(value[at])
        case 2 if field.type == field.TYPE_MESSAGE:
            other = int(rng.integers(len(value)))
            kept = type(value[at])()
            kept.CopyFrom(value[at])
            value[at].CopyFrom(value[other])
            value[other].CopyFrom(kept)
        case 3 if rng.integers(4) == 0:
            del value[:]
        case _ if field.type != field.TYPE_MESSAGE:
            value[at] = _scalar(rng, field, value[at], strings)


def _strings(model: onnx.ModelProto) -> list[str]:
    graph = model.graph
    return [*{name for node in graph.node for name in (*node.input, *node.output)},
            *(value.name for value in (*graph.input, *graph.output, *graph.initializer))] or [""]


def _change_node(rng: Rng, model: onnx.ModelProto) -> None:
    node = _pick(rng, model.graph.node)
    if rng.integers(3):
        node.op_type = _pick(rng, _OPERATORS)
    else:
        node.domain = _pick(rng, ["custom", "com.microsoft", "ai.onnx", "ai.onnx.ml"])


def _insert_node(rng: Rng, model: onnx.ModelProto) -> None:
    """An operator in the way of a value."""
    node = _pick(rng, model.graph.node)
    if not node.input:
        return
    at = int(rng.integers(len(node.input)))
    names = [node.input[at], *(_pick(rng, _strings(model)) for _ in range(int(rng.integers(3))))]
    new = helper.make_node(_pick(rng, _OPERATORS), names, ["inserted"], name=_pick(rng, ["inserted", node.name]))
    node.input[at] = "inserted"
    model.graph.node.insert(list(model.graph.node).index(node), new)


def _change_shape(rng: Rng, model: onnx.ModelProto) -> None:
    value = _pick(rng, [*model.graph.input, *model.graph.output])
    dims = value.type.tensor_type.shape.dim
    if not len(dims):
        return
    if rng.integers(5) == 0:
        dims.add().dim_value = _pick(rng, _INTEGERS)
    elif rng.integers(5) == 0:
        _pick(rng, dims).dim_param = "N"
    else:
        dim = _pick(rng, dims)
        dim.dim_value = min(max(_integer(rng, dim.dim_value), -(1 << 63)), (1 << 63) - 1)


def _change_constant(rng: Rng, model: onnx.ModelProto) -> None:
    if not len(model.graph.initializer):
        return
    tensor = _pick(rng, model.graph.initializer)
    match int(rng.integers(4)):
        case 0:
            tensor.data_type = _pick(rng, list(TensorProto.DataType.values()))
        case 1 if tensor.dims:
            at = int(rng.integers(len(tensor.dims)))
            tensor.dims[at] = min(max(_integer(rng, tensor.dims[at]), -(1 << 63)), (1 << 63) - 1)
        case 2 if tensor.data_type == TensorProto.FLOAT and tensor.raw_data:
            numbers = np.frombuffer(tensor.raw_data, np.float32).copy()
            numbers[rng.integers(len(numbers))] = _pick(rng, _FLOATS)
            tensor.raw_data = numbers.tobytes()
        case _:
            tensor.raw_data = _edit(rng, tensor.raw_data, 3)


def _unused_constant(rng: Rng, model: onnx.ModelProto) -> None:
    """Nodes of constants, some of which have no end or no size."""
    def constant(value: Any, name: str) -> None:
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))

    number = int(rng.integers(1 << 30))
    names = [f"u{number}_{i}" for i in range(3)]
    size = _pick(rng, [3, 40_000, 1 << 31, 1 << 62])
    match int(rng.integers(5)):
        case 0:
            constant(np.array([size, size]), names[0])
            node = helper.make_node("ConstantOfShape", names[:1], [names[2]])
        case 1:
            constant(size, names[0])
            constant(True, names[1])
            body = helper.make_graph(
                [helper.make_node("Identity", ["on"], ["still"])], "body",
                [helper.make_tensor_value_info("i", TensorProto.INT64, []),
                 helper.make_tensor_value_info("on", TensorProto.BOOL, [])],
                [helper.make_tensor_value_info("still", TensorProto.BOOL, [])])
            node = helper.make_node("Loop", names[:2], [], body=body)
        case 2:
            constant(np.zeros(1), names[0])
            constant(np.array([size]), names[1])
            node = helper.make_node(_pick(rng, ["Expand", "Tile"]), names[:2], [names[2]])
        case 3:
            constant(0, names[0])
            constant(size, names[1])
            constant(1, f"{names[0]}_step")
            node = helper.make_node("Range", [*names[:2], f"{names[0]}_step"], [names[2]])
        case _:
            node = helper.make_node("RandomUniform", [], [names[2]], shape=[size, 3])
    model.graph.node.insert(0, node)


def mutate_model(rng: Rng, content: bytes) -> bytes:
    """Nodes, attributes, shapes, types, constants, domains, any field of the file; or its bytes."""
    if rng.integers(6) == 0:
        return mutate_bytes(rng, content)
    model = onnx.load_model_from_string(content)
    changes: list[Callable[[Rng, onnx.ModelProto], None]] = [
        _change_node, _insert_node, _change_shape, _change_constant, _unused_constant]
    for _ in range(int(rng.choice([1, 1, 1, 2, 4]))):
        if rng.integers(2):
            message, field = _pick(rng, _fields(model))
            _mutate_field(rng, message, field, _strings(model))
        elif len(model.graph.node):
            _pick(rng, changes)(rng, model)
    return model.SerializeToString()


# -- archives ------------------------------------------------------------------------------------------------------


def _members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _archive(rng: Rng, members: dict[str, bytes]) -> bytes:
    """A zip file of members; now and then one that is damaged or lies."""
    buffer = io.BytesIO()
    method = zipfile.ZIP_LZMA if rng.integers(20) == 0 else int(rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    content = buffer.getvalue()
    if rng.integers(10):
        return content
    at = max(0, content.rfind(b"PK\x01\x02")) if rng.integers(2) else 0
    return content[:at] + _edit(rng, content[at:], 3)


def _change_members(rng: Rng, members: dict[str, bytes]) -> None:
    name = _pick(rng, list(members))
    match int(rng.integers(5)):
        case 0:
            del members[name]
        case 1:
            members[f"{_pick(rng, STRINGS)}{name}"] = members.pop(name)
        case 2:
            members[name] = bytes(int(rng.choice([0, 1, 1000, 1 << 26])))
        case 3:
            members[_pick(rng, STRINGS) or "y"] = bytes(1 << 26)
        case _:
            members[name] = mutate_bytes(rng, members[name])


def mutate_npz(rng: Rng, content: bytes) -> bytes:
    """Headers, data, members or the archive."""
    if rng.integers(4) == 0:
        return mutate_bytes(rng, content)
    members = _members(content)
    if rng.integers(2):
        name = _pick(rng, list(members))
        shape = [_pick(rng, [_pick(rng, _INTEGERS), 2]), *(_pick(rng, [1, 3, 8, 16]) for _ in range(3))]
        dtype = _pick(rng, ["|i1", "<f4", "<f8", ">f4", "|O", "<c8", "<U4", "|V8", "<M8[s]", "[('a', '<f4')]", "<f2"])
        header = f"{{'descr': {dtype!r}, 'fortran_order': {bool(rng.integers(2))}, 'shape': {tuple(shape)}}}"
        members[name] = (b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
                         + members[name][128:])
    else:
        _change_members(rng, members)
    return _archive(rng, members)


# -- JSON ----------------------------------------------------------------------------------------------------------


def _place(rng: Rng, value: Any) -> tuple[Any, Any]:
    """(container, key) of something in a JSON value that is not empty; every field of it is as likely."""
    key = _pick(rng, list(value) if isinstance(value, dict) else range(len(value)))
    deeper = isinstance(value[key], dict | list) and len(value[key]) and rng.integers(6)
    return _place(rng, value[key]) if deeper else (value, key)


def mutate_value(rng: Rng, value: Any) -> None:
    container, key = _place(rng, value)
    old = container[key]
    others = [None, True, False, "", "x", [], {}, [old], {"a": old}, *_FLOATS, 10 ** 4000, _pick(rng, STRINGS)]
    match int(rng.integers(8)):
        case 0:
            del container[key]
        case 1 if isinstance(container, dict):
            container[_pick(rng, STRINGS)] = container.pop(key)
        case 1:
            container.append(old)
        case 2:
            container[key] = _pick(rng, others)
        case 3:
            container[key] = _pick(rng, [container[other] for other in (
                container if isinstance(container, dict) else range(len(container)))])
        case _ if isinstance(old, int | float):
            container[key] = _integer(rng, int(np.nan_to_num(old)))
        case _ if isinstance(old, str):
            container[key] = _pick(rng, STRINGS)


def mutate_json(rng: Rng, content: bytes, without: tuple[str, ...]) -> bytes:
    """Values or fields of an object, but for those named."""
    whole = json.loads(content)
    values = {name: value for name, value in whole.items() if name not in without}
    for _ in range(int(rng.choice([1, 1, 2]))):
        if values:
            mutate_value(rng, values)
    return json.dumps({**values, **{name: whole[name] for name in without if name in whole}}).encode()


def mutate_config(rng: Rng, content: str) -> bytes:
    """Values, fields, or bytes of a configuration; most remain JSON."""
    if rng.integers(8) == 0:
        return mutate_bytes(rng, content.encode())
    if rng.integers(20) == 0:
        return content.replace(": ", f": {'9' * 5000}", 1).encode()
    values = json.loads(content)
    for _ in range(int(rng.choice([1, 1, 2, 3]))):
        if rng.integers(3):
            key = _pick(rng, list(values) or [""])
            old = values.get(key)
            if rng.integers(2) and isinstance(old, int):    # what may well be legal: most get past the door
                values[key] = _pick(rng, [2 * old, old // 2, 1 - old if old in (0, 1) else old])
            else:
                values[key] = _pick(rng, [1 << int(rng.integers(15)), int(rng.integers(4)), _integer(rng, 8)])
        elif values:
            mutate_value(rng, values)
    return json.dumps(values).encode()


# -- programs ------------------------------------------------------------------------------------------------------


#: Bits of an instruction's opcode.
_OPCODE = (1 << HEADER[0].bits) - 1


def _another_operation(rng: Rng, word: int) -> int:
    """One of a chain in an instruction's place, with its fields as far as it has any there."""
    opcode = _pick(rng, CHAIN)
    used = (1 << HEADER_BITS + sum(field.bits for field in LAYOUTS[opcode])) - 1
    return word & used & ~_OPCODE | opcode


def _another_field(rng: Rng, word: int) -> int:
    """An instruction with a token or a field set to what is mostly legal; often one with few choices."""
    fields = (*HEADER, *LAYOUTS[Opcode(word & _OPCODE)])
    few = [index for index, field in enumerate(fields) if index >= len(HEADER) and (field.bits == 1 or field.kinds)]
    chosen = _pick(rng, few) if few and rng.integers(2) else int(rng.integers(1, len(fields)))
    place, kinds = sum(field.bits for field in fields[:chosen]), fields[chosen].kinds
    mask = (1 << fields[chosen].bits) - 1
    new = _pick(rng, kinds) if kinds and rng.integers(4) else _integer(rng, word >> place & mask) & mask
    return word & ~(mask << place) | int(new) << place


def _mutate_code(rng: Rng, code: bytes) -> bytes:
    """Fields set to what is legal, tokens and instructions moved, operations of chains exchanged, or bits."""
    data = bytearray(code)
    for _ in range(int(rng.choice([1, 1, 2, 4]))):
        at = int(rng.integers(len(data) // INSTRUCTION_BYTES)) * INSTRUCTION_BYTES
        word = int.from_bytes(data[at:at + INSTRUCTION_BYTES], "little")
        match int(rng.integers(4)):
            case 0:
                word ^= 1 << int(rng.integers(128))
            case 1:
                other = int(rng.integers(len(data) // INSTRUCTION_BYTES)) * INSTRUCTION_BYTES
                word = int.from_bytes(data[other:other + INSTRUCTION_BYTES], "little")
            case 2 if word & _OPCODE in CHAIN:
                word = _another_operation(rng, word)
            case _ if word & _OPCODE in list(Opcode):
                word = _another_field(rng, word)
        data[at:at + INSTRUCTION_BYTES] = word.to_bytes(INSTRUCTION_BYTES, "little")
    return bytes(data)


def mutate_program(rng: Rng, content: bytes) -> bytes:
    """Headers, code, constants, the model inside, members or the archive; mostly with digests that are right again."""
    members = _members(content)
    match int(rng.integers(10)):
        case 0:
            return mutate_bytes(rng, content)
        case 1:
            _change_members(rng, members)
        case 2:
            members["program0/model.onnx"] = mutate_model(rng, members["program0/model.onnx"])
        case 3 | 4 | 5:
            name = str(rng.choice([name for name in members if name.endswith(".json")]))
            header = json.loads(members[name])
            for _ in range(int(rng.choice([1, 1, 2]))):
                if header:
                    mutate_value(rng, header)
            members[name] = json.dumps(header).encode()
        case _:
            members["program0/code.bin"] = _mutate_code(rng, members["program0/code.bin"])
    if rng.integers(8):
        members = resealed(members)
    return bytes(write_archive(members, plain=members)) if rng.integers(8) else _archive(rng, members)
