"""Operators that are composed of layers: LeakyRelu and Concat, against onnxruntime and on the functional simulator."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from cores.config import NpuConfig
from gen.ir import reference
from gen.ir.epilogue.leaky import Leaky
from gen.ir.graph import Conv, Pool
from gen.onnx.importer import load
from tests.compiled import compile_kept
from tests.epilogues import operation
from tests.gen.qdq import Builder
from tests.gen.test_compiler import run_and_compare
from tests.gen.test_onnx_import import check

Rng = np.random.Generator


def differences(b: Builder, folder: Path) -> np.ndarray:
    """Of a model with one output, on samples that hold every value."""
    path = b.save(folder)
    (name,) = (value.name for value in b.inputs)
    shape = [d.dim_value for d in b.inputs[0].type.tensor_type.shape.dim[1:]]
    limits = np.iinfo(b.number)
    x = np.resize(np.arange(limits.min, limits.max + 1), (1, *shape)).astype(b.number)
    (theirs,) = ort.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"]).run(None, {name: x})
    (ours,) = reference.run(load(path), {name: x})[0].values()
    return np.abs(ours.astype(np.int16) - theirs)


@pytest.mark.parametrize("number", [np.int8, np.uint8])
@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.5, 0.999, 1.5, 20.0])
def test_leaky_relu(alpha: float, number: type, rng: Rng, tmp_path: Path) -> None:
    """One layer that rounds once: no value is further off than a tie, and few are."""
    b = Builder(rng, number=number)
    x = b.dequantize(b.input(1, 4, 8, 32), 0.05)
    b.output(b.quantize(b.node("LeakyRelu", x, alpha=alpha), 0.043))
    found = differences(b, tmp_path)
    assert found.max() <= 1 and np.count_nonzero(found) <= 4 * 4    # each value is there four times
    (layer,) = load(tmp_path / "model.onnx").layers
    assert isinstance(layer, Pool) and operation(layer, Leaky)


def test_leaky_relu_of_coarse_steps(rng: Rng, tmp_path: Path) -> None:
    """A step of the input is twenty of the output, more than multipliers make: what clips may be cut finer."""
    b = Builder(rng)
    x = b.dequantize(b.input(1, 4, 8, 32), 1.0)
    b.output(b.quantize(b.node("LeakyRelu", x, alpha=0.01), 0.049))
    assert differences(b, tmp_path).max() <= 1


@pytest.mark.parametrize("number", [np.int8, np.uint8])
@pytest.mark.parametrize(("alpha", "point", "layers"), [
    (0.1, -110, 1), (0.1, 0, 2), (0.01, -126, 1), (0.5, 0, 1), (3.0, 0, 2), (0.0, -128, 1), (1.0, 0, 1)])
def test_leaky_relu_of_a_result_that_is_not_quantised(alpha: float, point: int, layers: int, number: type, rng: Rng,
                                                      tmp_path: Path) -> None:
    """Where nine bits hold what is positive and what is negative of it in steps of the result, one layer."""
    b = Builder(rng, number=number)
    x = b.node("Conv", b.dequantize(b.input(1, 3, 8, 8)), b.weights(20, 3, 3, 3), b.bias(20))
    y = b.quantize(b.node("LeakyRelu", x, alpha=alpha), 0.03, point + 128 * (number is np.uint8))
    b.output(y)
    graph, _ = check(b, tmp_path)
    assert len(graph.layers) == layers


def test_prelu_of_a_result_that_is_not_quantised(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    x = b.node("Conv", b.dequantize(b.input(1, 3, 8, 8)), b.weights(20, 3, 3, 3), b.bias(20))
    slopes = b.constant(np.linspace(0, 1.2, 20, dtype=np.float32).reshape(20, 1, 1))
    y = b.requantize(b.node("PRelu", x, slopes), 0.03, 5)
    b.output(b.quantize(b.node("Conv", y, b.weights(8, 20, 1, 1)), 0.03))
    graph, _ = check(b, tmp_path)
    assert len(graph.layers) == 3


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_leaky_relu_that_is_none(alpha: float, rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    x = b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, 6, 6)), b.weights(4, 3, 3, 3)), 0.05, 3)
    b.output(b.quantize(b.node("LeakyRelu", x, alpha=alpha), 0.05, 3))
    graph, _ = check(b, tmp_path)
    assert len(graph.layers) == 1


def test_leaky_relu_in_front_of_others(rng: Rng, tmp_path: Path) -> None:
    """A Clip after it is in its layer, a MaxPool gets a tensor of its own."""
    b = Builder(rng)
    x = b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, 8, 8)), b.weights(6, 3, 3, 3)))
    y = b.node("Clip", b.node("LeakyRelu", x, alpha=0.1), b.constant(np.float32(-0.2)), b.constant(np.float32(2)))
    b.output(b.quantize(b.node("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])))
    graph, _ = check(b, tmp_path)
    assert [(type(layer), operation(layer, Leaky) is None) for layer in graph.layers] == [(Conv, False), (Pool, True)]


@pytest.mark.parametrize("operator", ["LeakyRelu", "PRelu"])
def test_in_the_layer_in_front(operator: str, rng: Rng, tmp_path: Path) -> None:
    """No layer of its own, also with a Resize in between; exact in the units that the model has in between."""
    b = Builder(rng)
    x = b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, 8, 8)), b.weights(20, 3, 3, 3)), 0.05, 21)
    x = b.requantize(b.node("Resize", x, "", b.constant(np.array([1, 1, 2, 2], np.float32)), mode="nearest"), 0.05, 21)
    slope = {"alpha": 0.2} if operator == "LeakyRelu" else {}
    slopes = [] if slope else [b.constant(np.full((20, 1, 1), 0.2, np.float32))]
    b.output(b.quantize(b.node(operator, x, *slopes, **slope), 0.037, -50))
    graph, comparison = check(b, tmp_path)
    (layer,) = graph.layers
    assert isinstance(layer, Conv) and operation(layer, Leaky) and layer.repeats == (2, 2)
    assert [row.op for row in comparison.layers][-1] == "leaky"
    for config in (NpuConfig.preset(16), NpuConfig.preset(64, depthwise=1)):
        program, kept = compile_kept(graph, config)
        run_and_compare(program, kept, 1, ("load", "store"))


def test_beside_other_readers(rng: Rng, tmp_path: Path) -> None:
    """A copy where what is bent is needed as it is, too, or made by an addition."""
    b = Builder(rng)
    x = b.dequantize(b.input(1, 4, 8, 8))
    y = b.requantize(b.node("Conv", x, b.weights(4, 4, 1, 1)), 0.05, 3)
    total = b.requantize(b.node("Add", b.requantize(b.node("LeakyRelu", y, alpha=0.1)), y))
    b.output(b.quantize(b.node("LeakyRelu", total, alpha=0.3)))
    graph, _ = check(b, tmp_path)
    assert [(type(layer), bool(operation(layer, Leaky)), bool(layer.others)) for layer in graph.layers] == [
        (Conv, False, False), (Pool, True, False), (Pool, False, True), (Pool, True, False)]


def test_qlinear_leaky_relu(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    y = b.node("QLinearLeakyRelu", b.input(1, 4, 8, 32), b.scale(0.05), b.point(3), b.scale(0.043), b.point(-7),
               domain="com.microsoft", alpha=0.1)
    b.output(y)
    found = differences(b, tmp_path)
    assert found.max() <= 1 and np.count_nonzero(found) <= 4 * 4


def branches(b: Builder, *, quantised: bool) -> list[str]:
    """Three results of one input, of one size, with activation functions."""
    x = b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, 7, 7)), b.weights(20, 3, 3, 3)))
    parts = [x, b.node("Conv", x, b.weights(5, 20, 1, 1)),
             b.node("Relu", b.node("Conv", x, b.weights(40, 20, 3, 3), pads=[1, 1, 1, 1]))]
    return [b.requantize(part, 0.03 + 0.02 * i) for i, part in enumerate(parts)] if quantised else parts


def concatenated(b: Builder, *, quantised: bool = True) -> str:
    return b.requantize(b.node("Concat", *branches(b, quantised=quantised), axis=1))


def of_integers(b: Builder) -> str:
    """Integers side by side, which one scale explains."""
    return b.dequantize(b.node("Concat", *(_integers(b, part) for part in branches(b, quantised=True)), axis=1))


def _integers(b: Builder, real: str) -> str:
    return next(node for node in b.nodes if node.output[0] == real).input[0]


def of_pixels(b: Builder) -> str:
    """Channels last."""
    parts = [b.node("Transpose", part, perm=[0, 2, 3, 1]) for part in branches(b, quantised=True)]
    return b.node("Transpose", b.requantize(b.node("Concat", *parts, axis=-1)), perm=[0, 3, 1, 2])


def clipped(b: Builder) -> str:
    return b.requantize(b.node("Relu", b.node("Concat", *branches(b, quantised=True), axis=1)))


def qlinear(b: Builder) -> str:
    """com.microsoft's own, with the output's parameters in front."""
    scale, point = b.scale(0.05), b.point(4)
    parts = [name for real in branches(b, quantised=True)
             for node in b.nodes if node.output[0] == real for name in node.input]
    return b.node("DequantizeLinear", b.node("QLinearConcat", scale, point, *parts, domain="com.microsoft", axis=1),
                  scale, point)


FORMS: dict[str, Callable[[Builder], str]] = {
    "quantised": concatenated, "unquantised": lambda b: concatenated(b, quantised=False), "integers": of_integers,
    "channels last": of_pixels, "clipped": clipped, "QLinearConcat": qlinear,
}


@pytest.mark.parametrize("number", [np.int8, np.uint8])
@pytest.mark.parametrize("form", FORMS)
def test_concat(form: str, number: type, rng: Rng, tmp_path: Path) -> None:
    """Of different layers and scales, in front of a convolution, which would show channels that are mixed up."""
    b = Builder(rng, number=number)
    b.output(b.quantize(b.node("Conv", FORMS[form](b), b.weights(9, 65, 3, 3), pads=[1, 1, 1, 1])))
    graph, _ = check(b, tmp_path)
    shapes = {tensor.shape for tensor in graph.tensors.values()}
    assert (65, 5, 5) in shapes


def test_concat_along_other_axes_is_for_outputs(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    x = b.dequantize(b.input(1, 3, 6, 6))
    parts = [b.requantize(b.node("Conv", x, b.weights(4, 3, 3, 3)), scale) for scale in (0.04, 0.06)]
    b.output(b.quantize(b.node("Concat", *parts, axis=2)))
    graph, _ = check(b, tmp_path)
    (_, steps), = graph.outputs.values()
    assert [step.kind for step in steps] == ["gather"]


@pytest.mark.parametrize("config", [NpuConfig.preset(16), NpuConfig.preset(64, gather=1, depthwise=1)],
                         ids=lambda c: str(c.macs))
def test_on_the_machine(config: NpuConfig, seed: int, rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    x = b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, 9, 9)), b.weights(20, 3, 3, 3)))
    y = b.requantize(b.node("LeakyRelu", x, alpha=0.1), 0.04)
    z = b.requantize(b.node("Conv", y, b.weights(7, 20, 1, 1)), 0.03)
    joined = b.requantize(b.node("Concat", z, y, b.requantize(b.node("LeakyRelu", z, alpha=0.2)), axis=1))
    b.output(b.quantize(b.node("Conv", joined, b.weights(5, 34, 1, 1))))
    program, graph = compile_kept(load(b.save(tmp_path)), config)
    run_and_compare(program, graph, seed, ("load", "compute", "store", 1))


@pytest.mark.parametrize(("starts", "ends", "steps"), [([70], [99], [3]), ([98], [99], [1]), ([64], [99], [1])],
                         ids=str)
def test_columns_that_are_far_from_the_first(starts: list[int], ends: list[int], steps: list[int], rng: Rng, seed: int,
                                             tmp_path: Path) -> None:
    """No kernel reaches there, as to a late step of a recurrent layer: a layer moves them."""
    b = Builder(rng)
    x = b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, 6, 99)), b.weights(5, 3, 1, 1)))
    y = b.node("Slice", x, *(b.constant(numbers) for numbers in (starts, ends, [3], steps)))
    b.output(b.quantize(b.node("Conv", y, b.weights(4, 5, 1, 1))))
    graph, _ = check(b, tmp_path)
    config = NpuConfig.preset(16)
    run_and_compare(*compile_kept(graph, config), seed, ("load", "store"))
