"""Operators of a float model that become others: the same numbers, near them when quantised, all on the machine."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from cores.config import NpuConfig
from gen.quantize.averages import CountedPadding
from gen.quantize.prepare import prepare
from gen.quantize.rewriting import rewritten
from tests.gen.float_models import FloatBuilder
from tests.gen.quantizing import outputs_of
from tests.gen.test_never_refused import compiled, host

Rng = np.random.Generator
CHANNELS, SIDE = 10, 9
Part = Callable[[FloatBuilder, str], tuple[str, int]]


def response(b: FloatBuilder, x: str) -> tuple[str, int]:
    return b.node("LRN", x, size=5, alpha=0.5, beta=0.75, bias=1.5), CHANNELS


def unit(b: FloatBuilder, x: str) -> tuple[str, int]:
    return b.node("LpNormalization", x, axis=1), CHANNELS


def normalize(b: FloatBuilder, x: str) -> tuple[str, int]:
    """As PyTorch exports it, over the channels."""
    length = b.node("Clip", b.node("ReduceL2", x, axes=[1]), b.constant(np.float32(1e-12)))
    return b.node("Div", x, b.node("Expand", length, b.node("Shape", x))), CHANNELS


def lengths(b: FloatBuilder, x: str) -> tuple[str, int]:
    return b.node("LpPool", x, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0]), CHANNELS


def length(b: FloatBuilder, x: str) -> tuple[str, int]:
    return b.node("GlobalLpPool", x), CHANNELS


def sizes(b: FloatBuilder, x: str) -> tuple[str, int]:
    return b.node("GlobalLpPool", x, p=1), CHANNELS


def squares(b: FloatBuilder, x: str) -> tuple[str, int]:
    return b.node("ReduceSumSquare", x, axes=[2, 3]), CHANNELS


def absolute(b: FloatBuilder, x: str) -> tuple[str, int]:
    return b.node("ReduceL1", x, axes=[-1, 2]), CHANNELS


def total(b: FloatBuilder, x: str) -> tuple[str, int]:
    return b.node("Sum", *(b.same_conv(x, CHANNELS, 4) for _ in range(3))), 4


def mean(b: FloatBuilder, x: str) -> tuple[str, int]:
    return b.node("Mean", x, b.same_conv(x, CHANNELS, CHANNELS)), CHANNELS


def variance(b: FloatBuilder, x: str) -> tuple[str, int]:
    return b.node("MeanVarianceNormalization", b.same_conv(x, CHANNELS, CHANNELS), axes=[0, 2, 3]), CHANNELS


def pointwise(b: FloatBuilder, x: str) -> tuple[str, int]:
    return b.node("Einsum", x, b.weights(6, CHANNELS), equation="bchw, oc -> bohw"), 6


def weights_first(b: FloatBuilder, x: str) -> tuple[str, int]:
    return b.node("Einsum", b.weights(6, CHANNELS), x, equation="oc,bchw->bohw"), 6


PARTS = [response, unit, normalize, lengths, length, sizes, squares, absolute, total, mean, variance, pointwise,
         weights_first]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_parts(part: Part, rng: Rng, tmp_path: Path) -> None:
    b = FloatBuilder(rng, [1, 3, SIDE, SIDE])
    y, channels = part(b, b.node("Relu", b.same_conv("x", 3, CHANNELS)))
    (made,) = [node.op_type for node in b.nodes if y in node.output]
    model = b.model(b.same_conv(y, channels, 4, kernel=1), rank=4)
    prepared = prepare(model)
    assert made not in {node.op_type for node in prepared.graph.node}
    x = rng.normal(size=(3, 3, SIDE, SIDE)).astype(np.float32)
    expected = outputs_of(model, x)
    np.testing.assert_allclose(outputs_of(prepared, x), expected, rtol=0, atol=1e-4 * np.abs(expected).max())
    assert not host(compiled(model, tmp_path, config=NpuConfig.preset(64, product=1, table=1, rows=64)))


@pytest.mark.parametrize(("equation", "first", "second"), [
    ("blhd,bmhd->bhlm", (1, 5, 2, 3), (1, 6, 2, 3)), ("blc,chd->bhld", (2, 5, 4), (4, 2, 3)),
    ("bhld,hdc->blc", (1, 2, 5, 3), (2, 3, 4)), ("nkctv,kvw->nctw", (1, 2, 3, 4, 5), (2, 5, 6)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)), ("bxhwk,bhywk->bxwyh", (1, 2, 3, 4, 5), (1, 3, 2, 4, 5)),
    ("ab,ab->a", (3, 4), (3, 4)), ("ij,kl->ijkl", (2, 3), (4, 5)), ("bij,bjk->bk", (2, 3, 4), (2, 4, 5))])
@pytest.mark.parametrize("constant", [False, True])
def test_products(equation: str, first: tuple[int, ...], second: tuple[int, ...], constant: bool, rng: Rng) -> None:
    """Of whatever axes; what no MatMul is stays."""
    b = FloatBuilder(rng, first)
    other = b.constant(rng.normal(size=second)) if constant else b.node(
        "Reshape", b.node("MatMul", b.node("Reshape", "x", b.constant(np.array([1, np.prod(first)]))),
                          b.weights(int(np.prod(first)), int(np.prod(second)))), b.constant(np.array(second)))
    y = b.node("Einsum", "x", other, equation=equation)
    model = b.model(y, rank=len(equation.partition("->")[2]))
    prepared = prepare(model)
    kept = equation in ("ab,ab->a", "ij,kl->ijkl", "bij,bjk->bk")
    assert ("Einsum" in {node.op_type for node in prepared.graph.node}) == kept
    x = rng.normal(size=first).astype(np.float32)
    expected, found = (_run(each, x) for each in (model, prepared))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


def _run(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def test_a_matrix_of_three_axes(rng: Rng) -> None:
    b = FloatBuilder(rng, [1, 5, 8])
    model = b.model(b.node("MatMul", "x", b.constant(rng.normal(size=(1, 8, 6)))))
    prepared = prepare(model)
    assert [len(tensor.dims) for tensor in prepared.graph.initializer] == [2]
    x = rng.normal(size=(1, 5, 8)).astype(np.float32)
    np.testing.assert_allclose(_run(prepared, x), _run(model, x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("shape", [[8], ["N", 8], [1, 5, 8]], ids=str)
def test_a_vector(shape: list[int | str], rng: Rng, tmp_path: Path) -> None:
    """As of a critic, whose result is a number, perhaps without axes."""
    b = FloatBuilder(rng, shape)
    y = b.node("Relu", b.node("MatMul", "x", b.weights(8, 6)))
    model = b.model(b.node("MatMul", y, b.weights(6)), rank=len(shape) - 1)
    assert not any("MatMul" in reason or name.startswith("matmul") and "Squeeze" not in name
                   for name, reason in host(compiled(model, tmp_path, near=0.1)).items())


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("turned", [False, True])
def test_shares_of_what_is_less_than_the_maximum(turned: bool, axis: int, rng: Rng) -> None:
    """Of the other axis it is not the same."""
    b = FloatBuilder(rng, [1, 5, 8])
    x = b.node("MatMul", "x", b.weights(8, 8))
    largest = b.node("Expand", b.node("ReduceMax", x, axes=[axis]), b.node("Shape", x))
    less = b.node("Sub", *((largest, x) if turned else (x, largest)))
    model = b.model(b.node("MatMul", b.node("Softmax", less, axis=-1), b.weights(8, 3)), rank=3)
    prepared = prepare(model)
    assert ("ReduceMax" in {node.op_type for node in prepared.graph.node}) == (axis == 1)
    x = rng.normal(size=(1, 5, 8)).astype(np.float32)
    np.testing.assert_allclose(_run(prepared, x), _run(model, x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("attributes", [
    dict(kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1), dict(kernel_shape=[2, 3], strides=[2, 2], ceil_mode=1),
    dict(kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1),
    dict(kernel_shape=[3, 3], strides=[2, 2], pads=[1, 0, 1, 0], ceil_mode=1, count_include_pad=1),
    dict(kernel_shape=[4, 4], strides=[3, 3], ceil_mode=1)], ids=str)
@pytest.mark.parametrize("size", [8, 9, 10])
def test_averages_at_the_edge(attributes: dict, size: int, rng: Rng, tmp_path: Path) -> None:
    """Of windows that ceil_mode cuts off."""
    b = FloatBuilder(rng, [1, 4, size, size], opset=19)
    model = b.model(b.node("AveragePool", "x", **attributes), rank=4)
    x = rng.normal(size=(2, 4, size, size)).astype(np.float32)
    expected = outputs_of(model, x)
    np.testing.assert_allclose(outputs_of(rewritten(model, CountedPadding), x), expected, rtol=0, atol=1e-5)


def test_at_the_end_they_stay(rng: Rng) -> None:
    """The processor has them anyway."""
    b = FloatBuilder(rng, [1, 3, SIDE, SIDE])
    model = b.model(b.node("LpNormalization", b.node("Flatten", b.same_conv("x", 3, 4)), axis=1))
    assert "LpNormalization" in {node.op_type for node in prepare(model).graph.node}


def test_a_gate_of_shares(rng: Rng, tmp_path: Path) -> None:
    """A Softmax over the channels of a map, which is multiplied with another."""
    b = FloatBuilder(rng, [1, 3, SIDE, SIDE])
    x = b.node("Relu", b.same_conv("x", 3, CHANNELS))
    gate = b.node("Softmax", b.same_conv(x, CHANNELS, CHANNELS, kernel=1), axis=1)
    model = b.model(b.same_conv(b.node("Mul", x, gate), CHANNELS, 4, kernel=1), rank=4)
    assert not host(compiled(model, tmp_path, config=NpuConfig.preset(64, product=1, rows=64)))


@pytest.mark.parametrize("channels", [8, 20])
def test_a_gate_of_neighbouring_channels(channels: int, rng: Rng, tmp_path: Path) -> None:
    """ECA-Net's: a convolution over the channels of the mean, whose pixels they are meanwhile."""
    b = FloatBuilder(rng, [1, 3, SIDE, SIDE])
    x = b.node("Relu", b.same_conv("x", 3, channels))
    last, between = (b.constant(np.array([axis])) for axis in (-1, 3))
    row = b.node("Transpose", b.node("Squeeze", b.node("GlobalAveragePool", x), last), perm=[0, 2, 1])
    row = b.node("Conv", row, b.constant(rng.normal(size=(1, 1, 3))), pads=[1, 1])
    gate = b.node("Sigmoid", b.node("Unsqueeze", b.node("Transpose", row, perm=[0, 2, 1]), between))
    model = b.model(b.same_conv(b.node("Mul", x, gate), channels, 4, kernel=1), rank=4)
    assert not host(compiled(model, tmp_path, config=NpuConfig.preset(64, product=1, table=1, turn=1)))


@pytest.mark.parametrize(("opset", "attributes"), [
    (18, dict(dilations=[1, 1])), (18, dict(dilations=[2, 2])), (18, dict(strides=[2, 2], ceil_mode=1))], ids=str)
def test_pools_of_later_opsets(opset: int, attributes: dict, rng: Rng) -> None:
    """An average has not all that a LpPool may have: neither dilation, nor windows that padding does not fill."""
    b = FloatBuilder(rng, [1, 4, SIDE + 1, SIDE + 1], opset=opset)
    y = b.node("LpPool", "x", kernel_shape=[3, 3], **attributes)
    model = b.model(b.same_conv(y, 4, 4, kernel=1), rank=4)
    x = rng.normal(size=(2, 4, SIDE + 1, SIDE + 1)).astype(np.float32)
    np.testing.assert_allclose(outputs_of(prepare(model), x), outputs_of(model, x), rtol=0, atol=1e-4)


@pytest.mark.parametrize("op", ["ReduceL1", "ReduceSumSquare"])
def test_sums_of_sizes(op: str, rng: Rng) -> None:
    """Integers stay integers."""
    b = FloatBuilder(rng, ["n", CHANNELS])
    size = b.node("Cast", b.node(op, b.node("Shape", "x"), axes=[0], keepdims=0), to=onnx.TensorProto.FLOAT)
    model = b.model(b.node("MatMul", b.node("Mul", "x", size), b.weights(CHANNELS, 4)), rank=2)
    x = rng.normal(size=(2, CHANNELS)).astype(np.float32)
    np.testing.assert_allclose(outputs_of(prepare(model), x), outputs_of(model, x), rtol=1e-5)


@pytest.mark.parametrize("form", ["rank", "samples", "turned", "length", "repeated"])
def test_nearly_the_same(form: str, rng: Rng) -> None:
    """Maxima of other axes, and of more samples; lengths that a bound is above, and quotients that are repeated."""
    b = FloatBuilder(rng, [1, 5, 6] if form in ("rank", "samples", "turned") else [1, 6], opset=17)
    if form in ("length", "repeated"):
        least = b.constant(np.float32(9e-4 if form == "length" else 1e-12))
        length = b.node("Clip", b.node("ReduceL2", "x", axes=[1]), least)
        length = b.node("Expand", length, b.constant(np.array([3, 6]))) if form == "repeated" else length
        y = b.node("Div", "x", length)
    else:
        other = b.constant(rng.normal(size=(5, 6) if form == "rank" else (2, 5, 6)))
        other = b.node("Mul", b.node("ReduceMean", "x", axes=[0, 1, 2], keepdims=0), other)
        largest = b.node("ReduceMax", other, axes=[1 if form == "rank" else 2])
        less = b.node("Sub", *((largest, "x") if form == "turned" else ("x", largest)))
        y = b.node("Softmax", less, axis=1 if form == "rank" else -1)
    model = b.model(b.node("MatMul", y, b.weights(6, 4)), rank=2 if form in ("length", "repeated") else 3)
    x = (1e-4 if form == "length" else 1) * rng.normal(size=b.shape).astype(np.float32)
    expected, found = (_run(each, x) for each in (model, prepare(model)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * np.abs(expected).max())
