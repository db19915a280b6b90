"""Models that cannot be compiled: one line that names the file; code and fields say what is wrong, and with what."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from gen.ir import reference
from gen.ir.errors import GraphError
from gen.ir.host import HostStep, apply_step
from gen.onnx.importer import load
from gen.quantize.options import QuantizeError
from gen.quantize.quantize import quantize
from npudriver.errors import PackageError
from tests.errors import raises
from tests.gen.qdq import Builder


def refuse(path: Path, code: str, **fields: object) -> None:
    with raises(GraphError, code, file=str(path), **fields) as caught:
        load(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_no_file(tmp_path: Path) -> None:
    refuse(tmp_path / "nothing.onnx", "unreadable-file")
    refuse(tmp_path, "unreadable-file")
    refuse(Path("/dev/zero"), "unreadable-file")


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x00" * 100, b'{"json": 1}'])
def test_not_onnx(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    refuse(path, "not-a-model" if content else "unreadable-file")


def test_tensorflow_lite(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(b"\x1c\x00\x00\x00TFL3" + bytes(100))
    refuse(path, "not-a-model")


def test_truncated(rng: np.random.Generator, tmp_path: Path) -> None:
    """Cut anywhere, a model is refused or, where only the end of its metadata is missing, still whole."""
    b = Builder(rng)
    b.output(b.quantize(b.node("Conv", b.dequantize(b.input(1, 3, 6, 6)), b.weights(4, 3, 3, 3))))
    whole = b.build().SerializeToString()
    path = tmp_path / "model.onnx"
    refused = 0
    for length in range(1, len(whole), 7):
        path.write_bytes(whole[:length])
        try:
            load(path)
        except GraphError as error:
            refused += 1
            assert str(path) in str(error) and "\n" not in str(error)
    assert refused >= len(range(1, len(whole), 7)) - 2


@pytest.mark.parametrize("kind", ["bytes", "attribute", "dims", "operator"])
def test_damaged(kind: str, rng: np.random.Generator, tmp_path: Path) -> None:
    """Random damage is refused or makes another model, never anything else."""
    b = Builder(rng)
    y = b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, 8, 8)), b.weights(4, 3, 3, 3), strides=[1, 1]))
    y = b.node("Flatten", b.requantize(b.node("MaxPool", b.node("Add", y, y), kernel_shape=[2, 2], pads=[0, 0, 0, 0])))
    b.output(b.quantize(b.node("Gemm", y, b.weights(100, 5, axis=1), transB=0)), rank=2)
    whole, path = b.build().SerializeToString(), tmp_path / "model.onnx"
    for _ in range(60):
        model = onnx.load_from_string(whole)
        node = model.graph.node[rng.integers(len(model.graph.node))]
        tensor = model.graph.initializer[rng.integers(len(model.graph.initializer))]
        match kind:
            case "attribute":
                for attribute in node.attribute:
                    if attribute.ints:
                        attribute.ints[rng.integers(len(attribute.ints))] = int(rng.integers(-3, 70))
                    else:
                        attribute.i = int(rng.integers(-3, 4))
            case "dims" if tensor.dims:
                tensor.dims[rng.integers(len(tensor.dims))] += int(rng.integers(-2, 3))
            case "operator":
                node.op_type = str(rng.choice([
                    "Relu", "Add", "Conv", "Gemm", "MatMul", "MaxPool", "AveragePool", "Clip", "Reshape", "Transpose",
                    "Softmax", "ReduceMean", "Squeeze", "Shape", "QLinearConv", "QGemm", "QuantizeLinear",
                    "DequantizeLinear", "LeakyRelu", "Concat"]))
        content = bytearray(model.SerializeToString())
        if kind == "bytes":
            content[rng.integers(len(content))] = rng.integers(256)
        path.write_bytes(content)
        try:
            load(path)
        except GraphError as error:
            assert str(path) in str(error) and "\n" not in str(error)


def conv(b: Builder, x: str, **attributes: object) -> str:
    return b.node("Conv", x, b.weights(4, 3, 3, 3), **attributes)


def _not_quantised_between(b: Builder, x: str) -> str:
    return b.node("Conv", conv(b, x), b.weights(2, 4, 1, 1))


def _float_weights(b: Builder, x: str) -> str:
    return b.node("Conv", x, b.constant(np.ones((4, 3, 3, 3), np.float32)))


def _weights_not_constant(b: Builder, x: str) -> str:
    return b.node("Conv", x, b.dequantize(b.input(1, 3, 3, 3, name="w")))


def _weights_by_input_channel(b: Builder, x: str) -> str:
    return b.node("Conv", x, b.weights(4, 3, 3, 3, axis=1))


def _wide_weights(b: Builder, x: str) -> str:
    weights = b.node("DequantizeLinear", b.constant(np.ones((4, 3, 3, 3), np.int32)), b.scale(0.1))
    return b.node("Conv", x, weights)


def _zero_scale(b: Builder, x: str) -> str:
    weights = b.node("DequantizeLinear", b.constant(np.ones((4, 3, 3, 3), np.int8)), b.scale(0.0))
    return b.node("Conv", x, weights)


def _endless_scale(b: Builder, x: str) -> str:
    scales = np.array([1, 1, np.nan, np.inf], np.float32)
    bias = b.node("DequantizeLinear", b.constant(np.ones(4, np.int32)), b.constant(scales), axis=0)
    return b.node("Conv", x, b.weights(4, 3, 3, 3), bias)


def _volume(b: Builder, x: str) -> str:
    return b.node("Conv", b.dequantize(b.input(1, 3, 4, 4, 4, name="volume")), b.weights(4, 3, 1, 1, 1))


def _other_shapes(b: Builder, x: str) -> str:
    return b.node("Add", x, b.dequantize(b.input(1, 3, 1, 1, name="other")))


def _too_large_scale(b: Builder, x: str) -> str:
    weights = b.node("DequantizeLinear", b.constant(np.ones((4, 3, 3, 3), np.int8)), b.scale(1e5))
    return b.node("Conv", x, weights)


def _two_activations(b: Builder, x: str) -> str:
    return b.node("MatMul", x, b.dequantize(b.input(1, 3, 6, 6, name="other")))


def _resized(b: Builder, x: str, scales: list[float], *, mode: str = "nearest", **attributes: str) -> str:
    return b.node("Resize", x, "", b.constant(np.array(scales, np.float32)), mode=mode, **attributes)


MODELS: list[tuple[Callable[[Builder, str], str], dict[str, Any]]] = [
    (lambda b, x: b.node("Sigmoid", x), dict(code="needs-unit", operator="Sigmoid", unit="table")),
    (lambda b, x: b.node("ReverseSequence", x, b.constant(np.array([4]))),
     dict(code="unsupported-operator", operator="ReverseSequence")),
    (lambda b, x: b.node("PRelu", x, b.constant(np.linspace(0, 1, 6, dtype=np.float32))),
     dict(code="operand-shapes", operator="PRelu")),
    (lambda b, x: b.node("PRelu", x, b.constant(np.float32(-1))),
     dict(code="needs-unit", operator="PRelu", unit="table")),
    (lambda b, x: b.node("LeakyRelu", x, alpha=-0.1), dict(code="needs-unit", operator="LeakyRelu", unit="table")),
    (lambda b, x: b.node("LeakyRelu", b.node("Add", conv(b, x), b.requantize(conv(b, x)))),
     dict(code="not-quantised", operator="LeakyRelu")),
    (lambda b, x: b.node("Concat", x, b.requantize(conv(b, x)), axis=1),
     dict(code="operand-shapes", operator="Concat")),
    (lambda b, x: _resized(b, x, [1, 1, 2, 2], mode="cubic"),
     dict(code="unsupported-form", operator="Resize", attribute="mode")),
    (lambda b, x: _resized(b, x, [1, 1, 0, 2], mode="linear"),
     dict(code="bad-attribute", operator="Resize", attribute="scales")),
    (lambda b, x: _resized(b, x, [1, 1, 2.1, 2], mode="linear"),
     dict(code="unsupported-form", operator="Resize", attribute="scales")),
    (lambda b, x: _resized(b, x, [1, 2, 2, 2]), dict(code="unsupported-form", operator="Resize", attribute="scales")),
    (lambda b, x: b.node("Slice", conv(b, x), b.constant([0]), b.constant([2])),
     dict(code="not-quantised", operator="Slice", maker="conv2")),
    (lambda b, x: b.node("Slice", x, b.constant([3]), b.constant([3]), b.constant([1])),
     dict(code="bad-shape", operator="Slice")),
    (lambda b, x: conv(b, b.node("Softmax", x)), dict(code="after-processor", operator="Conv")),
    (lambda b, x: b.node("Conv", x, b.weights(4, 3, 3, 3), b.constant(np.ones(3, np.float32))),
     dict(code="bad-bias", operator="Conv")),
    (lambda b, x: b.node("Conv", x, b.weights(4, 3, 3, 3), b.constant(np.full(4, np.nan, np.float32))),
     dict(code="bad-bias", operator="Conv")),
    (lambda b, x: conv(b, x, dilations=[0, 2]), dict(code="bad-attribute", operator="Conv")),
    (lambda b, x: conv(b, b.dequantize(b.input(1, 3, 99, 99, name="high")), dilations=[32, 32]),
     dict(code="too-large", operator="Conv", limit=63)),
    (lambda b, x: b.node("Conv", x, b.weights(4, 3, 1, 1), pads=[0, 61, 0, 0]),
     dict(code="too-large", operator="Conv", limit=60)),
    (lambda b, x: b.node("MaxPool", b.node("Pad", x, b.constant([0, 0, 0, 16, 0, 0, 0, 0])), kernel_shape=[2, 2]),
     dict(code="too-large", operator="Pad")),
    (lambda b, x: conv(b, x, dilations=[3, 3]), dict(code="bad-shape", operator="Conv")),
    (lambda b, x: b.node("ConvTranspose", x, b.weights(4, 3, 3, 3, axis=1)),
     dict(code="operand-shapes", operator="ConvTranspose")),
    (lambda b, x: b.node("ConvTranspose", x, b.weights(3, 4, 3, 3, axis=1), strides=[0, 1]),
     dict(code="bad-attribute", operator="ConvTranspose")),
    (lambda b, x: b.node("ConvTranspose", x, b.weights(3, 4, 3, 3, axis=1), pads=[4, 4, 4, 4]),
     dict(code="too-large", operator="ConvTranspose")),
    (_two_activations, dict(code="needs-unit", operator="MatMul", unit="gather")),
    (lambda b, x: b.node("Pad", x, b.constant([1, 0, 0, 0, 0, 0, 0, 0])),
     dict(code="unsupported-form", operator="Pad", attribute="pads")),
    (lambda b, x: b.node("Pad", x, b.constant([0, 1 << 40, 0, 0, 0, 0, 0, 0])),
     dict(code="too-large", operator="Pad")),
    (lambda b, x: conv(b, b.node("Pad", x, b.constant([0, 0, 1, 1, 0, 0, 1, 1]), b.constant(np.float32(0.07)))),
     dict(code="unsupported-form", operator="Pad")),
    (lambda b, x: conv(b, x, pads=[-1, 0, 0, 0]), dict(code="bad-attribute", operator="Conv", attribute="pads")),
    (lambda b, x: conv(b, x, kernel_shape=[5, 5]),
     dict(code="bad-attribute", operator="Conv", attribute="kernel_shape")),
    (lambda b, x: b.node("Conv", x, b.weights(4, 3, 9, 9)), dict(code="bad-shape", operator="Conv")),
    (lambda b, x: b.node("Conv", x, b.weights(4, 5, 3, 3)), dict(code="operand-shapes", operator="Conv")),
    (lambda b, x: b.node("Conv", x, b.weights(4, 1, 3, 3), group=3), dict(code="operand-shapes", operator="Conv")),
    (lambda b, x: b.node("Conv", x, b.weights(4, 3, 3, 3), group=0), dict(code="operand-shapes", operator="Conv")),
    (lambda b, x: b.node("AveragePool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
     dict(code="unsupported-form", operator="AveragePool", attribute="count_include_pad")),
    (lambda b, x: b.node("MaxPool", x, kernel_shape=[2, 2], dilations=[2, 2]),
     dict(code="unsupported-form", operator="MaxPool", attribute="dilations")),
    (lambda b, x: b.node("ReduceMax", x, axes=[3]),
     dict(code="unsupported-form", operator="ReduceMax", attribute="axes")),
    (lambda b, x: b.node("Add", x, b.constant(np.ones((2, 3, 6, 6), np.float32))),
     dict(code="operand-shapes", operator="Add")),
    (lambda b, x: b.node("Mul", x, x), dict(code="needs-unit", operator="Mul", unit="table")),
    (lambda b, x: b.node("Div", b.constant(np.float32(1)), x), dict(code="needs-unit", operator="Div", unit="table")),
    (_not_quantised_between, dict(code="not-quantised", operator="Conv", maker="conv2")),
    (_float_weights, dict(code="not-quantised", operator="Conv")),
    (_weights_not_constant, dict(code="not-constant", operator="Conv")),
    (_weights_by_input_channel, dict(code="bad-scale", operator="Conv")),
    (_wide_weights, dict(code="value-type", operator="Conv")),
    (_zero_scale, dict(code="bad-scale", operator="Conv")),
    (_endless_scale, dict(code="bad-scale", operator="DequantizeLinear")),
    (_volume, dict(code="bad-shape", operator="Conv")),
    (_other_shapes, dict(code="needs-unit", operator="Add", unit="product")),
    (_too_large_scale, dict(code="requantisation", operator="Conv")),
    (lambda b, x: b.node("Greater", x, b.constant(np.float32(0))), dict(code="invalid-model")),
]


@pytest.mark.parametrize(("make", "about"), MODELS)
def test_forms_that_are_not_supported(make: Callable[[Builder, str], str], about: dict[str, Any],
                                      rng: np.random.Generator, tmp_path: Path) -> None:
    b = Builder(rng)
    b.output(b.quantize(make(b, b.dequantize(b.input(1, 3, 6, 6)))))
    refuse(b.save(tmp_path), **about)


def test_float_model(rng: np.random.Generator, tmp_path: Path) -> None:
    b = Builder(rng)
    b.output(conv(b, b.input(1, 3, 6, 6, number=np.float32)), np.float32)
    refuse(b.save(tmp_path), "float-model", operator="Conv", input="x")


def test_result_without_quantisation(rng: np.random.Generator, tmp_path: Path) -> None:
    b = Builder(rng)
    b.output(conv(b, b.dequantize(b.input(1, 3, 6, 6))), np.float32)
    refuse(b.save(tmp_path), "not-quantised", output="conv2_y", maker="conv2")


@pytest.mark.parametrize("scale", ["input", "vector", "zero"])
def test_bad_activation_scales(scale: str, rng: np.random.Generator, tmp_path: Path) -> None:
    b = Builder(rng)
    name = {"input": lambda: b.input(1, 1, name="s", number=np.float32),
            "vector": lambda: b.constant(np.ones(3, np.float32)),
            "zero": lambda: b.scale(0.0)}[scale]()
    x = b.node("DequantizeLinear", b.input(1, 3, 6, 6), name)
    b.output(b.quantize(conv(b, x)))
    refuse(b.save(tmp_path), "not-constant" if scale == "input" else "bad-scale", operator="DequantizeLinear")


def test_sixteen_bit_activations(rng: np.random.Generator, tmp_path: Path) -> None:
    b = Builder(rng, opset=21)
    y = conv(b, b.dequantize(b.input(1, 3, 6, 6)))
    b.output(b.node("QuantizeLinear", y, b.scale(0.1), b.constant(np.int16(0))), np.int16)
    refuse(b.save(tmp_path), "value-type", operator="QuantizeLinear")


@pytest.mark.parametrize(("shape", "about"), [
    ((1, 3, "height", "width"), dict(code="open-shape", input="x")),
    ((3,), dict(code="bad-shape", operator="Conv"))])
def test_input_shapes(shape: tuple, about: dict[str, Any], rng: np.random.Generator, tmp_path: Path) -> None:
    b = Builder(rng)
    b.output(b.quantize(conv(b, b.dequantize(b.input(*shape)))))
    refuse(b.save(tmp_path), **about)


def test_integer_input_of_another_type(rng: np.random.Generator, tmp_path: Path) -> None:
    b = Builder(rng)
    b.output(b.node("Identity", b.input(1, 3, 6, 6, number=np.int64)), np.int64)
    refuse(b.save(tmp_path), "value-type", input="x")


def test_unused_input(rng: np.random.Generator, tmp_path: Path) -> None:
    b = Builder(rng)
    b.input(1, 3, name="unused")
    b.output(b.quantize(conv(b, b.dequantize(b.input(1, 3, 6, 6)))))
    refuse(b.save(tmp_path), "unused-input", input="unused")


@pytest.mark.parametrize("read", [True, False])
def test_second_outputs(read: bool, rng: np.random.Generator, tmp_path: Path) -> None:
    """What a handler does not make is not taken for an input left out."""
    b = Builder(rng)
    y = b.node("Dropout", b.requantize(conv(b, b.dequantize(b.input(1, 3, 6, 6)))))
    b.nodes[-1].output.append("mask")
    b.output(b.node("Where", "mask", b.constant(np.float32(1)), y) if read else y, np.float32)
    if not read:
        b.output("mask", bool)
    refuse(b.save(tmp_path), "no-value", **(dict(operator="Where") if read else dict(output="mask")))


def test_nothing_for_the_machine(rng: np.random.Generator, tmp_path: Path) -> None:
    b = Builder(rng)
    x = b.input(1, 3, 6, 6, number=np.float32)
    b.output(b.node("Transpose", b.quantize(x), perm=[0, 2, 3, 1]))
    refuse(b.save(tmp_path), "no-layers")


@pytest.mark.parametrize("samples", [1, 3])
def test_nodes_without_inputs(samples: int, rng: np.random.Generator, tmp_path: Path) -> None:
    """Which onnx lets pass in domains that are not its own."""
    b = Builder(rng)
    b.output(b.quantize(conv(b, b.dequantize(b.input(samples, 3, 6, 6)))))
    b.output(b.quantize(b.node("Reshape", domain="com.microsoft")), rank=2)
    refuse(b.save(tmp_path), "contradiction", operator="Reshape")


@pytest.mark.parametrize(("operator", "attribute"), [
    ("Conv", "kernel_shape"), ("Conv", "pads"), ("MaxPool", "kernel_shape"), ("MaxPool", "strides"),
    ("ConvTranspose", "kernel_shape"), ("ConvTranspose", "output_shape")])
def test_windows_of_no_axes(operator: str, attribute: str, rng: np.random.Generator, tmp_path: Path) -> None:
    """An empty list is no attribute that is left out; onnxruntime refuses it, too."""
    b = Builder(rng)
    x = b.dequantize(b.input(1, 3, 6, 6))
    weights = [] if operator == "MaxPool" else [b.weights(3, 3, 3, 3, axis=int(operator == "ConvTranspose"))]
    b.output(b.quantize(b.node(operator, x, *weights)))
    node = b.nodes[-2]
    node.attribute.append(helper.make_attribute(attribute, [], attr_type=onnx.AttributeProto.INTS))
    if operator == "MaxPool" and attribute != "kernel_shape":
        node.attribute.append(helper.make_attribute("kernel_shape", [2, 2]))
    refuse(b.save(tmp_path), "invalid-model", node=node.name, attribute=attribute)


@pytest.mark.parametrize("names", [("", ""), ("", "ai.onnx"), ("com.microsoft", "com.microsoft")])
def test_two_versions_of_a_domain(names: tuple[str, str], rng: np.random.Generator, tmp_path: Path) -> None:
    """Tools take either; a version that is said twice does no harm."""
    b = Builder(rng)
    b.output(b.quantize(conv(b, b.dequantize(b.input(1, 3, 6, 6)))))
    model, path = b.build(), tmp_path / "model.onnx"
    version = {entry.domain: entry.version for entry in model.opset_import}[names[0]]
    model.opset_import.append(helper.make_opsetid(names[1], version))
    onnx.save(model, path)
    load(path)
    model.opset_import[-1].version += 1
    onnx.save(model, path)
    refuse(path, "invalid-model", domain=names[0] or "ai.onnx")


def test_no_outputs(rng: np.random.Generator, tmp_path: Path) -> None:
    b = Builder(rng)
    conv(b, b.dequantize(b.input(1, 3, 6, 6)))
    refuse(b.save(tmp_path), "invalid-model")


def test_other_formats_of_onnx(tmp_path: Path) -> None:
    """The name of a file does not choose its reader."""
    for name in ("model.json", "model.onnxtxt", "model.textproto"):
        (tmp_path / name).write_text("{}")
        refuse(tmp_path / name, "not-a-model")


def test_float_input_of_a_quantised_model(rng: np.random.Generator, tmp_path: Path) -> None:
    b = Builder(rng)
    y = b.requantize(conv(b, b.input(1, 3, 6, 6, number=np.float32)))
    b.output(b.quantize(b.node("Conv", y, b.weights(4, 4, 1, 1))))
    refuse(b.save(tmp_path), "float-input", node="conv1", input="x")


def test_opset_too_new(rng: np.random.Generator, tmp_path: Path) -> None:
    b = Builder(rng, opset=6)
    b.output(b.node("Relu", b.input(1, 3, number=np.float32)), np.float32, rank=2)
    refuse(b.save(tmp_path), "unsupported-opset", found=6)


def test_trees_alone(tmp_path: Path) -> None:
    """A model of no operators of ONNX's own imports none: what it has is named, not an opset."""
    node = helper.make_node("Scaler", ["x"], ["y"], domain="ai.onnx.ml", offset=[1.0], scale=[2.0])
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3]) for name in "xy"]
    model = helper.make_model(helper.make_graph([node], "trees", values[:1], values[1:]),
                              opset_imports=[helper.make_opsetid("ai.onnx.ml", 1)])
    onnx.save(model, tmp_path / "m.onnx")
    refuse(tmp_path / "m.onnx", "unsupported-operator")
    with raises(QuantizeError, "nothing-to-quantise"):
        quantize(model, {"x": np.zeros((4, 3), np.float32)})


def test_invalid_model(tmp_path: Path) -> None:
    """Accepted by the parser, refused by the checker: an edge from nowhere."""
    y = helper.make_tensor_value_info("y", TensorProto.INT8, [1, 2])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [], [y])), path)
    refuse(path, "invalid-model", operator="Relu", input="x")


@pytest.mark.parametrize(("inputs", "code"), [
    ({}, "sample-names"),
    ({"x": np.zeros((2, 3, 6, 6), np.uint8)}, "sample-type"),
    ({"x": np.zeros((2, 6, 6, 3), np.int8)}, "sample-shape"),
    ({"x": np.zeros(108, np.int8)}, "sample-shape"),
    ({"x": np.zeros((2, 3, 6, 6), np.int8), "y": np.zeros(1, np.int8)}, "sample-names"),
])
def test_inputs_that_do_not_fit(inputs: dict, code: str, rng: np.random.Generator, tmp_path: Path) -> None:
    b = Builder(rng)
    b.output(b.quantize(conv(b, b.dequantize(b.input(1, 3, 6, 6)))))
    graph = load(b.save(tmp_path))
    with raises(GraphError, code):
        reference.run(graph, inputs)


@pytest.mark.parametrize("operator", ["Div", "BatchNormalization", "Mul"])
def test_constants_that_are_not_finite(operator: str, rng: np.random.Generator, tmp_path: Path) -> None:
    """A division by zero and the root of a negative variance are refused, without a warning of NumPy's before."""
    b = Builder(rng)
    x = b.dequantize(b.input(1, 3, 6, 6))
    one, bad = np.ones(3, np.float32), {"Div": 0, "BatchNormalization": -1, "Mul": np.inf}[operator]
    constants = [one, one, one, np.full(3, bad, np.float32)] if operator == "BatchNormalization" else [np.float32(bad)]
    b.output(b.quantize(b.node(operator, x, *map(b.constant, constants))))
    refuse(b.save(tmp_path), "needs-unit" if operator == "Div" else "bad-scale", operator=operator)


def test_quantising_what_is_no_number() -> None:
    """A part of a model that the processor computes may make it; infinite is the end of the range."""
    step = HostStep("quantize", {"scale": 0.5, "zero_point": 0, "unsigned": False})
    assert apply_step(step, np.array([[np.inf, -np.inf, 1.2]], np.float32)).tolist() == [[127, -128, 2]]
    with raises(PackageError, "bad-input"):
        apply_step(step, np.array([[np.nan]], np.float32))
