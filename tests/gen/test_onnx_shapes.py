"""Inputs that a model leaves open, and fixed batches: both become models of one sample."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from gen.cli import main, make_parser
from gen.ir import reference
from gen.ir.errors import GraphError
from gen.onnx.importer import load, load_model
from gen.onnx.passes import bind_shapes, free_batch
from tests.errors import raises
from tests.gen.float_models import FloatBuilder
from tests.gen.qdq import Builder
from tests.gen.test_onnx_import import check

Rng = np.random.Generator
BATCH = 3


def features(b: Builder, *shape: int | str) -> str:
    return b.requantize(b.node("Conv", b.dequantize(b.input(*shape)), b.weights(4, 3, 3, 3)))


def classes(b: Builder, y: str) -> None:
    b.output(b.quantize(b.node("Gemm", y, b.weights(64, 10, axis=1), b.bias(10)), 0.05), rank=2)


def _dynamic_shape(b: Builder, y: str) -> str:
    samples = b.node("Unsqueeze", b.node("Gather", b.node("Shape", y), b.constant(0)), b.constant([0]))
    return b.node("Reshape", y, b.node("Concat", samples, b.constant([-1]), axis=0))


def _constant_node(b: Builder, y: str) -> str:
    shape = onnx.numpy_helper.from_array(np.array([BATCH, 64]))
    return b.node("Reshape", y, b.node("Constant", value=shape))


FLAT: dict[str, Callable[[Builder, str], str]] = {
    "the batch and -1": lambda b, y: b.node("Reshape", y, b.constant([BATCH, -1])),
    "all sizes": lambda b, y: b.node("Reshape", y, b.constant([BATCH, 64])),
    "-1 for the batch": lambda b, y: b.node("Reshape", y, b.constant([-1, 64])),
    "a Constant": _constant_node,
    "computed": _dynamic_shape,
    "Flatten": lambda b, y: b.node("Flatten", y),
    "no copies of axes": lambda b, y: b.node("Reshape", y, b.constant([BATCH, 64]), allowzero=1),
}


@pytest.mark.parametrize("flat", FLAT)
def test_fixed_batch(flat: str, rng: Rng, tmp_path: Path) -> None:
    """What onnxruntime makes of the batch is what the samples become one by one."""
    b = Builder(rng, opset=14)
    classes(b, FLAT[flat](b, features(b, BATCH, 3, 6, 6)))
    path, samples = b.save(tmp_path), b.samples(BATCH)
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    (theirs,) = session.run(None, samples)
    check(b, tmp_path)
    (ours,) = reference.run(load(path), samples)[0].values()
    assert ours.shape == theirs.shape == (BATCH, 10)
    assert np.abs(ours.astype(int) - theirs).max() <= 2


MIXED: dict[str, Callable[[Builder, str], str]] = {
    "one row": lambda b, y: b.node("Reshape", y, b.constant([1, -1])),
    "rows": lambda b, y: b.node("Reshape", y, b.constant([-1, 16])),
    "Flatten": lambda b, y: b.node("Flatten", y, axis=0),
    "Transpose": lambda b, y: b.node("Transpose", y, perm=[1, 0, 2, 3]),
    "first": lambda b, y: b.node("Slice", y, b.constant([0]), b.constant([1]), b.constant([0])),
    "Gather": lambda b, y: b.node("Gather", y, b.constant([0]), axis=0),
    "transA": lambda b, y: b.node("Gemm", b.node("Flatten", y), b.weights(3, 5, axis=1), transA=1),
    "mean": lambda b, y: b.node("ReduceMean", y, axes=[0, 2, 3]),
    "torn": lambda b, y: b.node("Transpose", b.node("Reshape", y, b.constant([108, -1])), perm=[1, 0]),
    "sums": lambda b, y: b.node("CumSum", y, b.constant(np.array(0))),
    "turned": lambda b, y: b.node("Slice", y, *map(b.constant, ([-1], [-99], [0], [-1]))),
    "unknown": lambda b, y: b.node("QLinearLeakyRelu", b.node("QuantizeLinear", y, b.scale(1), b.point(0)), b.scale(1),
                                    b.point(0), b.scale(1), b.point(0), domain="com.microsoft"),
}


@pytest.mark.parametrize("form", MIXED)
def test_batches_that_are_mixed(form: str, rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng, opset=14)
    b.output(MIXED[form](b, features(b, BATCH, 3, 6, 6)), np.float32)
    with raises(GraphError, "fixed-batch", match=f"batch of {BATCH}"):
        load(b.save(tmp_path))


def test_inputs_of_different_batches(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    one, two = (b.dequantize(b.input(size, 4, 5, 5, name=f"x{size}")) for size in (1, BATCH))
    b.output(b.quantize(b.node("Add", one, two)))
    assert {name: value.shape for name, value in load(b.save(tmp_path)).tensors.items() if "x" in name} == {
        "x1": (4, 5, 5), f"x{BATCH}": (4, 5, 5)}


def test_reshapes_of_weights_are_none_of_the_batch(rng: Rng) -> None:
    b = Builder(rng)
    weights = b.node("Reshape", b.constant(np.ones((1, 27), np.int8)), b.constant([BATCH, 9]))
    y = b.node("Flatten", b.dequantize(b.input(BATCH, 3, 3, 1)))
    b.output(b.quantize(b.node("Gemm", y, b.node("DequantizeLinear", weights, b.scale(0.1)), transB=1)), rank=2)
    after = free_batch(b.build())
    assert [node.input[1] for node in after.graph.node if node.op_type == "Reshape"] == [b.nodes[0].input[1]]
    assert after.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "samples"


def open_model(b: Builder, *names: str) -> None:
    """Inputs of open height and width, added up, after a mean: any size goes."""
    values = [b.dequantize(b.input("N", 3, "height", "width", name=name), 0.05, 0) for name in names]
    total = values[0] if len(values) == 1 else b.requantize(b.node("Add", *values), 0.1, 0)
    y = b.requantize(b.node("Conv", total, b.weights(4, 3, 3, 3)))
    b.output(b.quantize(b.node("GlobalAveragePool", y), 0.02))


@pytest.mark.parametrize("shape", [(1, 3, 6, 7), (5, 3, 6, 7), (3, 6, 7)])
def test_shapes_are_bound(shape: tuple[int, ...], rng: Rng, tmp_path: Path) -> None:
    """By all names that the model has for them."""
    b = Builder(rng)
    open_model(b, "x", "y")
    imported = load_model(b.save(tmp_path), shapes={"y": shape})
    assert [value.shape for value in imported.model.inputs] == 2 * [(1, 3, 6, 7)]


def test_shape_of_an_input_that_is_taken_whole(rng: Rng) -> None:
    """With the samples in front of all of its axes, as samples have it. A number without axes has none, but a value."""
    b = FloatBuilder(rng, ["batch", 4])
    value = helper.make_tensor_value_info
    graph = helper.make_graph([helper.make_node("Identity", ["state"], ["y"])], "state", [
        value("x", TensorProto.FLOAT, b.shape), value("state", TensorProto.FLOAT, [2, "batch", 16]),
        value("rate", TensorProto.INT64, [])], [value("y", TensorProto.FLOAT, None)])
    bound = bind_shapes(helper.make_model(graph), {"x": (7, 4), "state": (7, 2, 1, 16), "rate": (7,)})
    shapes = [[size.dim_value for size in one.type.tensor_type.shape.dim] for one in bound.graph.input]
    assert shapes == [[1, 4], [2, 1, 16]]
    assert [int(numpy_helper.to_array(tensor)) for tensor in bound.graph.initializer if tensor.name == "rate"] == [7]
    with pytest.raises(GraphError, match="which cannot be"):
        bind_shapes(helper.make_model(graph), {"state": (7, 3, 1, 16)})


@pytest.mark.parametrize(("number", "value", "fits"), [
    (TensorProto.BOOL, 0, True), (TensorProto.BOOL, 2, False), (TensorProto.INT32, -1, True),
    (TensorProto.INT32, 2**32 + 7, False), (TensorProto.INT64, 2**32 + 7, True), (TensorProto.INT64, 2**64, False)])
def test_value_of_an_input_without_axes(number: int, value: int, fits: bool) -> None:
    """As it is given, or refused: none is cut to what its type holds."""
    name, shape = make_parser("compile").parse_args([
        "compile", "m.onnx", "-o", "m.npu", "--shape", f"rate={value}"]).shape[0]
    graph = helper.make_graph([helper.make_node("Identity", ["rate"], ["y"])], "rate", [
        helper.make_tensor_value_info("rate", number, [])], [helper.make_tensor_value_info("y", number, None)])
    if fits:
        bound = bind_shapes(helper.make_model(graph), {name: shape})
        assert [numpy_helper.to_array(tensor).item() for tensor in bound.graph.initializer] == [value]
    else:
        with pytest.raises(GraphError, match=f"input rate is .*, which cannot be {value}"):
            bind_shapes(helper.make_model(graph), {name: shape})


@pytest.mark.parametrize(("shapes", "word"), [
    ({}, "give it one, with numbers in --shape x=1,3,height,width"),
    ({"x": (1, 4, 6, 6)}, "input x has the shape (N, 3, height, width), which cannot be (1, 4, 6, 6)"),
    ({"x": (6, 6)}, "which cannot be (6, 6)"),
    ({"x": (1, 3, 0, 6)}, "which cannot be (1, 3, 0, 6)"),
    ({"x": (1, 3, 6, 6), "y": (1, 3, 6, 7)}, "input y: dimension width cannot be 6 and 7"),
])
def test_shapes_that_do_not_fit(shapes: dict, word: str, rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    open_model(b, "x", "y")
    with pytest.raises(GraphError) as caught:
        load_model(b.save(tmp_path), shapes=shapes)
    assert word in str(caught.value) and str(tmp_path) in str(caught.value)


@pytest.fixture
def opened(rng: Rng, tmp_path: Path) -> Path:
    b = Builder(rng)
    open_model(b, "x")
    return b.save(tmp_path)


def test_shape_option(opened: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """compile, and run and profile of what it wrote; profile and compare of the model."""
    program, array = tmp_path / "x.npu", tmp_path / "x.npy"
    np.save(array, np.ones((2, 3, 8, 6), np.int8))
    machine = ["--macs", "16"]
    shape = ["--shape", "x=1,3,8,6"]
    assert main(["compile", str(opened), "-o", str(program), *shape, *machine]) == 0
    assert main(["run", str(program), "--input", str(array), "--target", "functional"]) == 0
    assert main(["profile", str(opened), *shape, *machine]) == 0
    assert main(["compare", str(opened), "--input", str(array), *shape]) == 0
    capsys.readouterr()
    for arguments, status, word in (
            (["compile", str(opened), "-o", str(program)], 1, "--shape x=1,3,height,width"),
            (["compile", str(opened), "-o", str(program), *shape, *machine, "--shape", "z=1,3"], 2,
             "--shape z: the inputs of"),
            (["compile", str(opened), "-o", str(program), "--shape", "x=1,3,0,6"], 2, "such as x=1,3,224,224"),
            (["run", str(program), "--input", str(array), *shape], 2, "compile the model with --shape")):
        assert main(arguments) == status
        assert word in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_run_takes_the_shape_of_its_samples(suffix: str, opened: Path, tmp_path: Path,
                                            capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"samples{suffix}"
    x = np.ones((2, 3, 9, 5), np.int8)
    if suffix == ".npy":
        np.save(path, x)
    else:
        np.savez(path, x=x, label=np.zeros(2, np.int64))
    assert main(["run", str(opened), "--input", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 2


def test_names_of_shapes_elsewhere(rng: Rng, tmp_path: Path) -> None:
    """A stale shape of a value in between does not contradict what is bound."""
    b = Builder(rng)
    open_model(b, "x")
    model = b.build()
    model.graph.value_info.append(helper.make_tensor_value_info(b.nodes[0].output[0], 1, ["N", 3, "height", "width"]))
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    proto = load_model(path, shapes={"x": (1, 3, 6, 7)}).model.proto
    ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {"x": np.zeros((1, 3, 6, 7), np.int8)})
