"""Models that cannot be compiled: one line that names the file, the node and what is wrong."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from gen.ir import reference
from gen.ir.errors import GraphError
from gen.ir.host import HostStep, apply_step
from gen.onnx.importer import load
from npudriver.errors import PackageError
from tests.gen.qdq import Builder


def refuse(path: Path, *words: str) -> None:
    with pytest.raises(GraphError) as caught:
        load(path)
    message = str(caught.value)
    assert str(path) in message and "\n" not in message
    for word in words:
        assert word in message, message


def test_no_file(tmp_path: Path) -> None:
    refuse(tmp_path / "nothing.onnx", "No such file")
    refuse(tmp_path, "Is a directory")
    refuse(Path("/dev/zero"), "not a regular file")


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x00" * 100, b'{"json": 1}'])
def test_not_onnx(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    refuse(path)


def test_tensorflow_lite(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(b"\x1c\x00\x00\x00TFL3" + bytes(100))
    refuse(path, "a TensorFlow Lite file; convert it to ONNX first")


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


def _turned_map(b: Builder, x: str) -> str:
    turned = b.node("Transpose", b.requantize(conv(b, x)), perm=[0, 1, 3, 2])
    return b.node("Conv", turned, b.weights(4, 4, 1, 1))


def _other_shapes(b: Builder, x: str) -> str:
    return b.node("Add", x, b.dequantize(b.input(1, 3, 1, 1, name="other")))


def _too_large_scale(b: Builder, x: str) -> str:
    weights = b.node("DequantizeLinear", b.constant(np.ones((4, 3, 3, 3), np.int8)), b.scale(1e5))
    return b.node("Conv", x, weights)


def _behind_transposed(b: Builder, x: str) -> str:
    y = b.node("ConvTranspose", x, b.weights(3, 4, 2, 2, axis=1), strides=[2, 2])
    return b.node("Conv", b.requantize(b.node("Relu", y)), b.weights(4, 4, 1, 1))


def _two_activations(b: Builder, x: str) -> str:
    return b.node("MatMul", x, b.dequantize(b.input(1, 3, 6, 6, name="other")))


def _resized(b: Builder, x: str, scales: list[float], *, mode: str = "nearest", **attributes: str) -> str:
    return b.node("Resize", x, "", b.constant(np.array(scales, np.float32)), mode=mode, **attributes)


MODELS: list[tuple[Callable[[Builder, str], str], tuple[str, ...]]] = [
    (lambda b, x: b.node("Sigmoid", x), ("(Sigmoid): Sigmoid has no layer on the machine", "--features table")),
    (lambda b, x: b.node("Shrink", x), ("Shrink has no layer on the machine", "docs/models.md")),
    (lambda b, x: b.node("PRelu", x, b.constant(np.linspace(0, 1, 6, dtype=np.float32))),
     ("prelu", "must be one number for each channel")),
    (lambda b, x: b.node("PRelu", x, b.constant(np.float32(-1))), ("prelu", "the slope must not be negative, not -1")),
    (lambda b, x: b.node("LeakyRelu", x, alpha=-0.1), ("leakyrelu", "alpha must not be negative, not -0.1")),
    (lambda b, x: b.node("LeakyRelu", conv(b, x)), ("leakyrelu", "unquantised result of node conv")),
    (lambda b, x: b.node("Concat", x, x, axis=1), ("node concat", "repeats one", "nothing but outputs")),
    (lambda b, x: b.node("Concat", x, b.requantize(conv(b, x)), axis=1), ("concat", "shapes (3, 6, 6), (4, 4, 4)")),
    (lambda b, x: b.node("Concat", x, b.requantize(b.node(
        "ConvTranspose", b.requantize(conv(b, x, strides=[2, 2], pads=[1, 1, 1, 1])), b.weights(4, 2, 2, 2, axis=1),
        strides=[2, 2])), axis=1), ("concat", "rows and columns lie apart", "Resize (nearest) with a Conv after it")),
    (lambda b, x: b.node("Add", x, b.node("Transpose", x, perm=[0, 1, 3, 2])),
     ("node add", "of shape (1, 3, 6, 6) lie in different arrangements", "transpose")),
    (lambda b, x: _resized(b, x, [1, 1, 2, 2], mode="linear"), ("resize", "has mode linear", "only nearest")),
    (lambda b, x: _resized(b, x, [1, 1, 1.5, 2]), ("resize", "by 1, 1, 1.5, 2", "only whole factors")),
    (lambda b, x: _resized(b, x, [1, 1, 0.5, 0.5]), ("resize", "by 1, 1, 0.5, 0.5", "only whole factors")),
    (lambda b, x: _resized(b, x, [1, 2, 2, 2]), ("resize", "multiplies samples or channels, by (1, 2)")),
    (lambda b, x: _resized(b, x, [1, 1, 3, 3], nearest_mode="floor"),
     ("resize", "coordinates half_pixel, nearest_mode floor", "asymmetric and floor")),
    (lambda b, x: conv(b, _resized(b, x, [1, 1, 2, 2])), ("conv", "unquantised result of node resize")),
    (lambda b, x: b.node("Slice", conv(b, x), b.constant([0]), b.constant([2])), ("slice", "result of node conv")),
    (lambda b, x: conv(b, b.node("Gather", x, b.constant([0, 1, 3]), axis=3)), ("node gather", "only a part")),
    (lambda b, x: b.node("Slice", x, b.constant([3]), b.constant([3]), b.constant([1])), ("slice", "leaves nothing")),
    (lambda b, x: conv(b, b.node("DepthToSpace", b.requantize(conv(b, x)), blocksize=2)),
     ("node depthtospace", "a rearrangement of tensor quantizelinear", "moves no data")),
    # What is rearranged on its way to its QuantizeLinear is no other's fault either.
    *((lambda b, x, made=made: conv(b, b.requantize(b.node("DepthToSpace", made(b, b.requantize(conv(b, x))),
                                                           blocksize=2))),
       ("node depthtospace", "a rearrangement of tensor quantizelinear", "node conv")) for made in (
           lambda b, y: b.node("Relu", y), lambda b, y: b.node("LeakyRelu", y), lambda b, y: b.node("Add", y, y),
           lambda b, y: b.node("Concat", y, b.requantize(b.node("Relu", y)), axis=1))),
    (lambda b, x: conv(b, b.node("Softmax", x)), ("runs on the processor", "only rearranging may follow")),
    (lambda b, x: b.node("Conv", x, b.weights(4, 3, 3, 3), b.constant(np.ones(3, np.float32))), ("bias", "(3,)")),
    (lambda b, x: b.node("Conv", x, b.weights(4, 3, 3, 3), b.constant(np.full(4, np.nan, np.float32))), ("finite",)),
    (lambda b, x: conv(b, x, dilations=[0, 2]), ("conv", "dilations must be positive")),
    (lambda b, x: conv(b, x, dilations=[32, 1], pads=[99, 0, 99, 0]), ("node conv", "[65, 3] with dilation", "63x63")),
    (lambda b, x: b.node("MaxPool", b.node("Pad", x, b.constant([0, 0, 0, 16, 0, 0, 0, 0])), kernel_shape=[2, 2]),
     ("node pad", "at most 63 rows and 15 columns")),
    (lambda b, x: conv(b, b.node("Slice", b.dequantize(b.input(1, 3, 6, 99, name="wide")), b.constant([70]),
                                 b.constant([99]), b.constant([3]))), ("node slice", "cuts off 70 rows or columns")),
    (lambda b, x: conv(b, x, dilations=[3, 3]), ("conv", "a window of 7 does not fit")),
    (lambda b, x: b.node("ConvTranspose", x, b.weights(4, 3, 3, 3, axis=1)), ("convtranspose", "weights of shape")),
    (lambda b, x: b.node("ConvTranspose", x, b.weights(3, 4, 3, 3, axis=1), strides=[0, 1]), ("must be positive",)),
    (lambda b, x: b.node("ConvTranspose", x, b.weights(3, 4, 3, 3, axis=1), pads=[4, 4, 4, 4]), ("makes 0 rows",)),
    (_behind_transposed, ("node convtranspose", "a rearrangement of tensor quantize", "node conv")),
    (_two_activations, ("matmul", "two activations", "constant weights only")),
    (lambda b, x: b.node("Pad", x, b.constant([0, 0, 1, 1, 0, 0, 1, 1]), mode="edge"), ("pad", "mode edge")),
    (lambda b, x: b.node("Pad", x, b.constant([0, 0, 1, 1, 0, 0, 1, 1]), mode="reflect"), ("pad", "mode reflect")),
    (lambda b, x: b.node("Pad", x, b.constant([0, 1, 0, 0, 0, 0, 0, 0])), ("pad", "other axes than")),
    (lambda b, x: conv(b, b.node("Pad", x, b.constant([0, 0, 1, 1, 0, 0, 1, 1]), b.constant(np.float32(0.07)))),
     ("node pad", "pads with 0.07", "cannot hold")),
    (lambda b, x: conv(b, x, pads=[-1, 0, 0, 0]), ("conv", "pads")),
    (lambda b, x: conv(b, x, kernel_shape=[5, 5]), ("conv", "kernel_shape")),
    (lambda b, x: b.node("Conv", x, b.weights(4, 3, 9, 9)), ("conv", "does not fit")),
    (lambda b, x: b.node("Conv", x, b.weights(4, 5, 3, 3)), ("conv", "5 channels")),
    (lambda b, x: b.node("Conv", x, b.weights(4, 1, 3, 3), group=3), ("conv", "4 output channels", "3 groups")),
    (lambda b, x: b.node("Conv", x, b.weights(4, 3, 3, 3), group=0), ("conv", "0 groups")),
    (lambda b, x: b.node("AveragePool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1]), ("count_include_pad",)),
    (lambda b, x: b.node("MaxPool", x, kernel_shape=[2, 2], dilations=[2, 2]), ("maxpool", "dilation")),
    (lambda b, x: b.node("ReduceMean", x, axes=[2]), ("reducemean", "spatial axes")),
    (lambda b, x: b.node("ReduceMax", x, axes=[3]), ("reducemax", "only the maximum over all spatial axes")),
    (lambda b, x: b.node("Add", x, b.constant(np.arange(6, dtype=np.float32))), ("add", "one number for each channel")),
    (lambda b, x: b.node("Mul", x, x), ("mul", "two activations")),
    (lambda b, x: b.node("Div", b.constant(np.float32(1)), x), ("div", "constant by an activation")),
    (_not_quantised_between, ("the unquantised result of node conv", "put QuantizeLinear and")),
    (_float_weights, ("weights are float",)),
    (_weights_not_constant, ("weights must be constants",)),
    (_weights_by_input_channel, ("per output channel",)),
    (_wide_weights, ("8 bits", "int32")),
    (_zero_scale, ("scales of its weights must be positive",)),
    (_endless_scale, ("node dequantizelinear", "scales of a constant must be finite")),
    (_volume, ("node conv", "one or two spatial axes")),
    (_turned_map, ("node transpose", "moves no data")),
    (_other_shapes, ("a number for each channel", "--features product")),
    (_too_large_scale, ("cannot requantise", "check the scales")),
    (lambda b, x: b.node("Greater", x, b.constant(np.float32(0))), ("quantizelinear", "x is bool")),
]


@pytest.mark.parametrize(("make", "words"), MODELS)
def test_forms_that_are_not_supported(make: Callable[[Builder, str], str], words: tuple[str, ...],
                                      rng: np.random.Generator, tmp_path: Path) -> None:
    b = Builder(rng)
    b.output(b.quantize(make(b, b.dequantize(b.input(1, 3, 6, 6)))))
    refuse(b.save(tmp_path), *words)


def test_float_model(rng: np.random.Generator, tmp_path: Path) -> None:
    b = Builder(rng)
    b.output(conv(b, b.input(1, 3, 6, 6, number=np.float32)), np.float32)
    refuse(b.save(tmp_path), "conv", "takes quantised models", "--calibrate")


def test_result_without_quantisation(rng: np.random.Generator, tmp_path: Path) -> None:
    b = Builder(rng)
    b.output(conv(b, b.dequantize(b.input(1, 3, 6, 6))), np.float32)
    refuse(b.save(tmp_path), "output conv", "put QuantizeLinear")


@pytest.mark.parametrize("scale", ["input", "vector", "zero"])
def test_bad_activation_scales(scale: str, rng: np.random.Generator, tmp_path: Path) -> None:
    b = Builder(rng)
    name = {"input": lambda: b.input(1, 1, name="s", number=np.float32),
            "vector": lambda: b.constant(np.ones(3, np.float32)),
            "zero": lambda: b.scale(0.0)}[scale]()
    x = b.node("DequantizeLinear", b.input(1, 3, 6, 6), name)
    b.output(b.quantize(conv(b, x)))
    word = {"input": "must be a constant", "vector": "per tensor", "zero": "must be positive"}[scale]
    refuse(b.save(tmp_path), "dequantizelinear", word)


def test_sixteen_bit_activations(rng: np.random.Generator, tmp_path: Path) -> None:
    b = Builder(rng, opset=21)
    y = conv(b, b.dequantize(b.input(1, 3, 6, 6)))
    b.output(b.node("QuantizeLinear", y, b.scale(0.1), b.constant(np.int16(0))), np.int16)
    refuse(b.save(tmp_path), "int8 or uint8, not int16")


@pytest.mark.parametrize(("shape", "words"), [
    ((1, 3, "height", "width"), ("input x", "dynamic shape")),
    ((3,), ("node x/whole (Squeeze)", "without an axis of channels"))])
def test_input_shapes(shape: tuple, words: tuple[str, str], rng: np.random.Generator, tmp_path: Path) -> None:
    b = Builder(rng)
    b.output(b.quantize(conv(b, b.dequantize(b.input(*shape)))))
    refuse(b.save(tmp_path), *words)


def test_integer_input_of_another_type(rng: np.random.Generator, tmp_path: Path) -> None:
    b = Builder(rng)
    b.output(b.node("Identity", b.input(1, 3, 6, 6, number=np.int64)), np.int64)
    refuse(b.save(tmp_path), "input x is INT64")


def test_unused_input(rng: np.random.Generator, tmp_path: Path) -> None:
    b = Builder(rng)
    b.input(1, 3, name="unused")
    b.output(b.quantize(conv(b, b.dequantize(b.input(1, 3, 6, 6)))))
    refuse(b.save(tmp_path), "input unused is not used")


@pytest.mark.parametrize("read", [True, False])
def test_second_outputs(read: bool, rng: np.random.Generator, tmp_path: Path) -> None:
    """What a handler does not make is not taken for an input left out."""
    b = Builder(rng)
    y = b.node("Dropout", b.requantize(conv(b, b.dequantize(b.input(1, 3, 6, 6)))))
    b.nodes[-1].output.append("mask")
    b.output(b.node("Where", "mask", b.constant(np.float32(1)), y) if read else y, np.float32)
    if not read:
        b.output("mask", bool)
    word = "(Where): its input mask" if read else "output mask"
    refuse(b.save(tmp_path), f"{word} is a further output of node dropout", "only the first is supported")


def test_nothing_for_the_machine(rng: np.random.Generator, tmp_path: Path) -> None:
    b = Builder(rng)
    x = b.input(1, 3, 6, 6, number=np.float32)
    b.output(b.node("Transpose", b.quantize(x), perm=[0, 2, 3, 1]))
    refuse(b.save(tmp_path), "no output needs a layer of the machine")


@pytest.mark.parametrize("samples", [1, 3])
def test_nodes_without_inputs(samples: int, rng: np.random.Generator, tmp_path: Path) -> None:
    """Which onnx lets pass in domains that are not its own."""
    b = Builder(rng)
    b.output(b.quantize(conv(b, b.dequantize(b.input(samples, 3, 6, 6)))))
    b.output(b.quantize(b.node("Reshape", domain="com.microsoft")), rank=2)
    refuse(b.save(tmp_path), "node reshape", "(com.microsoft.Reshape)")


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
    refuse(b.save(tmp_path), f"node {node.name} ({operator}): {attribute} is an empty list", "export the model again")


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
    refuse(path, f"imports versions {version} and {version + 1} of the operators of {names[0] or 'ai.onnx'}")


def test_no_outputs(rng: np.random.Generator, tmp_path: Path) -> None:
    b = Builder(rng)
    conv(b, b.dequantize(b.input(1, 3, 6, 6)))
    refuse(b.save(tmp_path), "the model has no outputs")


def test_other_formats_of_onnx(tmp_path: Path) -> None:
    """The name of a file does not choose its reader."""
    for name in ("model.json", "model.onnxtxt", "model.textproto"):
        (tmp_path / name).write_text("{}")
        refuse(tmp_path / name, "not a readable ONNX file")


def test_float_input_of_a_quantised_model(rng: np.random.Generator, tmp_path: Path) -> None:
    b = Builder(rng)
    y = b.requantize(conv(b, b.input(1, 3, 6, 6, number=np.float32)))
    b.output(b.quantize(b.node("Conv", y, b.weights(4, 4, 1, 1))))
    refuse(b.save(tmp_path), "node conv1 (Conv): its input is the float input x; put QuantizeLinear")


def test_opset_too_new(rng: np.random.Generator, tmp_path: Path) -> None:
    b = Builder(rng, opset=6)
    b.output(b.node("Relu", b.input(1, 3, number=np.float32)), np.float32, rank=2)
    refuse(b.save(tmp_path), "opset 6")


def test_invalid_model(tmp_path: Path) -> None:
    """Accepted by the parser, refused by the checker: an edge from nowhere."""
    y = helper.make_tensor_value_info("y", TensorProto.INT8, [1, 2])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [], [y])), path)
    refuse(path, "node y (Relu): its input x is made nowhere")


@pytest.mark.parametrize(("inputs", "word"), [
    ({}, "'x' is missing"),
    ({"x": np.zeros((2, 3, 6, 6), np.uint8)}, "must be int8"),
    ({"x": np.zeros((2, 6, 6, 3), np.int8)}, "(samples, 3, 6, 6)"),
    ({"x": np.zeros(108, np.int8)}, "(samples, 3, 6, 6)"),
    ({"x": np.zeros((2, 3, 6, 6), np.int8), "y": np.zeros(1, np.int8)}, "no input 'y'"),
])
def test_inputs_that_do_not_fit(inputs: dict, word: str, rng: np.random.Generator, tmp_path: Path) -> None:
    b = Builder(rng)
    b.output(b.quantize(conv(b, b.dequantize(b.input(1, 3, 6, 6)))))
    graph = load(b.save(tmp_path))
    with pytest.raises(GraphError) as caught:
        reference.run(graph, inputs)
    assert word in str(caught.value)


@pytest.mark.parametrize("operator", ["Div", "BatchNormalization", "Mul"])
def test_constants_that_are_not_finite(operator: str, rng: np.random.Generator, tmp_path: Path) -> None:
    """A division by zero and the root of a negative variance are refused, without a warning of NumPy's before."""
    b = Builder(rng)
    x = b.dequantize(b.input(1, 3, 6, 6))
    one, bad = np.ones(3, np.float32), {"Div": 0, "BatchNormalization": -1, "Mul": np.inf}[operator]
    constants = [one, one, one, np.full(3, bad, np.float32)] if operator == "BatchNormalization" else [np.float32(bad)]
    b.output(b.quantize(b.node(operator, x, *map(b.constant, constants))))
    refuse(b.save(tmp_path), f"node {operator.lower()}", "its constants must be finite")


def test_quantising_what_is_no_number() -> None:
    """A part of a model that the processor computes may make it; infinite is the end of the range."""
    step = HostStep("quantize", {"scale": 0.5, "zero_point": 0, "unsigned": False})
    assert apply_step(step, np.array([[np.inf, -np.inf, 1.2]], np.float32)).tolist() == [[127, -128, 2]]
    with pytest.raises(PackageError, match=r"not numbers \(NaN\)"):
        apply_step(step, np.array([[np.nan]], np.float32))
