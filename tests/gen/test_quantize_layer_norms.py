"""LayerNormalization that is written as its steps is found, over the last axis and over the channels of a map."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from cores.config import NpuConfig
from gen.quantize.options import QuantizeError
from gen.quantize.prepare import prepare
from tests.gen.float_models import FloatBuilder
from tests.gen.quantizing import on_machine, outputs_of, quantized

CONFIG = NpuConfig.preset(64, rows=64)
CHANNELS, SIDE = 12, 6


def inverse(b: FloatBuilder, form: str, value: str) -> str:
    """One over the root of a value, as exporters write it."""
    if form == "power":
        return b.node("Pow", value, b.constant(np.float32(-0.5)))
    root = b.node("Sqrt", value)
    return b.node("Reciprocal", root) if form != "one" else b.node("Div", b.constant(np.float32(1)), root)


def steps(b: FloatBuilder, x: str, axis: int, *, power: float = 2.0, bias: bool = True, form: str = "divided",
          centred: bool = True) -> str:
    """As PyTorch exports it in opset 13: the difference is there once or twice. ``form``: of the quotient;
    ``centred``: whether there is a difference; the constants are nodes then, as PyTorch's older exporter has them.
    """
    def mean(value: str) -> str:
        return b.node("ReduceMean", value, axes=[axis], keepdims=1)

    shape = (CHANNELS, 1, 1) if axis == 1 else (CHANNELS,)
    less = b.node("Sub", x, mean(x)) if centred else x
    exponent = b.node("Constant", value=numpy_helper.from_array(np.float32([power]))) if not centred else \
        b.constant(np.float32(power))
    square = b.node("Pow", b.node("Sub", x, mean(x)) if centred else x, exponent)
    variance = b.node("Add", mean(square), b.constant(np.float32(1e-5)))
    scale = b.constant(b.rng.uniform(0.5, 2, shape))
    if form == "scaled":
        y = b.node("Mul", less, b.node("Mul", scale, inverse(b, form, variance)))
    elif form == "divided":
        y = b.node("Mul", b.node("Div", less, b.node("Sqrt", variance)), scale)
    else:
        y = b.node("Mul", scale, b.node("Mul", inverse(b, form, variance), less))
    return b.node("Add", y, b.constant(b.rng.normal(size=shape))) if bias else y


def network(rng: np.random.Generator, axis: int, **options: object):
    b = FloatBuilder(rng, [1, 3, SIDE, SIDE])
    x = b.same_conv("x", 3, CHANNELS, name="first")
    x = x if axis == 1 else b.node("Transpose", x, perm=[0, 2, 3, 1])
    y = steps(b, x, axis, **options)
    y = y if axis == 1 else b.node("Transpose", y, perm=[0, 3, 1, 2])
    return b.model(b.same_conv(y, CHANNELS, 4, kernel=1, name="y"), rank=4)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("axis", [1, -1])
def test_found(axis: int, bias: bool, rng: np.random.Generator, seed: int, tmp_path: Path) -> None:
    model = network(rng, axis, bias=bias)
    x = rng.normal(size=(8, 3, SIDE, SIDE)).astype(np.float32)
    made = prepare(model)
    assert {node.op_type for node in made.graph.node} <= {"Conv", "Transpose", "LayerNormalization"}
    np.testing.assert_allclose(outputs_of(made, x), outputs_of(model, x), rtol=0, atol=1e-4)
    imported = on_machine(quantized(model, x, method="minmax").model, x, CONFIG, seed, tmp_path)
    assert [layer.op for layer in imported.graph.layers] == ["conv", "normalise", "conv"]


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("form", ["divided", "reciprocal", "one", "power", "scaled"])
def test_forms(form: str, centred: bool, rng: np.random.Generator) -> None:
    """Of the quotient; without the mean it is an RMSNormalization."""
    model = network(rng, -1, form=form, centred=centred, bias=centred)
    made = prepare(model)
    norm = "LayerNormalization" if centred else "SimplifiedLayerNormalization"
    assert [node.op_type for node in made.graph.node if node.op_type not in ("Conv", "Transpose")] == [norm]
    x = rng.normal(size=(2, 3, SIDE, SIDE)).astype(np.float32)
    np.testing.assert_allclose(outputs_of(made, x), outputs_of(model, x), rtol=0, atol=1e-4)


def test_transposes_around_it(rng: np.random.Generator) -> None:
    """As in a Mixer, of opset 13: onnxruntime would move them into the steps."""
    b = FloatBuilder(rng, [1, 3, SIDE, SIDE])
    image = b.node("Reshape", b.same_conv("x", 3, CHANNELS), b.constant(np.array([1, CHANNELS, SIDE * SIDE])))
    tokens = b.node("Transpose", image, perm=[0, 2, 1])
    mixed = b.node("Transpose", b.node("MatMul", image, b.weights(SIDE * SIDE, SIDE * SIDE)), perm=[0, 2, 1])
    y = steps(b, b.node("Add", tokens, mixed), -1)
    made = prepare(b.model(b.node("MatMul", y, b.weights(CHANNELS, 4)), rank=3))
    assert {node.op_type for node in made.graph.node} <= {
        "Add", "Conv", "LayerNormalization", "MatMul", "Reshape", "Transpose"}


def test_another_power_is_none(rng: np.random.Generator) -> None:
    assert "LayerNormalization" not in {node.op_type for node in prepare(network(rng, -1, power=4.0)).graph.node}


@pytest.mark.parametrize("variance", ["differences", "squares", "clamped"])
@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("axis", [1, -1])
def test_of_squares(axis: int, joined: bool, variance: str, rng: np.random.Generator) -> None:
    """The variance as the mean of squares less the mean's, as Flax has it, and Keras's factor and summand."""
    b = FloatBuilder(rng, [1, 3, SIDE, SIDE])
    x = b.same_conv("x", 3, CHANNELS, name="first")
    x = x if axis == 1 else b.node("Transpose", x, perm=[0, 2, 3, 1])
    shape = (1, CHANNELS, 1, 1) if axis == 1 else (CHANNELS,)

    def mean(value: str) -> str:
        return b.node("ReduceMean", value, axes=[axis], keepdims=1)

    if variance == "differences":
        less = b.node("Sub", x, mean(x))
        spread = mean(b.node("Mul", less, less))
    else:
        middle = mean(x)
        spread = b.node("Sub", mean(b.node("Mul", x, x)), b.node("Mul", middle, middle))
        spread = b.node("Max", b.constant(np.float32(0)), spread) if variance == "clamped" else spread
    root = b.node("Sqrt", b.node("Add", spread, b.constant(np.float32(1e-3))))
    factor = b.node("Mul", b.node("Reciprocal", root), b.constant(rng.uniform(0.5, 2, shape)))
    bias = b.constant(rng.normal(size=shape))
    if joined:
        y = b.node("Add", b.node("Mul", x, factor), b.node("Sub", bias, b.node("Mul", mean(x), factor)))
    else:
        y = b.node("Add", b.node("Mul", b.node("Sub", x, mean(x)), factor), bias)
    y = y if axis == 1 else b.node("Transpose", y, perm=[0, 3, 1, 2])
    model = b.model(b.same_conv(y, CHANNELS, 4, kernel=1, name="y"), rank=4)
    made = prepare(model)
    assert [node.op_type for node in made.graph.node if node.op_type not in ("Conv", "Transpose")] == [
        "LayerNormalization"]
    x = rng.normal(size=(2, 3, SIDE, SIDE)).astype(np.float32)
    np.testing.assert_allclose(outputs_of(made, x), outputs_of(model, x), rtol=0, atol=1e-4)


@pytest.mark.parametrize("wrong", ["mean", "factor", "sign"])
def test_of_other_squares(wrong: str, rng: np.random.Generator) -> None:
    """Nearly the same."""
    b = FloatBuilder(rng, [1, 3, SIDE, SIDE])
    x = b.node("Transpose", b.same_conv("x", 3, CHANNELS), perm=[0, 2, 3, 1])
    mean, square = (b.node("ReduceMean", value, axes=[-1]) for value in (x, b.node("Mul", x, x)))
    other = b.node("ReduceMean", b.node("Relu", x), axes=[-1]) if wrong == "mean" else mean
    less = b.node("Sub" if wrong != "sign" else "Add", square, b.node("Mul", other, other))
    root = b.node("Sqrt", b.node("Add", less, b.constant(np.float32(1e-3))))
    factor = b.node("Reciprocal", root)
    share = b.node("Mul", mean, b.node("Sqrt", factor) if wrong == "factor" else factor)
    y = b.node("Add", b.node("Mul", x, factor), b.node("Sub", b.constant(rng.normal(size=CHANNELS)), share))
    model = b.model(b.node("MatMul", y, b.weights(CHANNELS, 4)), rank=4)
    assert "LayerNormalization" not in {node.op_type for node in prepare(model).graph.node}


@pytest.mark.parametrize("under", ["relu", "one", "three"])
def test_roots_of_other_values(under: str, rng: np.random.Generator) -> None:
    """What is no variance stays, and hides no normalisation after it."""
    b = FloatBuilder(rng, [1, SIDE, CHANNELS])
    value = {"relu": lambda: b.node("Relu", "x"), "one": lambda: b.node("Max", b.node("Exp", "x")),
             "three": lambda: b.node("Max", "x", b.node("Neg", "x"), b.constant(np.float32(0)))}[under]()
    x = b.node("Div", "x", b.node("Sqrt", b.node("Add", value, b.constant(np.float32(1)))))
    model = b.model(b.node("MatMul", steps(b, x, -1), b.weights(CHANNELS, 4)), rank=3)
    made, x = prepare(model), rng.normal(size=(1, SIDE, CHANNELS)).astype(np.float32)
    assert "LayerNormalization" in {node.op_type for node in made.graph.node}
    np.testing.assert_allclose(outputs_of(made, x), outputs_of(model, x), rtol=0, atol=1e-4)


@pytest.mark.parametrize("form", ["jax", "repeated", "keras"])
@pytest.mark.parametrize("opset", [13, 18])
def test_sums_that_are_divided(form: str, opset: int, rng: np.random.Generator) -> None:
    """Means as JAX writes them, without the axis or repeated along it, and Keras's negative mean."""
    b = FloatBuilder(rng, [1, 6, CHANNELS], opset=opset)
    x, one = b.node("MatMul", "x", b.weights(CHANNELS, CHANNELS)), form == "jax"

    def mean(value: str) -> str:
        total = b.node("ReduceSum", value, b.constant(np.array([2])), keepdims=0 if one else 1)
        return b.node(*(("Div", total, b.constant(np.float32(CHANNELS))) if one else (
            "Mul", b.constant(np.float32(1 / CHANNELS)), total)))

    def spread(value: str) -> str:
        return b.node("Reshape", value, b.constant(np.array([1, 6, 1]))) if one else b.node(
            "Expand", value, b.constant(np.array([1, 6, CHANNELS]))) if form == "repeated" else value

    middle = mean(x)
    variance = b.node("Max", b.constant(np.float32(0)), b.node(
        "Sub", mean(b.node("Mul", x, x)), b.node("Mul", middle, middle)))
    variance = b.node("Add", spread(variance) if one else variance, b.constant(np.float32(1e-6)))
    root, scale = b.node("Sqrt", variance), b.constant(rng.uniform(0.5, 2, (1, 1, CHANNELS)))
    factor = b.node("Mul", b.node("Div", b.constant(np.float32(1)), root), scale) if one else b.node(
        "Mul", spread(b.node("Reciprocal", root)), scale)
    bias = b.constant(rng.normal(size=CHANNELS))
    y = b.node("Add", b.node("Mul", factor, x), b.node("Add", b.node("Mul", b.node("Neg", middle), factor), bias)) \
        if form == "keras" else b.node("Add", b.node("Mul", b.node("Sub", x, spread(middle)), factor), bias)
    model = b.model(b.node("MatMul", y, b.weights(CHANNELS, 4)))
    made = prepare(model)
    assert [node.op_type for node in made.graph.node] == ["MatMul", "LayerNormalization", "MatMul"]
    inputs = rng.normal(size=(1, 6, CHANNELS)).astype(np.float32)
    np.testing.assert_allclose(outputs_of(made, inputs), outputs_of(model, inputs), rtol=0, atol=1e-4)


@pytest.mark.parametrize("wrong", ["count", "axis"])
def test_other_sums_stay(wrong: str, rng: np.random.Generator) -> None:
    """A sum divided by another number is no mean; numbers of rows that meet channels are those of other values."""
    b = FloatBuilder(rng, [1, 6, 6])
    x = b.node("MatMul", "x", b.weights(6, 6))

    def mean(value: str) -> str:
        total = b.node("ReduceSum", value, b.constant(np.array([2])), keepdims=int(wrong == "count"))
        return b.node("Div", total, b.constant(np.float32(5 if wrong == "count" else 6)))

    less = b.node("Sub", x, mean(x))
    variance = b.node("Add", mean(b.node("Mul", less, less)), b.constant(np.float32(1e-6)))
    y = b.node("Div", less, b.node("Sqrt", variance))
    model = b.model(b.node("MatMul", y, b.weights(6, 4)))
    made = prepare(model)
    assert "LayerNormalization" not in {node.op_type for node in made.graph.node}
    inputs = rng.normal(size=(1, 6, 6)).astype(np.float32)
    np.testing.assert_allclose(outputs_of(made, inputs), outputs_of(model, inputs), rtol=0, atol=1e-4)


@pytest.mark.parametrize("form", ["expanded", "epsilon", "bound", "one", "scale", "over", "squares"])
def test_numbers_of_rows_that_meet_channels(form: str, rng: np.random.Generator) -> None:
    """As many tokens as channels: what has the axis of the row in front, and not at its end, is of other values."""
    b = FloatBuilder(rng, [1, 6, 6], opset=18)
    x = b.node("MatMul", "x", b.weights(6, 6))

    def mean(value: str, *, kept: bool = False) -> str:
        return b.node("ReduceMean", value, b.constant(np.array([2])), keepdims=int(kept))

    def repeated(value: str) -> str:
        return b.node("Expand", value, b.constant(np.array([1, 6, 6])))

    less = x if form == "squares" else b.node("Sub", x, repeated(mean(x)) if form == "expanded" else mean(x, kept=True))
    variance = mean(b.node("Mul", less, less), kept=form == "expanded")
    variance = b.node("Max", variance, b.constant(np.zeros((1, 1, 1)))) if form == "bound" else variance
    variance = repeated(variance) if form == "squares" else variance
    root = b.node("Sqrt", b.node("Add", variance, b.constant(np.full((1, 1, 1) if form == "epsilon" else (), 1e-3))))
    scale = b.constant(rng.uniform(0.5, 2, (1, 1, 6)))
    y = {"one": lambda: b.node("Mul", less, b.node("Div", b.constant(np.ones((1, 1, 1))), root)),
         "scale": lambda: b.node("Mul", less, b.node("Mul", b.node("Reciprocal", root), scale)),
         "over": lambda: b.node("Mul", less, b.node("Div", scale, root))}.get(
             form, lambda: b.node("Div", less, root))()
    model = b.model(b.node("MatMul", y, b.weights(6, 4)))
    inputs = rng.normal(size=(1, 6, 6)).astype(np.float32)
    made = prepare(model)
    assert "LayerNormalization" not in {node.op_type for node in made.graph.node}
    np.testing.assert_allclose(outputs_of(made, inputs), outputs_of(model, inputs), rtol=0, atol=1e-4)


def test_sums_along_no_axis(rng: np.random.Generator) -> None:
    """Without axes a sum may be of none; a number of more axes than the sum has gives its own to the quotient."""
    b = FloatBuilder(rng, [1, 2, 3])
    same = b.node("Div", b.node("ReduceSum", "x", noop_with_empty_axes=1), b.constant(np.float32(6)))
    least = b.node("Div", b.node("ReduceSum", "x", keepdims=0), b.constant(np.full((1, 1, 1), 6.0)))
    model = b.model(b.node("Add", same, least))
    inputs = rng.normal(size=(1, 2, 3)).astype(np.float32)
    np.testing.assert_allclose(outputs_of(prepare(model), inputs), outputs_of(model, inputs), rtol=0, atol=1e-6)


def test_sums_along_an_axis_that_is_not_there() -> None:
    shape = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 2, 3])
    nodes = [onnx.helper.make_node("ReduceSum", ["x", "axis"], ["sum"]),
             onnx.helper.make_node("Div", ["sum", "n"], ["y"])]
    constants = [numpy_helper.from_array(np.array([5]), "axis"), numpy_helper.from_array(np.float32(3), "n")]
    graph = onnx.helper.make_graph(
        nodes, "wrong", [shape], [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)], constants)
    with pytest.raises(QuantizeError):
        prepare(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8))
