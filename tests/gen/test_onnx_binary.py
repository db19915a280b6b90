"""Binarised layers in ONNX models: what is recognised computes what onnxruntime does, with sign(0) = +1."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from cores.config import NpuConfig
from gen.check.compare import compare
from gen.compiler import compile_graph
from gen.ir import reference
from gen.ir.graph import Conv, Graph
from gen.ir.layers.conv import is_binary
from gen.onnx.importer import load, load_model
from tests.gen.qdq import Builder


def run_onnx(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The model's outputs for each sample in onnxruntime, where every Sign gives +1 for 0."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    changed.graph.initializer.append(numpy_helper.from_array(np.float32(0.5), "half"))
    nodes = []
    for node in changed.graph.node:
        if node.op_type != "Sign":
            nodes.append(node)
            continue
        first, last = node.input[0], node.output[0]
        nodes += [helper.make_node("Sign", [first], [f"{last}_0"]), helper.make_node("Add", [f"{last}_0", "half"],
                  [f"{last}_1"]), helper.make_node("Sign", [f"{last}_1"], [last])]
    del changed.graph.node[:]
    changed.graph.node.extend(nodes)
    session = ort.InferenceSession(changed.SerializeToString(), providers=["CPUExecutionProvider"])
    samples = len(next(iter(feeds.values())))
    runs = [session.run(None, {n: x[i:i + 1] for n, x in feeds.items()}) for i in range(samples)]
    return [np.concatenate(values) for values in zip(*runs, strict=True)]


class Signs(Builder):
    """Builder of binarised layers."""

    def sign_weights(self, form: str, *shape: int, transposed: bool = False) -> str:
        """Weights of -1 and 1 times a scale for each output channel, in one of the forms that exporters write."""
        signs = self.rng.choice(np.array([-1, 1], np.int8), shape)
        axis = 1 if transposed else 0
        alpha = self.rng.choice([0.25, 0.5, 1.0, 2.0], shape[axis]).astype(np.float32)
        column = [1] * len(shape)
        column[axis] = -1
        match form:
            case "dequantised":
                zeros = self.constant(np.zeros(shape[axis], np.int8))
                return self.node("DequantizeLinear", self.constant(signs), self.constant(alpha), zeros, axis=axis)
            case "float":
                return self.constant(signs * alpha.reshape(column))
            case "scaled":
                plain = self.node("DequantizeLinear", self.constant(signs), self.scale(1.0), self.constant(np.int8(0)))
                return self.node("Mul", plain, self.constant(alpha.reshape(column)))
        raise ValueError(form)

    def batch_norm(self, value: str, channels: int, spread: float) -> str:
        """Slopes of both signs."""
        rng = self.rng
        gamma = (rng.uniform(0.5, 2, channels) * rng.choice([-1, 1], channels)).astype(np.float32)
        parameters = [gamma, rng.normal(0, 1, channels), rng.normal(0, spread, channels),
                      rng.uniform(0.5, 1.5, channels) * spread ** 2]
        return self.node("BatchNormalization", value, *(self.constant(p.astype(np.float32)) for p in parameters))

    def save_and_run(self, folder: Path, count: int = 3) -> tuple[Graph, list[np.ndarray], list[np.ndarray]]:
        """(graph, our outputs, onnxruntime's)."""
        feeds = self.samples(count)
        graph = load(self.save(folder))
        outputs, _ = reference.run(graph, feeds)
        return graph, list(outputs.values()), run_onnx(self.build(), feeds)


def binary_layers(graph: Graph) -> int:
    return sum(is_binary(layer, graph.tensors[layer.input]) for layer in graph.of(Conv))


def first_signs(b: Signs, channels: int, size: int) -> str:
    """Signs that an int8 convolution makes."""
    x = b.dequantize(b.input(1, 3, size, size), 1 / 64, 0)
    return b.node("Sign", b.node("Conv", x, b.weights(channels, 3, 3, 3), b.bias(channels)))


@pytest.mark.parametrize("form", ["dequantised", "float", "scaled"])
@pytest.mark.parametrize("channels", [16, 9])
@pytest.mark.parametrize("padding", ["none", "zeros", "+1", "-1"])
def test_thresholds(form: str, channels: int, padding: str, rng: np.random.Generator, tmp_path: Path) -> None:
    b = Signs(rng)
    x = first_signs(b, channels, 9)
    if padding in ("+1", "-1"):
        x = b.node("Pad", x, b.constant(np.array([0, 0, 1, 2, 0, 0, 0, 1])), b.constant(np.float32(padding)))
    pads = {"pads": [1, 1, 1, 1]} if padding == "zeros" else {}
    y = b.node("Conv", x, b.sign_weights(form, 24, channels, 3, 3), **pads)
    y = b.node("MaxPool", b.node("Sign", b.batch_norm(y, 24, 12.0)), kernel_shape=[2, 2], strides=[2, 2])
    y = b.node("Sign", b.node("Conv", y, b.sign_weights(form, 10, 24, 1, 1)))
    size = {"none": 2, "zeros": 3, "+1": 3, "-1": 3}[padding]
    columns = 4 if padding in ("+1", "-1") else size
    y = b.node("Flatten", y)
    y = b.node("Gemm", y, b.sign_weights("scaled", 10 * size * columns, 7, transposed=True))
    b.output(y, np.float32, rank=2)
    graph, ours, theirs = b.save_and_run(tmp_path)
    assert binary_layers(graph) == 3
    np.testing.assert_array_equal(ours[0], theirs[0])


@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 0, 0, 1]])
def test_pooled_before_the_threshold(pads: list[int], rng: np.random.Generator, tmp_path: Path) -> None:
    """Convolution, maximum, batch normalisation, sign: slopes of both signs."""
    b = Signs(rng)
    y = b.node("Conv", first_signs(b, 16, 10), b.sign_weights("float", 24, 16, 3, 3))
    y = b.node("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2], pads=pads)
    y = b.node("Clip", b.batch_norm(y, 24, 12.0), b.constant(np.float32(-1)), b.constant(np.float32(1)))
    b.output(b.node("Conv", b.node("Sign", y), b.sign_weights("dequantised", 8, 24, 3, 3)), np.float32)
    graph, ours, theirs = b.save_and_run(tmp_path)
    assert binary_layers(graph) == 2
    np.testing.assert_array_equal(ours[0], theirs[0])


@pytest.mark.parametrize("operator", ["GreaterOrEqual", "Greater", "LessOrEqual", "Less", "Sign"])
@pytest.mark.parametrize("first", [0, 1])
def test_other_ways_to_write_a_sign(operator: str, first: int, rng: np.random.Generator, tmp_path: Path) -> None:
    """Comparisons in front of Where, and a sign that is moved away from zero; zero itself occurs."""
    b = Signs(rng)

    def sign(value: str, numbers: np.ndarray) -> str:
        if operator == "Sign":
            return b.node("Sign", b.node("Add", b.node("Sign", value), b.constant(np.float32(0.1))))
        operands = [value, b.constant(numbers.astype(np.float32))]
        values = [np.float32(1), np.float32(-1)][::1 if first else -1]
        return b.node("Where", b.node(operator, *operands[::1 if first else -1]), *map(b.constant, values))

    x = b.dequantize(b.input(1, 16, 6, 6), 1 / 4, 0)
    y = b.node("Conv", sign(x, rng.integers(-8, 8, (16, 1, 1)) / 4), b.sign_weights("dequantised", 24, 16, 3, 3))
    y = b.batch_norm(y, 24, 12.0) if operator == "Sign" else y
    b.output(b.node("Conv", sign(y, np.zeros(1)), b.sign_weights("float", 8, 24, 1, 1)), np.float32)
    graph, ours, theirs = b.save_and_run(tmp_path)
    assert binary_layers(graph) == 2
    np.testing.assert_array_equal(ours[0], theirs[0])


@pytest.mark.parametrize("quantised", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_residual_stream(quantised: bool, padded: bool, rng: np.random.Generator, tmp_path: Path) -> None:
    """An int8 stream around binary layers: scale and bias stay real, the addition rounds."""
    b, channels = Signs(rng), 32
    x = b.dequantize(b.input(1, channels, 8, 8), 1 / 16, 0)
    for _ in range(2):
        y = b.node("Conv", b.node("Sign", x), b.sign_weights("float", channels, channels, 3, 3),
                   **({"pads": [1, 1, 1, 1]} if padded else {}))
        y = b.batch_norm(y, channels, 240.0)
        if not padded:
            y = b.requantize(y, 1 / 16, 0)
            b.output(y, np.float32)
            break
        x = b.requantize(b.node("Add", b.requantize(y, 1 / 16, 0) if quantised else y, x), 1 / 16, 0)
    else:
        b.output(x, np.float32)
    graph, ours, theirs = b.save_and_run(tmp_path)
    assert binary_layers(graph) == (2 if padded else 1)
    assert sum(bool(layer.others) for layer in graph.layers) == (2 if padded else 0)
    steps = np.abs(ours[0] - theirs[0]) * 16
    assert compare(b.save(tmp_path), b.samples()).largest <= 1
    # The second layer sees the first one's steps: where a sign turns, its sums move. A branch that the model does not
    # quantise is rounded to up to two steps of the sum.
    assert steps.max() <= (2 if quantised else 3) and np.mean(steps > 1) < (0.01 if quantised else 0.05)


@pytest.mark.parametrize("steps", [0.02, 0.5, 2.0, 16.0, 127.0])
@pytest.mark.parametrize("added", [False, True])
def test_biases_between_sums_of_signs(steps: float, added: bool, rng: np.random.Generator, tmp_path: Path) -> None:
    """Results are within one step of the model's, with ``steps`` of them to a sum, and mostly equal."""
    for kernel in (1, 3):
        b, channels = Signs(rng), 16
        x = b.dequantize(b.input(1, channels, 6, 6), 1 / steps if added else 1 / 16, 0)
        weights = b.constant(b.rng.choice(np.array([-1, 1], np.float32), (16, channels, kernel, kernel)))
        value = b.node("Conv", b.node("Sign", x), weights, pads=[kernel // 2] * 4)
        value = b.node("Add", value, b.constant(b.rng.uniform(-2, 2, (16, 1, 1)).astype(np.float32)))
        if added:
            value = b.node("Add", b.requantize(value, 1 / steps, 0), x)
        b.output(b.quantize(value, 1 / steps, 0))
        assert not load_model(b.save(tmp_path)).remarks
        graph, ours, theirs = b.save_and_run(tmp_path)
        assert binary_layers(graph) == 1
        apart = np.abs(ours[0].astype(int) - theirs[0].astype(int))
        assert apart.max() <= 1 and np.mean(apart > 0) <= 0.15 + steps / 64
        assert compare(b.save(tmp_path), b.samples()).largest <= 1


def test_biases_of_channels_that_died(rng: np.random.Generator, tmp_path: Path) -> None:
    """Biases of any size beside ordinary ones: results are within one step of the model's, and the unit's."""
    b, channels = Signs(rng), 32
    x = b.dequantize(b.input(1, channels, 6, 6), 1 / 16, 0)
    weights = rng.choice(np.array([-1, 1], np.float32), (16, channels, 3, 3))
    bias = rng.uniform(-2, 2, 16).astype(np.float32)
    weights[:6] *= np.float32([1e-4, 1e-5, 1e-6, 1e-8, 1e-12, 1e-3])[:, None, None, None]
    bias[:6] = 2, -3, 40, -60, 7, 1e9
    value = b.node("Conv", b.node("Sign", x), b.constant(weights), b.constant(bias))
    b.output(b.quantize(value, 0.4, 0))
    graph, ours, theirs = b.save_and_run(tmp_path)
    assert np.abs(ours[0].astype(int) - theirs[0].astype(int)).max() <= 1
    assert "3 channels with weights so small" in load_model(tmp_path / "model.onnx").remarks[0]
    program, _ = compile_graph(graph, NpuConfig.preset(64, gather=1, binary_rows=4))
    assert [layer.mode for layer in program.layers] == ["binary"]


def test_shifted_signs(rng: np.random.Generator, tmp_path: Path) -> None:
    """Constants between a tensor and its Sign, with slopes of both signs."""
    b, channels = Signs(rng), 16
    x = b.dequantize(b.input(1, channels, 5, 5), 1 / 16, -3)
    shifted = b.node("Add", x, b.constant(rng.normal(0, 2, (channels, 1, 1)).astype(np.float32)))
    turned = b.node("Sub", b.constant(np.float32(0.3)), b.batch_norm(x, channels, 2.0))
    for value in (shifted, turned, b.node("Neg", x), x):
        y = b.node("Conv", b.node("Sign", value), b.sign_weights("dequantised", 8, channels, 3, 3))
        b.output(y, np.float32)
    graph, ours, theirs = b.save_and_run(tmp_path)
    assert binary_layers(graph) == 4
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_exact_scores(rng: np.random.Generator, tmp_path: Path) -> None:
    """Scaled and shifted sums of more than int8, and Softmax after them."""
    b = Signs(rng)
    x = b.node("Flatten", first_signs(b, 32, 9))
    scores = b.node("Gemm", x, b.sign_weights("float", 32 * 49, 10, transposed=True))
    scores = b.node("Add", b.node("Mul", scores, b.constant(np.float32(0.125))),
                    b.constant(rng.integers(-9, 9, 10).astype(np.float32)))
    b.output(scores, np.float32, rank=2)
    b.output(b.node("Softmax", scores), np.float32, rank=2)
    _, ours, theirs = b.save_and_run(tmp_path)
    np.testing.assert_array_equal(ours[0], theirs[0])
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("size", [2, 64])
@pytest.mark.parametrize("channels", [8, 9])
def test_exact_sums_of_larger_weights(channels: int, size: int, rng: np.random.Generator, tmp_path: Path) -> None:
    """Weights that are plus or minus a power of two; of 81 of them the sum of the signs is odd, that of weights even.
    """
    b = Signs(rng)
    weights = size * rng.choice(np.array([-1, 1], np.int8), (6, channels, 3, 3))
    weights = b.node("DequantizeLinear", b.constant(weights.astype(np.int8)), b.scale(0.5), b.constant(np.int8(0)))
    b.output(b.node("Conv", first_signs(b, channels, 8), weights), np.float32)
    graph, ours, theirs = b.save_and_run(tmp_path)
    assert binary_layers(graph) == 1
    np.testing.assert_array_equal(ours[0], theirs[0])


def test_scale_behind_integer_layers(rng: np.random.Generator, tmp_path: Path) -> None:
    """Batch normalisation between an int8 layer and its quantisation."""
    b = Signs(rng)
    x = b.dequantize(b.input(1, 6, 7, 7), 0.02)
    y = b.batch_norm(b.node("Conv", x, b.weights(12, 6, 3, 3), b.bias(12)), 12, 2.0)
    b.output(b.quantize(b.node("Relu", b.node("Div", y, b.constant(np.float32(1.5)))), 0.03))
    _, ours, theirs = b.save_and_run(tmp_path)
    assert np.abs(ours[0].astype(int) - theirs[0]).max() <= 1


def test_trained_network(models: Path) -> None:
    """The trained CNV network: every logit is onnxruntime's."""
    golden = np.load(models / "cnvW1A1_cifar10.golden.npz")
    graph = load(models / "cnvW1A1_cifar10.onnx")
    outputs, _ = reference.run(graph, {"image": golden["image"]})
    np.testing.assert_array_equal(outputs["logits"], golden["ort"])
    assert binary_layers(graph) == 8
