"""Hand-made models of every operator and form against onnxruntime: at most one step of difference in any layer."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from gen.check.compare import Comparison, compare, compare_model
from gen.ir import reference
from gen.ir.epilogue.add import Add
from gen.ir.graph import Conv, Graph, Pool
from gen.onnx.importer import load, load_model
from tests.gen.qdq import Builder

Rng = np.random.Generator


def check(builder: Builder, folder: Path) -> tuple[Graph, Comparison]:
    """Import, compare with onnxruntime, and make sure that the outputs are not all clipped."""
    path, samples = builder.save(folder), builder.samples()
    graph = load(path)
    comparison = compare(path, samples)
    assert comparison.layers and comparison.largest <= 1, comparison.layers
    for output in comparison.outputs:
        assert output.host_differing == 0
        # Single steps of the layers add up, gain included; a wrong sign or zero point at an end would be far beyond.
        assert max(abs(difference) for difference in output.distribution) <= 4 * len(graph.layers)
    outputs, _ = reference.run(graph, samples)
    assert all(len(np.unique(value)) > 5 for value in outputs.values())
    return graph, comparison


@pytest.mark.parametrize("number", [np.int8, np.uint8])
@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize(
    ("channels", "group", "out", "attributes"), [
        (3, 1, 8, dict(strides=[2, 2], pads=[0, 0, 1, 1])),
        (5, 1, 17, dict(pads=[2, 0, 1, 3])),
        (16, 16, 16, dict(pads=[1, 1, 1, 1])),
        (8, 2, 4, dict(pads=[1, 1, 1, 1])),
        (4, 4, 8, dict(strides=[1, 2])),
        (3, 1, 6, dict(auto_pad="SAME_UPPER", strides=[2, 2])),
        (3, 1, 6, dict(auto_pad="SAME_LOWER", strides=[3, 2])),
        (3, 1, 6, dict(auto_pad="VALID")),
        (1, 1, 6, dict(pads=[1, 1, 1, 1])),
    ])
def test_conv(channels: int, group: int, out: int, attributes: dict, per_channel: bool, number: type, rng: Rng,
              tmp_path: Path) -> None:
    b = Builder(rng, number=number)
    weights = b.weights(out, channels // group, 3, 3, per_channel=per_channel, number=number)
    y = b.node("Conv", b.dequantize(b.input(1, channels, 9, 10)), weights, b.bias(out), group=group, **attributes)
    b.output(b.quantize(y, zero_point=20))
    graph, _ = check(b, tmp_path)
    assert isinstance(graph.layers[0], Conv)
    assert graph.layers[0].depthwise == (channels == group == out)


@pytest.mark.parametrize("number", [np.int8, np.uint8])
def test_bytes_that_become_float(number: type, rng: Rng, tmp_path: Path) -> None:
    """Pixels as bytes, which the model itself makes numbers of -1 to 1 before it quantises these."""
    b = Builder(rng, number=number)
    x = b.node("Transpose", b.node("Cast", b.input(1, 9, 10, 3), to=onnx.TensorProto.FLOAT), perm=[0, 3, 1, 2])
    x = b.node("Div", b.node("Sub", x, b.constant(np.float32(127.5))), b.constant(np.float32(127.5)))
    y = b.node("Conv", b.requantize(x, 0.0078, None if number == np.int8 else 128), b.weights(8, 3, 3, 3))
    b.output(b.quantize(y, zero_point=20))
    check(b, tmp_path)


@pytest.mark.parametrize("number", [np.int8, np.uint8])
def test_padding_that_is_quantised(number: type, rng: Rng, tmp_path: Path) -> None:
    """Pad, QuantizeLinear and DequantizeLinear in front of a Conv: its padding, and no layer of its own."""
    b = Builder(rng, number=number)
    x, point = b.input(1, 5, 8, 9), 130 if number == np.uint8 else 2
    pads = b.constant(np.array([0, 0, 1, 1, 0, 0, 0, 2]))
    y = b.requantize(b.node("Pad", b.dequantize(x, 0.05, point), pads, b.constant(np.float32(0))), 0.05, point)
    b.output(b.quantize(b.node("Conv", y, b.weights(6, 5, 3, 3), strides=[2, 2]), zero_point=20))
    graph, _ = check(b, tmp_path)
    assert len(graph.layers) == 1 and graph.layers[0].pads == (1, 1, 0, 2)


def test_constants_that_are_quantised_again(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    weights, scale, point = b.weights(6, 5, 3, 3, per_channel=False), b.scale(0.01), b.point(3)
    weights = b.node("DequantizeLinear", b.node("QuantizeLinear", weights, scale, point), scale, point)
    b.output(b.quantize(b.node("Conv", b.dequantize(b.input(1, 5, 6, 6)), weights), zero_point=20))
    check(b, tmp_path)


@pytest.mark.parametrize("opset", [10, 11, 13, 17, 21])
@pytest.mark.parametrize("activation", ["none", "relu", "relu6", "relu_clip"])
def test_activation_functions(opset: int, activation: str, rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng, opset=opset)
    y = b.node("Conv", b.dequantize(b.input("N", 4, 6, 6), 0.1), b.weights(8, 4, 3, 3, per_channel=opset >= 13))
    if "relu" in activation and activation != "relu6":
        y = b.node("Relu", y)
    if activation in ("relu6", "relu_clip"):
        bounds = (0.0, 6.0) if activation == "relu6" else (-1.0, 3.0)
        y = (b.node("Clip", y, min=bounds[0], max=bounds[1]) if opset < 11
             else b.node("Clip", y, b.constant(np.float32(bounds[0])), b.constant(np.float32(bounds[1]))))
    b.output(b.quantize(y, zero_point=-50))
    graph, _ = check(b, tmp_path)
    first = graph.layers[0].requantize
    assert (first.low, first.high) == {"none": (-128, 127), "relu": (-50, 127), "relu6": (-50, 70),
                                       "relu_clip": (-50, 10)}[activation]


def test_activation_behind_its_own_quantisation_is_merged(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    y = b.node("Conv", b.dequantize(b.input(1, 4, 6, 6)), b.weights(8, 4, 3, 3))
    b.output(b.quantize(b.node("Relu", b.requantize(y, zero_point=5)), zero_point=5))
    graph, _ = check(b, tmp_path)
    assert len(graph.layers) == 1 and graph.layers[0].requantize.low == 5


def test_activation_at_another_scale_stays_a_layer(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    y = b.node("Conv", b.dequantize(b.input(1, 4, 6, 6)), b.weights(8, 4, 3, 3))
    b.output(b.quantize(b.node("Relu", b.requantize(y, 0.04)), 0.05, zero_point=5))
    graph, _ = check(b, tmp_path)
    assert [layer.op for layer in graph.layers] == ["conv", "pool"]


# -- matrix products -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flatten", ["Flatten", "Flatten behind", "Reshape", "dynamic", "nhwc", "Squeeze"])
@pytest.mark.parametrize("transposed", [True, False])
def test_gemm_behind_a_feature_map(flatten: str, transposed: bool, rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    size = (1, 1) if flatten == "Squeeze" else (3, 4)
    y = b.requantize(b.node("Conv", b.dequantize(b.input("N", 4, *size)), b.weights(6, 4, 1, 1)))
    match flatten:
        case "Flatten":
            y = b.node("Flatten", y)
        case "Flatten behind":
            y = b.node("Flatten", y, axis=-3)
        case "Reshape":
            y = b.node("Reshape", y, b.constant([-1, 72]))
        case "Squeeze":
            y = b.node("Squeeze", y, b.constant([2, 3]))
        case "nhwc":
            y = b.node("Reshape", b.node("Transpose", y, perm=[0, 2, 3, 1]), b.constant([0, -1]))
        case "dynamic":
            samples = b.node("Gather", b.node("Shape", y), b.constant(0))
            shape = b.node("Concat", b.node("Unsqueeze", samples, b.constant([0])), b.constant([-1]), axis=0)
            y = b.node("Reshape", y, shape)
    features = 6 * size[0] * size[1]
    weights = b.weights(*((10, features) if transposed else (features, 10)), axis=0 if transposed else 1)
    b.output(b.quantize(b.node("Gemm", y, weights, b.bias(10), transB=int(transposed)), 0.02), rank=2)
    graph, _ = check(b, tmp_path)
    layer = graph.layers[1]
    assert isinstance(layer, Conv) and layer.weights.shape == (10, 6, *size)


def test_gemm_alpha_and_beta(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    y = b.node("Gemm", b.dequantize(b.input(1, 20)), b.weights(20, 7, axis=1), b.bias(7), alpha=0.5, beta=2.0)
    b.output(b.quantize(y, 0.02), rank=2)
    check(b, tmp_path)


def test_matmul_with_transposed_weights_and_bias(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    weights = b.node("Transpose", b.weights(7, 20), perm=[1, 0])
    y = b.node("Add", b.bias(7), b.node("MatMul", b.dequantize(b.input("N", 20)), weights))
    b.output(b.quantize(b.node("Relu", y), 0.1, zero_point=-100), rank=2)
    graph, _ = check(b, tmp_path)
    assert len(graph.layers) == 1


def test_matmul_over_pixels_is_a_pointwise_convolution(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    y = b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, 4, 5)), b.weights(6, 3, 1, 1)))
    y = b.node("MatMul", b.node("Transpose", y, perm=[0, 2, 3, 1]), b.weights(6, 8, axis=1))
    y = b.requantize(b.node("Transpose", y, perm=[0, 3, 1, 2]))
    b.output(b.quantize(b.node("Conv", y, b.weights(4, 8, 3, 3))))
    graph, _ = check(b, tmp_path)
    assert [graph.tensors[layer.output].shape for layer in graph.layers] == [(6, 4, 5), (8, 4, 5), (4, 2, 3)]


# -- additions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [np.int8, np.uint8])
@pytest.mark.parametrize("shortcut_first", [True, False])
def test_addition_is_fused_into_its_convolution(shortcut_first: bool, number: type, rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng, number=number)
    x = b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, 6, 6)), b.weights(8, 3, 1, 1)), 0.03)
    y = b.requantize(b.node("Relu", b.node("Conv", x, b.weights(8, 8, 3, 3), pads=[1, 1, 1, 1])), 0.02)
    y = b.node("Add", *((x, y) if shortcut_first else (y, x)))
    b.output(b.quantize(b.node("Relu", y), 0.04))
    graph, comparison = check(b, tmp_path)
    assert len(graph.layers) == 2 and len(comparison.layers) == 3
    (residual,) = graph.layers[1].epilogue
    assert isinstance(residual, Add) and residual.other == graph.layers[0].output
    assert residual.middle.onnx_name not in graph.tensors


def test_addition_of_two_convolutions_goes_to_the_larger_one(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    x = b.dequantize(b.input(1, 8, 6, 6))
    large = b.requantize(b.node("Conv", x, b.weights(8, 8, 3, 3), pads=[1, 1, 1, 1]), 0.02)
    small = b.requantize(b.node("Conv", x, b.weights(8, 8, 1, 1)), 0.03)
    b.output(b.quantize(b.node("Add", small, large)))
    graph, _ = check(b, tmp_path)
    first, second = graph.layers
    assert isinstance(second, Conv) and second.weights.shape[2:] == (3, 3)
    assert second.others == (first.output,)


def test_addition_of_shared_tensors_is_a_copy(rng: Rng, tmp_path: Path) -> None:
    """Neither operand may be swallowed: each is read elsewhere, or is a model input, or is an output."""
    b = Builder(rng)
    x = b.dequantize(b.input(1, 8, 5, 5), 0.03)
    y = b.node("QuantizeLinear", b.node("Conv", x, b.weights(8, 8, 1, 1)), b.scale(0.02), b.point(3))
    b.output(y)
    real = b.node("DequantizeLinear", y, b.scale(0.02), b.point(3))
    b.output(b.quantize(b.node("Add", x, real)))
    b.output(b.quantize(b.node("Add", real, real), 0.06))
    graph, _ = check(b, tmp_path)
    assert [layer.op for layer in graph.layers] == ["conv", "pool", "pool"]
    assert [bool(layer.others) for layer in graph.layers] == [False, True, True]


def test_chain_of_additions(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    y = b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, 6, 6)), b.weights(8, 3, 1, 1)))
    for _ in range(3):
        inner = b.requantize(b.node("Conv", y, b.weights(8, 8, 3, 3), pads=[1, 1, 1, 1]), 0.03)
        y = b.requantize(b.node("Add", y, inner), 0.06)
    b.output(b.quantize(b.node("GlobalAveragePool", y), 0.01))
    graph, _ = check(b, tmp_path)
    assert [bool(layer.others) for layer in graph.layers] == [False, True, True, True, False]


# -- pooling -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [np.int8, np.uint8])
@pytest.mark.parametrize("attributes", [
    dict(kernel_shape=[2, 2], strides=[2, 2]),
    dict(kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    dict(kernel_shape=[3, 2], auto_pad="SAME_UPPER"),
    dict(kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    dict(kernel_shape=[2, 2], strides=[3, 3], pads=[0, 0, 1, 1], ceil_mode=1),
])
@pytest.mark.parametrize("same_scale", [True, False])
def test_max_pool(attributes: dict, same_scale: bool, number: type, rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng, number=number)
    y = b.node("MaxPool", b.dequantize(b.input(1, 5, 8, 9), zero_point=100), **attributes)
    b.output(b.quantize(y, zero_point=100) if same_scale else b.quantize(y, 0.07, 0))
    graph, comparison = check(b, tmp_path)
    assert isinstance(graph.layers[0], Pool) and graph.layers[0].maximum
    assert not same_scale or comparison.layers[0].differing == 0


def test_max_pool_of_integers(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng, number=np.uint8)
    y = b.node("MaxPool", b.input(1, 5, 8, 8), kernel_shape=[2, 2], strides=[2, 2])
    b.output(b.quantize(b.node("Conv", b.dequantize(y), b.weights(4, 5, 1, 1))))
    check(b, tmp_path)


@pytest.mark.parametrize("attributes", [
    dict(kernel_shape=[2, 2], strides=[2, 2]),
    dict(kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1),
    dict(kernel_shape=[8, 8], strides=[8, 8]),
    dict(kernel_shape=[10, 10], pads=[1, 1, 1, 1]),
])
def test_average_pool(attributes: dict, rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    b.output(b.quantize(b.node("AveragePool", b.dequantize(b.input(1, 20, 8, 8), 0.05, 0), **attributes), 0.01, 0))
    graph, _ = check(b, tmp_path)
    assert graph.layers[0].stride == ((2, 2) if "strides" in attributes and attributes["strides"] == [2, 2] else (1, 1))


@pytest.mark.parametrize("form", ["global", "attribute", "input", "channels_last"])
def test_mean_over_space(form: str, rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng, opset=18 if form == "input" else 13)
    x = b.dequantize(b.input(1, 12, 5, 5), zero_point=0)
    match form:
        case "global":
            y = b.node("Flatten", b.node("GlobalAveragePool", x))
        case "attribute":
            y = b.node("ReduceMean", x, axes=[-2, -1], keepdims=0)
        case "input":
            y = b.node("ReduceMean", x, b.constant([2, 3]), keepdims=0)
        case "channels_last":
            y = b.node("ReduceMean", b.node("Transpose", x, perm=[0, 2, 3, 1]), axes=[1, 2], keepdims=0)
    b.output(b.quantize(b.node("MatMul", b.requantize(y, 0.01, 3), b.weights(12, 9, axis=1)), 0.005), rank=2)
    check(b, tmp_path)


# -- inputs and outputs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [np.int8, np.uint8])
@pytest.mark.parametrize("layout", ["nchw", "nhwc", "nhwc_quantised", "flat"])
def test_float_inputs_and_outputs(layout: str, number: type, rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng, number=number)
    shape = {"nchw": (3, 6, 7), "flat": (126,)}.get(layout, (6, 7, 3))
    x = b.input("N", *shape, number=np.float32)
    if layout == "flat":
        x = b.node("Reshape", x, b.constant([-1, 3, 6, 7]))
    if layout == "nhwc":
        x = b.node("Transpose", x, perm=[0, 3, 1, 2])
    x = b.requantize(x, zero_point=90)
    if layout == "nhwc_quantised":
        x = b.node("Transpose", x, perm=[0, 3, 1, 2])
    y = b.requantize(b.node("Conv", x, b.weights(5, 3, 3, 3)), 0.04)
    b.output(b.node("Transpose", y, perm=[0, 2, 3, 1]), np.float32)
    graph, _ = check(b, tmp_path)
    assert graph.tensors[graph.inputs["x"][0]].shape == (3, 6, 7)


@pytest.mark.parametrize("opset", [12, 13])
def test_softmax(opset: int, rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng, opset=opset)
    y = b.node("Conv", b.dequantize(b.input(1, 3, 2, 2), 0.01, 0), b.weights(20, 3, 2, 2, per_channel=False))
    y = b.requantize(b.node("Flatten", y))
    b.output(b.quantize(b.node("Softmax", y), 1 / 256, -128), rank=2)
    graph, _ = check(b, tmp_path)
    steps = graph.outputs[b.outputs[0].name][1]
    assert [step.kind for step in steps] == ["reshape", "dequantize", "softmax", "quantize"]


def test_two_inputs_and_two_outputs(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    one, two = b.dequantize(b.input(1, 4, 5, 5, name="one")), b.dequantize(b.input(1, 4, 5, 5, name="two"))
    total = b.quantize(b.node("Add", one, two), 0.1)
    b.output(total)
    b.output(b.quantize(b.node("Conv", two, b.weights(3, 4, 1, 1))))
    graph, _ = check(b, tmp_path)
    assert set(graph.inputs) == {"one", "two"} and len(graph.outputs) == 2


def test_one_dimensional_convolution(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    y = b.requantize(b.node("Conv", b.dequantize(b.input(1, 4, 30)), b.weights(6, 4, 5), strides=[2], pads=[1, 2]))
    b.output(b.quantize(b.node("MaxPool", y, kernel_shape=[2])), rank=3)
    graph, _ = check(b, tmp_path)
    assert graph.tensors[graph.layers[0].output].shape == (6, 1, 15)


def test_unused_results_are_removed(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    x = b.dequantize(b.input(1, 4, 5, 5))
    b.quantize(b.node("Conv", x, b.weights(3, 4, 3, 3)))
    b.output(b.quantize(b.node("Conv", x, b.weights(3, 4, 1, 1))))
    graph, _ = check(b, tmp_path)
    assert len(graph.layers) == 1 and len(graph.tensors) == 2


def test_nodes_of_constants_are_evaluated(rng: Rng, tmp_path: Path) -> None:
    """Float weights after a QuantizeLinear and a DequantizeLinear, as training frameworks export them."""
    b = Builder(rng)
    scale, point = b.constant(rng.uniform(0.005, 0.01, 6).astype(np.float32)), b.constant(np.zeros(6, np.int8))
    floats = b.constant(rng.normal(0, 0.3, (6, 4, 3, 3)).astype(np.float32))
    weights = b.node("QuantizeLinear", floats, scale, point, axis=0)
    y = b.node("Conv", b.dequantize(b.input(1, 4, 8, 8)), b.node("DequantizeLinear", weights, scale, point, axis=0),
               b.constant(rng.normal(0, 1, 6).astype(np.float32)))
    b.output(b.quantize(b.node("Identity", y)))
    check(b, tmp_path)


# -- operators with scales of their own ----------------------------------------------------------------------------


@pytest.mark.parametrize("number", [np.int8, np.uint8])
def test_qlinear_operators(number: type, rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng, number=number)
    scales = [(b.scale(s), b.point(None)) for s in (0.05, 0.04, 0.03, 0.06, 0.02, 0.01)]

    def weights(*shape: int, count: int) -> list[str]:
        limits = np.iinfo(number)
        array = rng.integers(limits.min, limits.max + 1, shape).astype(number)
        scale = rng.uniform(0.0005, 0.002, count).astype(np.float32)
        zero = np.full(count, (limits.min + limits.max + 1) // 2, number)
        return [b.constant(array), *(b.constant(v if count > 1 else v[0]) for v in (scale, zero))]

    x = b.input(1, 8, 8, 8)
    bias = b.constant(rng.integers(-3000, 3000, 8).astype(np.int32))
    y = b.node("QLinearConv", x, *scales[0], *weights(8, 8, 3, 3, count=8), *scales[1], bias, pads=[1, 1, 1, 1])
    z = b.node("QLinearAdd", x, *scales[0], y, *scales[1], *scales[3], domain="com.microsoft")
    z = b.node("MaxPool", z, kernel_shape=[2, 2], strides=[2, 2])
    z = b.node("QLinearAveragePool", z, *scales[3], *scales[1], domain="com.microsoft", kernel_shape=[2, 2])
    z = b.node("QLinearGlobalAveragePool", z, *scales[1], *scales[4], domain="com.microsoft")
    z = b.node("Flatten", z)
    w = weights(8, 40, count=1)
    z = b.node("QLinearMatMul", z, *scales[4], *w, *scales[4])
    bias = b.constant(rng.integers(-2000, 2000, 30).astype(np.int32))
    w = weights(30, 40, count=1)
    z = b.node("QGemm", z, *scales[4], *w, bias, *scales[5], domain="com.microsoft", transB=1)
    b.output(z, rank=2)
    graph, _ = check(b, tmp_path)
    assert [layer.op for layer in graph.layers] == ["conv", "pool", "pool", "pool", "conv", "conv"]
    assert graph.layers[0].others


def test_float_activations_are_taken_as_float32(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    b.output(b.quantize(b.node("Conv", b.requantize(b.input(1, 3, 4, 4, number=np.float32)), b.weights(4, 3, 1, 1))))
    graph = load(b.save(tmp_path))
    x = b.samples()["x"]
    single, _ = reference.run(graph, {"x": x})
    double, _ = reference.run(graph, {"x": x.astype(np.float64)})
    assert all(np.array_equal(single[name], double[name]) for name in single)


def test_an_output_without_a_shape(rng: Rng, tmp_path: Path) -> None:
    """onnxruntime does not miss it; it follows from the nodes."""
    b = Builder(rng)
    b.output(b.quantize(b.node("Conv", b.dequantize(b.input(1, 3, 6, 6)), b.weights(4, 3, 3, 3))))
    path = b.save(tmp_path)
    model = onnx.load(path)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(model, path)
    assert compare_model(load_model(path), b.samples()).largest <= 1
