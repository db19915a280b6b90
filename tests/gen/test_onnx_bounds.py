"""What a model may cost its reader: constants within a budget, no control flow, no file but those beside it."""

import os
import tracemalloc
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from time import process_time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import set_external_data

from gen.ir.errors import GraphError
from gen.onnx import fold
from gen.onnx.importer import load, load_model
from tests.gen.qdq import Builder

Rng = np.random.Generator


def refuse(path: Path, *words: str) -> None:
    """The line is about the limit and what is beyond it."""
    with pytest.raises(GraphError) as caught:
        load(path)
    message = str(caught.value)
    assert caught.value.code and str(path) in message and "\n" not in message
    for word in words:
        assert word in message, message


def network(b: Builder, bias: str | None = None) -> Builder:
    x = b.dequantize(b.input(1, 3, 6, 6))
    b.output(b.quantize(b.node("Conv", x, b.weights(4, 3, 3, 3), *([bias] if bias else []))))
    return b


def _first_four(b: Builder, value: str) -> str:
    flat = b.node("Reshape", value, b.constant([-1]))
    return b.node("Slice", flat, b.constant([0]), b.constant([4]))


def _loop(b: Builder) -> str:
    def info(name: str, number: int, shape: list[int]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, number, shape)

    nodes = [helper.make_node("Identity", [name], [f"{name}_next"]) for name in ("again", "value")]
    body = helper.make_graph(
        nodes, "body",
        [info("i", TensorProto.INT64, []), info("again", TensorProto.BOOL, []), info("value", TensorProto.FLOAT, [4])],
        [info("again_next", TensorProto.BOOL, []), info("value_next", TensorProto.FLOAT, [4])])
    return b.node("Loop", b.constant(1000), b.constant(np.array(True)), b.constant(np.ones(4, np.float32)), body=body)


def _ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def _doubled(b: Builder) -> str:
    value = b.constant(_ones(4))
    for _ in range(16):
        value = b.node("Concat", value, value, axis=0)
    return value


SIZE = 300      # squared, more than the budget that the test sets
#: A constant, and a word of the message.
COSTLY: dict[str, tuple[Callable[[Builder], str], str]] = {
    "ConstantOfShape": (lambda b: b.node("ConstantOfShape", b.constant([SIZE, SIZE])), "360,000 bytes"),
    "Expand": (lambda b: b.node("Expand", b.constant(_ones(1)), b.constant([SIZE, SIZE])), "360,000 bytes"),
    "Tile": (lambda b: b.node("Tile", b.constant(_ones(4)), b.constant([SIZE * SIZE])), "1,440,000 bytes"),
    "Range": (lambda b: b.node("Cast", b.node("Range", *(b.constant(n) for n in (0, SIZE * SIZE, 1))), to=1), "bytes"),
    "Range without end": (lambda b: b.node("Range", *(b.constant(np.float32(n)) for n in (0, 1, 0))), "cannot be"),
    "Pad": (lambda b: b.node("Pad", b.constant(_ones(4)), b.constant([0, SIZE * SIZE])), "360,016 bytes"),
    "Mul": (lambda b: b.node("Mul", b.constant(_ones(SIZE, 1)), b.constant(_ones(1, SIZE))), "360,000 bytes"),
    "OneHot": (lambda b: b.node("OneHot", b.constant([1]), b.constant(SIZE * SIZE), b.constant(_ones(2))), "bytes"),
    "Gather": (lambda b: b.node("Gather", b.constant(_ones(1, 9)), b.constant(np.zeros(20_000, np.int64))), "bytes"),
    "Concat": (_doubled, "left"),
    "Loop": (_loop, "Loop is not evaluated"),
    "RandomUniform": (lambda b: b.node("RandomUniform", shape=[4]), "RandomUniform is not evaluated"),
    "MatMul": (lambda b: b.node("MatMul", b.constant(_ones(SIZE, 1)), b.constant(_ones(1, SIZE))), "360,000 bytes"),
    "Einsum": (lambda b: b.node("Einsum", b.constant(_ones(4)), equation="a->a"), "Einsum is not evaluated"),
    "Resize": (lambda b: b.node("Resize", b.constant(_ones(1, 1, 4, 4)), "", b.constant(np.float32([1, 1, 9, 9]))),
               "bytes"),
}


@pytest.mark.parametrize("name", COSTLY)
def test_constants_have_a_budget(name: str, rng: Rng, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before it is computed where an output needs it, nothing at all where none does."""
    monkeypatch.setattr(fold, "_FLOOR", 60_000)
    monkeypatch.setattr(fold, "_SHARE", 1)
    make, word = COSTLY[name]
    b = Builder(rng)
    refuse(network(b, _first_four(b, make(b))).save(tmp_path), f"node {name.split()[0].lower()}", word)

    def nothing(*_: object) -> None:
        raise AssertionError("evaluated")

    monkeypatch.setattr(fold, "evaluate", nothing)
    b = Builder(rng)
    make(b)
    assert len(load(network(b).save(tmp_path)).layers) == 1


@pytest.mark.parametrize("op", ["MatMul", "Conv", "AveragePool"])
def test_constants_are_not_multiplied_for_ever(op: str, rng: Rng, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                               ) -> None:
    """What is little to read may be much to compute."""
    monkeypatch.setattr(fold, "_READ_FLOOR", 1 << 20)
    monkeypatch.setattr(fold, "_READ_SHARE", 0)
    for size, refused in ((4, False), (128, True)):
        b = Builder(rng)
        one = b.constant(_ones(1, 1, size, size))
        value = b.node(op, one, kernel_shape=[size // 2] * 2) if op == "AveragePool" else b.node(op, one, one)
        path = network(b, _first_four(b, b.node("Concat", *[value] * 4, axis=0))).save(tmp_path)
        if refused:
            refuse(path, f"node {op.lower()}", "may read (docs/models.md)")
        else:
            assert load(path).layers


def test_constants_are_not_read_for_ever(rng: Rng, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large constant, and any number of nodes that make a small one of it."""
    monkeypatch.setattr(fold, "_READ_FLOOR", 60_000)
    monkeypatch.setattr(fold, "_READ_SHARE", 0)
    for times, refused in ((3, False), (4, True)):
        b = Builder(rng)
        value = b.node("ConstantOfShape", b.constant([4000]))
        total = b.node("ReduceSum", value)
        for _ in range(times - 1):
            total = b.node("Add", total, b.node("ReduceSum", value))
        path = network(b, b.node("Expand", total, b.constant([4]))).save(tmp_path)
        if refused:
            refuse(path, "node reducesum", "may read (docs/models.md)")
        else:
            assert load(path).layers


def rearranged(b: Builder, size: int, times: int) -> Builder:
    """A layer, and its output turned over and over."""
    y = b.quantize(b.node("Conv", b.dequantize(b.input(1, 8, size, size)), b.weights(8, 8, 1, 1)))
    for _ in range(times):
        y = b.node("Reshape", b.node("Transpose", y, perm=[0, 1, 3, 2]), b.constant([1, size, size, 8]))
        y = b.node("Reshape", y, b.constant([1, 8, size, size]))
    b.output(y)
    return b


def test_arrangements_go_with_their_last_reader(rng: Rng, tmp_path: Path) -> None:
    """Each takes eight bytes for a value: half a megabyte here, many times."""
    path = rearranged(Builder(rng), 90, 50).save(tmp_path)
    tracemalloc.start()
    try:
        load(path)
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("bound", "words"), [
    ("gen.onnx.importer._MAX_NODE_VALUES", ("node transpose", "the results of the nodes up to here")),
    ("gen.onnx.builder._MAX_LAYER_VALUES", ("the feature maps up to that of conv",))])
def test_feature_maps_have_a_bound(bound: str, words: tuple[str, ...], rng: Rng, tmp_path: Path,
                                   monkeypatch: pytest.MonkeyPatch) -> None:
    path = rearranged(Builder(rng), 10, 5).save(tmp_path)
    layers = bound.endswith("_MAX_LAYER_VALUES")
    monkeypatch.setattr(bound, 800 if layers else 10_000)
    if layers:
        assert load(path).layers
        monkeypatch.setattr(bound, 799)
    refuse(path, *words)


def test_modest_constants_are_folded(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    assert load(network(b, _first_four(b, COSTLY["Mul"][0](b))).save(tmp_path)).layers


def _reversed(b: Builder, x: str) -> str:
    """The last channel first."""
    return b.node("Slice", x, *(b.constant([number]) for number in (-1, -2**31, 1, -1)))


def test_padding_has_a_bound(rng: Rng, tmp_path: Path) -> None:
    """Which taps see nothing else is known without a look at each place of the kernel."""
    b = Builder(rng)
    x = b.dequantize(b.input(1, 1, 1, 64))
    b.output(b.quantize(b.node("Conv", x, b.weights(1, 1, 1, 5000), pads=[0, 1 << 22, 0, 1 << 22])))
    start = process_time()
    refuse(b.save(tmp_path), "its padding")
    assert process_time() - start < 30


@pytest.mark.slow
@pytest.mark.parametrize(("make", "words"), [
    (lambda b: b.node("Conv", b.dequantize(b.input(1, 3, 6, 6)), b.weights(4, 3, 3, 3), pads=[2**40] * 4), ("pixels",)),
    (lambda b: b.node("AveragePool", b.dequantize(b.input(1, 3, 6, 6)), kernel_shape=[2, 2], pads=[2**40] * 4),
     ("averagepool", "pixels")),
    (lambda b: b.node("Conv", b.dequantize(b.input(1, 3, 2048, 2048)), b.weights(64, 3, 1, 1)), ("268,435,456",)),
    (lambda b: b.node("Conv", b.dequantize(b.input(1, 2**15, 1, 1)), b.weights(2**16, 1, 1, 1), group=2**15),
     ("32768 groups", "weights")),
    (lambda b: b.node("MaxPool", _reversed(b, b.requantize(b.node("Relu", b.dequantize(
        b.input(1, 2**15, 1, 1))))), kernel_shape=[1, 1]),
     ("32,768 channels", "outputs of the model")),
    (lambda b: b.node("Conv", b.dequantize(b.input(1, 3, 2**62, 2)), b.weights(4, 3, 3, 3)),
     ("input x", "values a sample")),
])
def test_layers_have_a_bound(make: Callable[[Builder], str], words: tuple[str, ...], rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    b.output(b.quantize(make(b)))
    refuse(b.save(tmp_path), *words)


@pytest.mark.parametrize("changes", ["many", "few"])
def test_functions_that_call_each_other(changes: str, rng: Rng, tmp_path: Path) -> None:
    """Thirty functions that each call the next one twice are half a billion nodes."""
    b = Builder(rng)
    b.output(b.quantize(b.node("f0", b.node("Conv", b.dequantize(b.input(1, 3, 6, 6)), b.weights(4, 3, 3, 3)),
                               domain="mine")))
    model, depth = b.build(), 30 if changes == "many" else 5
    opsets = [helper.make_opsetid("", b.opset), helper.make_opsetid("mine", 1)]
    model.opset_import.append(opsets[1])
    for i in range(depth):
        calls = [helper.make_node(f"f{i + 1}", [a], [c], domain="mine") for a, c in (("a", "b"), ("b", "c"))]
        if i == depth - 1:
            calls = [helper.make_node("Identity", ["a"], ["c"])]
        model.functions.append(helper.make_function("mine", f"f{i}", ["a"], ["c"], calls, opsets))
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    if changes == "few":
        assert load(path).layers
        return
    refuse(path, f"{2**29 + len(model.graph.node) - 1:,} nodes, functions inlined")


@pytest.mark.parametrize("calls", [2, 5])
def test_constants_in_functions(calls: int, rng: Rng, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inlining copies them with every call: a megabyte can become gigabytes."""
    monkeypatch.setattr(import_module("gen.onnx.passes.bound_size"), "_MAX_INLINED", 20_000)
    b = Builder(rng)
    y = b.node("Conv", b.dequantize(b.input(1, 3, 6, 6)), b.weights(4, 3, 3, 3))
    for _ in range(calls):
        y = b.node("heavy", y, domain="mine")
    b.output(b.quantize(y))
    model, opsets = b.build(), [helper.make_opsetid("", 13), helper.make_opsetid("mine", 1)]
    model.opset_import.append(opsets[1])
    model.functions.append(helper.make_function("mine", "heavy", ["a"], ["c"], [
        helper.make_node("Constant", [], ["unused"], value=numpy_helper.from_array(_ones(1000))),
        helper.make_node("Identity", ["a"], ["c"])], opsets))
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    if calls == 2:
        assert load(path).layers
    else:
        refuse(path, "the model's functions have 2", "bytes, inlined")


def test_function_that_calls_itself(rng: Rng, tmp_path: Path) -> None:
    model = network(Builder(rng)).build()
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("mine", 1)]
    model.opset_import.append(opsets[1])
    model.functions.append(helper.make_function(
        "mine", "f", ["a"], ["b"], [helper.make_node("f", ["a"], ["b"], domain="mine")], opsets))
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    refuse(path, "a function of it calls itself")


def test_too_many_nodes(rng: Rng, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("gen.onnx.passes.bound_size"), "_MAX_NODES", 3)
    refuse(network(Builder(rng)).save(tmp_path), "has 4 nodes")


def test_sparse_initializer_that_is_enormous(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    model = network(b, "sparse").build()
    values = helper.make_tensor("sparse", TensorProto.FLOAT, [1], [1.0])
    indices = helper.make_tensor("indices", TensorProto.INT64, [1], [2])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2**40]))
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    refuse(path, "1,099,511,627,776 elements")


@pytest.mark.parametrize(("change", "words"), [
    (lambda t: t.dims.__setitem__(0, 2**40), ("c3",)),
    (lambda t: t.dims.__setitem__(0, -4), ("c3",)),
    (lambda t: (setattr(t, "data_type", TensorProto.STRING), t.ClearField("raw_data"),
                t.string_data.extend([b"a"] * 108)), ("string",)),
])
def test_initializers_that_are_not_what_they_say(change: Callable, words: tuple[str, ...], rng: Rng,
                                                 tmp_path: Path) -> None:
    model = network(Builder(rng)).build()
    change(next(t for t in model.graph.initializer if len(t.dims) == 4))
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    refuse(path, *words)


# -- weights in other files ----------------------------------------------------------------------------------------


def _external(rng: Rng, path: Path, location: str, **where: int) -> bytes:
    """Save a model whose weights are kept at ``location``; returns them."""
    model = network(Builder(rng)).build()
    tensor = next(t for t in model.graph.initializer if len(t.dims) == 4)
    raw = bytes(tensor.raw_data)
    set_external_data(tensor, location, **where)
    tensor.ClearField("raw_data")
    path.write_bytes(model.SerializeToString())
    return raw


def test_weights_beside_the_model(rng: Rng, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    raw = _external(rng, path, "weights.bin", offset=16)
    (tmp_path / "weights.bin").write_bytes(bytes(16) + raw + bytes(1000))
    weights = load(path).layers[0].weights    # type: ignore[union-attr]
    assert weights.astype(np.int8).tobytes() == raw


@pytest.mark.parametrize("location", [
    "../weights.bin", "absolute", "link", "folder/weights.bin", "missing", "pipe", ""])
def test_weights_elsewhere(location: str, rng: Rng, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    os.symlink("../weights.bin", folder / "link")
    os.symlink("..", folder / "folder")
    os.mkfifo(folder / "pipe")
    path = folder / "model.onnx"
    raw = _external(rng, path, str(tmp_path / "weights.bin") if location == "absolute" else location)
    (tmp_path / "weights.bin").write_bytes(raw)
    refuse(path, "initializer c3", "no file in the model's folder")


def test_weights_of_another_size(rng: Rng, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    raw = _external(rng, path, "weights.bin", length=1 << 40)
    (tmp_path / "weights.bin").write_bytes(raw)
    refuse(path, "initializer c3 needs 108 bytes, and names 1099511627776")
    raw = _external(rng, path, "weights.bin", offset=1)
    refuse(path, "not a whole one")


def test_weights_elsewhere_in_a_node(rng: Rng, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the file is there: in the folder where the command was given."""
    monkeypatch.chdir(tmp_path)
    Path("bias.bin").write_bytes(bytes(16))
    tensor = numpy_helper.from_array(np.zeros(4, np.float32))
    set_external_data(tensor, "bias.bin")
    tensor.ClearField("raw_data")
    b = Builder(rng)
    path = network(b, b.node("Constant", value=tensor)).save(tmp_path)
    with pytest.raises(GraphError, match="a constant of a node is kept in another file"):
        load(path)


def test_model_inside_another_file(rng: Rng, tmp_path: Path) -> None:
    """It is named by that file, and has no folder to take weights from."""
    path, outer = tmp_path / "model.onnx", tmp_path / "outer.npu"
    raw = _external(rng, path, "weights.bin")
    (tmp_path / "weights.bin").write_bytes(raw)
    for content, message in ((path.read_bytes(), "weights in another file"), (b"none", "the model inside is damaged")):
        with pytest.raises(GraphError) as caught:
            load_model(outer, content)
        assert str(caught.value).startswith(f"{outer}: ") and message in str(caught.value)
    whole = network(Builder(rng)).build().SerializeToString()
    assert load_model(outer, whole).model.path == str(outer)
