"""What Keras writes by tf2onnx, and with PyTorch beneath it, where that is not what PyTorch writes of itself."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from cores.config import NpuConfig
from gen.ir.errors import GraphError
from gen.ir.graph import Pool
from gen.onnx import passes
from gen.onnx.read import read
from gen.run.application import Application, open_application
from gen.run.calibration import Calibration
from gen.run.inputs import Samples
from gen.run.runner import run_model
from tests.gen.float_models import FloatBuilder
from tests.gen.qdq import Builder
from tests.gen.test_onnx_import import check
from tests.gen.test_onnx_passes import copied, outputs
from tests.gen.test_partition import check as run_in_parts
from tests.gen.test_partition import convolved, cut

Rng = np.random.Generator
CONFIG = NpuConfig.preset(16, table=1, product=1)


def quantised(b: FloatBuilder, output: str, folder: Path, *, noise: float = 0.01) -> Application:
    """The model ``b`` with samples of it, compiled, and run on one of them as onnxruntime runs the float one."""
    path, model = folder / "model.onnx", b.model(output, rank=4)
    onnx.save(model, path)
    x = b.rng.normal(size=(16, *b.shape[1:])).astype(np.float32)
    np.savez(folder / "x.npz", x=x)
    application = open_application(path, CONFIG, calibration=Calibration(folder / "x.npz"))
    run = run_model(application, Samples({"x": x[:1]}, None), "functional")
    assert run.mismatches == 0 and run.compared
    (wanted,) = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x[:1]})
    assert run.outputs[output].shape == wanted.shape
    assert np.square(run.outputs[output] - wanted).sum() < noise * np.square(wanted).sum()
    return application


def first(b: FloatBuilder) -> str:
    """A convolution of what has its channels last, 3 of them, to 4."""
    return b.node("Relu", b.same_conv(b.node("Transpose", "x", perm=[0, 3, 1, 2]), 3, 4))


def ints(b: FloatBuilder, *values: int) -> str:
    return b.constant(np.array(values, np.int64))


def samples_of(b: FloatBuilder, value: str) -> str:
    """The number of samples as tf2onnx takes it of a shape: of channels last, in int32."""
    shape = b.node("Gather", b.node("Shape", value), ints(b, 0, 2, 3, 1), axis=0)
    shape = b.node("Cast", shape, to=TensorProto.INT32)
    return b.node("Slice", shape, ints(b, 0), ints(b, 1), ints(b, 0))


def shaped(b: FloatBuilder, value: str, samples: str, *sizes: int) -> str:
    shape = b.node("Concat", samples, b.constant(np.array(sizes, np.int32)), axis=0)
    return b.node("Reshape", value, b.node("Cast", shape, to=TensorProto.INT64))


def repeated(b: FloatBuilder, x: str) -> str:
    """UpSampling2D of 4 channels of 6x8: rows, which are transposed on the way, then columns."""
    y = b.node("Tile", b.node("Unsqueeze", x, ints(b, 3)), ints(b, 1, 1, 1, 2, 1))
    y = shaped(b, b.node("Transpose", y, perm=[0, 2, 3, 4, 1]), samples_of(b, x), 12, 8, 4)
    again = b.node("Slice", b.node("Shape", y), ints(b, 0), ints(b, 2), ints(b, 0))
    z = b.node("Tile", b.node("Unsqueeze", y, ints(b, 3)), ints(b, 1, 1, 1, 3, 1))
    y = b.node("Reshape", z, b.node("Concat", again, ints(b, 24, 4), axis=0))
    return b.node("Transpose", y, perm=[0, 3, 1, 2])


def expanded(b: FloatBuilder, x: str) -> str:
    """The same with PyTorch beneath Keras."""
    y = b.node("Unsqueeze", b.node("Transpose", x, perm=[0, 2, 3, 1]), ints(b, 2))
    samples = b.node("Gather", b.node("Shape", x), ints(b, 0), axis=0)
    y = b.node("Expand", y, b.node("Concat", samples, ints(b, 6, 2, 8, 4), axis=0))
    y = b.node("Unsqueeze", b.node("Reshape", y, ints(b, -1, 12, 8, 4)), ints(b, 3))
    y = b.node("Expand", y, ints(b, 1, 1, 1, 3, 1))
    y = b.node("Reshape", y, b.node("Concat", samples, ints(b, 12, 24, 4), axis=0))
    return b.node("Transpose", y, perm=[0, 3, 1, 2])


@pytest.mark.parametrize("form", [repeated, expanded])
def test_upsampling(form: Callable[[FloatBuilder, str], str], rng: Rng, tmp_path: Path) -> None:
    b = FloatBuilder(rng, ["N", 6, 8, 3])
    found = quantised(b, b.same_conv(form(b, first(b)), 4, 3), tmp_path)
    assert found.partition is None
    assert [layer.repeats for layer in found.workloads[0].graph.layers] == [(2, 3), (1, 1)]


def test_repetition_of_integers_with_channels_last(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    y = b.dequantize(b.input(1, 3, 4, 5), 0.05, 3)
    y = b.node("Unsqueeze", b.node("Transpose", y, perm=[0, 2, 3, 1]), b.constant([3]))
    y = b.node("Reshape", b.node("Tile", y, b.constant([1, 1, 1, 3, 1])), b.constant([0, 4, 15, 3]))
    b.output(b.quantize(b.node("Relu", y), 0.05, 3))
    graph, comparison = check(b, tmp_path)
    assert [(type(layer), layer.repeats) for layer in graph.layers] == [(Pool, (1, 3))]
    assert comparison.largest == 0


def test_repetition_in_a_fixed_batch(rng: Rng) -> None:
    b = Builder(rng)
    y = b.node("Expand", b.node("Unsqueeze", b.input(4, 3, 5, number=np.float32), b.constant([3])),
               b.constant([4, 3, 5, 2]))
    b.output(b.node("Reshape", y, b.constant([4, 3, 10])), np.float32, rank=3)
    model = b.build()
    changed = passes.free_batch(copied(model))
    assert not changed.graph.input[0].type.tensor_type.shape.dim[0].dim_value
    samples = b.samples(4)
    np.testing.assert_array_equal(*(outputs(each, samples)[0] for each in (changed, model)))


def test_shapes_that_begin_with_the_samples(rng: Rng, tmp_path: Path) -> None:
    """A Flatten, and one that does not keep the samples apart."""
    b = FloatBuilder(rng, ["N", 4, 6, 3])
    x = first(b)
    mixed = b.node("Reshape", b.node("Transpose", x, perm=[1, 0, 2, 3]), b.node("Shape", x))
    flat = shaped(b, b.node("Transpose", x, perm=[0, 2, 3, 1]), samples_of(b, x), -1)
    model = b.model(flat, rank=2)
    model.graph.output.append(helper.make_tensor_value_info(mixed, TensorProto.FLOAT, [None] * 4))
    changed = passes.drop_unused(passes.fold_sizes(copied(model)))
    reshapes = {node.output[0]: node.input[1] for node in changed.graph.node if node.op_type == "Reshape"}
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor).tolist() for tensor in changed.graph.initializer}
    assert constants[reshapes[flat]] == [0, -1] and reshapes[mixed] not in constants
    x = {"x": rng.normal(size=(3, 4, 6, 3)).astype(np.float32)}
    for ours, before in zip(outputs(changed, x), outputs(model, x), strict=True):
        np.testing.assert_array_equal(ours, before)


def test_squeeze_and_excitation_of_any_number_of_samples(rng: Rng, tmp_path: Path) -> None:
    """Shape inference has another name for the number after the Reshape of the means."""
    b = FloatBuilder(rng, ["N", 6, 8, 3])
    x = first(b)
    mean = b.node("Reshape", b.node("ReduceMean", x, axes=[2, 3], keepdims=0), ints(b, -1, 1, 1, 4))
    gate = b.node("Sigmoid", b.conv(b.node("Transpose", mean, perm=[0, 3, 1, 2]), 4, 4, kernel=1))
    assert quantised(b, b.same_conv(b.node("Mul", x, gate), 4, 3), tmp_path).partition is None


@pytest.mark.parametrize("mode", ["edge", "least", "zero", "before", "too wide", "another reader"])
def test_padding_of_maxima(mode: str, rng: Rng) -> None:
    """Of one side alone, as Keras pads on PyTorch."""
    b = FloatBuilder(rng, ["N", 3, 6, 8])
    numbers = {"least": float(np.finfo(np.float32).min), "zero": 0.0}
    number = [b.constant(np.float32(numbers[mode]))] if mode in numbers else []
    pads = ints(b, *[1 if mode == "before" else 0] * 2, *[2] * 2 if mode == "too wide" else [1] * 2)
    if b.opset < 18:
        pads = ints(b, 0, 0, *[1 if mode == "before" else 0] * 2, 0, 0, *[2 if mode == "too wide" else 1] * 2)
    padded = b.node("Pad", "x", pads, *number, mode="constant" if number else "edge")
    pooled = b.node("MaxPool", padded, kernel_shape=[2, 2], strides=[2, 2] if mode != "before" else [1, 1])
    model = b.model(pooled)
    if mode == "another reader":
        model.graph.output.append(helper.make_tensor_value_info(padded, TensorProto.FLOAT, None))
    changed = passes.merge_pool_padding(copied(model))
    stays = mode in ("zero", "too wide", "another reader")
    assert [node.op_type for node in changed.graph.node] == (["Pad", "MaxPool"] if stays else ["MaxPool"])
    x = {"x": rng.normal(size=(2, 3, 6, 8)).astype(np.float32) - 3}
    for ours, before in zip(outputs(changed, x), outputs(model, x), strict=True):
        np.testing.assert_array_equal(ours, before)


def test_padding_that_is_computed(rng: Rng, tmp_path: Path) -> None:
    """In front of the first layer, with channels last; and in front of a pool."""
    b = FloatBuilder(rng, ["N", 6, 8, 3])
    zeros = b.node("ConstantOfShape", ints(b, 4), value=helper.make_tensor("zero", TensorProto.INT64, [1], [0]))
    pads = b.node("Concat", zeros, ints(b, 0, 1, 1, 0), axis=0)
    x = b.node("Transpose", b.node("Pad", b.node("Mul", "x", b.constant(0.5)), pads), perm=[0, 3, 1, 2])
    x = b.node("Relu", b.conv(x, 3, 4, strides=[2, 2]))
    pads = b.node("Concat", zeros, ints(b, 0, 0, 1, 1), axis=0)
    x = b.node("MaxPool", b.node("Pad", x, pads, mode="edge"), kernel_shape=[2, 2], strides=[2, 2])
    assert quantised(b, b.conv(x, 4, 3, kernel=1), tmp_path).partition is None


def test_batch_norms_with_channels_last(rng: Rng, tmp_path: Path) -> None:
    """After a Transpose, as PyTorch beneath Keras has them; onnxruntime moves it only where that leaves fewer."""
    b = FloatBuilder(rng, ["N", 6, 8, 3])
    x = b.node("Transpose", b.conv(b.node("Transpose", "x", perm=[0, 3, 1, 2]), 3, 4), perm=[0, 2, 3, 1])
    x = b.node("Mul", b.node("Sub", x, b.constant(rng.normal(size=(1, 1, 1, 4)))), b.constant(rng.uniform(1, 2, 4)))
    x = b.node("Clip", b.node("Add", b.constant(rng.normal(size=4)), x), b.constant(0.0), b.constant(6.0))
    model = b.model(x)
    changed = passes.sink_transposes(copied(model))
    assert [node.op_type for node in changed.graph.node] == ["Transpose", "Conv", "Sub", "Mul", "Add", "Clip",
                                                             "Transpose"]
    onnx.checker.check_model(changed, full_check=True)
    samples = {"x": rng.normal(size=(2, 6, 8, 3)).astype(np.float32)}
    np.testing.assert_array_equal(*(outputs(each, samples)[0] for each in (changed, model)))
    assert len(quantised(b, x, tmp_path).workloads[0].graph.layers) == 1


@pytest.mark.parametrize("why", ["input", "another reader", "two results", "already behind"])
def test_transposes_that_do_not_sink(why: str, rng: Rng) -> None:
    b = FloatBuilder(rng, ["N", 3, 6, 8])
    x = b.node("Transpose", "x" if why == "input" else b.conv("x", 3, 3, kernel=1), perm=[0, 2, 3, 1])
    other = b.node("Sin", x) if why == "two results" else b.constant(0.5)
    y = b.node("Exp" if why == "already behind" else "Add", x, *([] if why == "already behind" else [other]))
    model = b.model(y)
    if why == "another reader":
        model.graph.output.append(helper.make_tensor_value_info(x, TensorProto.FLOAT, None))
    assert passes.sink_transposes(copied(model)).SerializeToString() == model.SerializeToString()


def prelu(b: FloatBuilder, x: str, slopes: np.ndarray) -> str:
    scaled = b.node("Mul", b.node("Neg", b.constant(slopes)), b.node("Relu", b.node("Neg", x)))
    return b.node("Add", b.node("Relu", x), scaled)


def test_prelu(rng: Rng, tmp_path: Path) -> None:
    b = FloatBuilder(rng, ["N", 6, 8, 3])
    x = prelu(b, first(b), rng.uniform(0, 0.5, (4, 1, 1)))
    x = prelu(b, b.same_conv(x, 4, 4), np.zeros((4, 6, 8)))     # each pixel its own, before training
    found = quantised(b, b.same_conv(x, 4, 3), tmp_path)
    assert found.partition is None
    assert not any("neg" in node for layer in found.workloads[0].graph.layers for node in layer.onnx_nodes)


@pytest.mark.parametrize("why", ["another reader", "another value", "not constant"])
def test_sums_that_are_no_prelu(why: str, rng: Rng) -> None:
    b = FloatBuilder(rng, ["N", 3, 4, 4])
    negative = b.node("Relu", b.node("Neg", b.node("Abs", "x") if why == "another value" else "x"))
    slope = b.node("Sigmoid", "x") if why == "not constant" else b.constant(np.float32(-0.1))
    sum_ = b.node("Add", b.node("Mul", slope, negative), b.node("Relu", "x"))
    model = b.model(sum_)
    if why == "another reader":
        model.graph.output.append(helper.make_tensor_value_info(negative, TensorProto.FLOAT, None))
    assert passes.find_prelus(copied(model)).SerializeToString() == model.SerializeToString()


@pytest.mark.parametrize("op", ["ReduceMean", "ReduceMax"])
def test_reduced_pixels_of_one_axis_with_channels_last(op: str, rng: Rng, tmp_path: Path) -> None:
    """Axis 1 is that of the pixels, where a Transpose has put the channels after it."""
    b = Builder(rng)
    y = b.node("Conv", b.dequantize(b.input(1, 3, 9)), b.weights(4, 3, 3))
    y = b.node("Transpose", b.requantize(y), perm=[0, 2, 1])
    b.output(b.quantize(b.node(op, y, axes=[1], keepdims=0)), rank=2)
    graph, comparison = check(b, tmp_path)
    assert [layer.op for layer in graph.layers] == ["conv", "pool"] and comparison.largest <= 1


def test_dense_of_each_pixel(rng: Rng, tmp_path: Path) -> None:
    """A MatMul of channels last stays one, with its bias, however many samples there are."""
    b = FloatBuilder(rng, [1, 6, 8, 3])
    x = b.node("Transpose", first(b), perm=[0, 2, 3, 1])
    x = b.node("Add", b.node("MatMul", x, b.weights(4, 5)), b.constant(rng.normal(size=5)))
    x = b.node("Add", b.node("MatMul", b.node("Relu", x), b.weights(5, 3)), b.constant(rng.normal(size=3)))
    found = quantised(b, x, tmp_path)
    assert found.partition is None and len(found.workloads[0].graph.layers) == 3


def test_sum_with_an_input_that_has_its_channels_last(rng: Rng, tmp_path: Path) -> None:
    """As of a segment after the processor: nothing but the sum says how the input is to lie."""
    b = Builder(rng)
    x, y = b.input(1, 4, 5, 3), b.input(1, 3, 4, 5, name="y")
    made = b.requantize(b.node("Conv", b.dequantize(y), b.weights(3, 3, 1, 1)))
    made = b.node("Transpose", made, perm=[0, 2, 3, 1])
    b.output(b.quantize(b.node("Add", b.dequantize(x), made)))
    check(b, tmp_path)


def test_segments_behind_shapes_that_only_the_walk_finds(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    y = b.requantize(convolved(b, b.requantize(b.input("N", 4, 6, 6, number=np.float32))))
    y = b.requantize(convolved(b, b.requantize(b.node("Sin", y))))
    shape = b.node("Max", b.node("Shape", y), b.constant([1, 4, 6, 6]))     # shape inference does not compute it
    b.output(b.requantize(convolved(b, b.node("Reshape", y, shape))), np.float32)
    places = [segment.place for segment in cut(run_in_parts(b, tmp_path)).segments]
    assert places == ["accelerator", "host", "accelerator"]


def test_operators_that_tf2onnx_leaves(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    b.output(b.node("Erfc", b.input("N", 3, 4, 4, number=np.float32)), np.float32)
    with pytest.raises(GraphError, match="no operator Erfc in opset 13; tf2onnx leaves so, with a warning, what"):
        read(b.save(tmp_path))
