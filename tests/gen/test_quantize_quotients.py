"""Quotients, lengths and the Softmax of a map become tables, averages and products, and run on the machine."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from cores.config import NpuConfig
from gen.quantize.prepare import prepare
from tests.gen.float_models import FloatBuilder
from tests.gen.quantizing import on_machine, outputs_of, quantized

Rng = np.random.Generator
CONFIG = NpuConfig.preset(64, product=1, table=1, turn=1, rows=64)
HEADS, SIZE, SIDE = 2, 12, 6
CHANNELS, PIXELS = HEADS * SIZE, SIDE * SIDE


def heads(b: FloatBuilder, x: str) -> str:
    return b.node("Reshape", x, b.constant(np.array([1, HEADS, SIZE, PIXELS])))


def unit(b: FloatBuilder, x: str) -> str:
    """Divided by the length of each row, as PyTorch exports ``normalize``."""
    axes = [b.constant(np.array([-1]))] if b.opset > 17 else []
    length = b.node("ReduceL2", x, *axes, keepdims=1, **({} if axes else {"axes": [-1]}))
    length = b.node("Clip", length, b.constant(np.float32(1e-12)))
    length = b.node("Expand", length, b.constant(np.array([1, HEADS, SIZE, PIXELS])))
    return b.node("Div", x, length)


def attention(b: FloatBuilder, x: str) -> str:
    """Of channels: a Softmax of each head's products over all pixels."""
    query, key, value = (heads(b, b.same_conv(x, CHANNELS, CHANNELS, kernel=1)) for _ in range(3))
    turned = b.node("Transpose", unit(b, key), perm=[0, 1, 3, 2])
    scale = b.constant(b.rng.uniform(1, 3, (HEADS, 1, 1)))
    shares = b.node("Softmax", b.node("Mul", b.node("MatMul", unit(b, query), turned), scale), axis=-1)
    return b.node("Reshape", b.node("MatMul", shares, value), b.constant(np.array([1, CHANNELS, SIDE, SIDE])))


def one_head(b: FloatBuilder, x: str) -> str:
    """Rows of scores in a tensor of one channel are no map."""
    shape = b.constant(np.array([1, 1, CHANNELS, PIXELS]))
    rows = b.node("Reshape", b.same_conv(x, CHANNELS, CHANNELS, kernel=1), shape)
    scores = b.node("MatMul", rows, b.node("Transpose", rows, perm=[0, 1, 3, 2]))
    shares = b.node("Softmax", b.node("Mul", scores, b.constant(np.float32(0.1))), axis=-1)
    return b.node("Reshape", b.node("MatMul", shares, rows), b.constant(np.array([1, CHANNELS, SIDE, SIDE])))


def quotient(b: FloatBuilder, x: str) -> str:
    other = b.node("Sigmoid", b.same_conv(x, CHANNELS, CHANNELS, kernel=1))
    return b.node("Div", x, b.node("Add", other, b.constant(np.float32(0.5))))


def mapped(b: FloatBuilder, x: str) -> str:
    """A Softmax of the pixels of each row of one channel; sums of what it weighs, repeated."""
    shares = b.node("Softmax", b.same_conv(x, CHANNELS, 1, kernel=1), axis=3)
    axes = b.constant(np.array([-1]))
    sums = b.node("ReduceSum", b.node("Mul", x, shares), axes, keepdims=1)
    return b.node("Mul", x, b.node("Expand", sums, b.constant(np.array([1, CHANNELS, SIDE, SIDE]))))


def responses(b: FloatBuilder, x: str, *, last: bool = False) -> str:
    """ConvNeXt V2's normalisation, of channels that are ``last`` or not."""
    def over(op: str, value: str, *axes: int) -> str:
        given = [b.constant(np.array(axes))] if b.opset > 17 else []
        return b.node(op, value, *given, **({} if given else {"axes": axes}))

    x = b.node("Transpose", x, perm=[0, 2, 3, 1]) if last else x
    length = over("ReduceL2", x, *((1, 2) if last else (2, 3)))
    mean = over("ReduceMean", length, -1 if last else 1)
    y = b.node("Add", x, b.node("Mul", x, b.node("Div", length, b.node("Add", mean, b.constant(np.float32(1e-6))))))
    return b.node("Transpose", y, perm=[0, 3, 1, 2]) if last else y


def responses_last(b: FloatBuilder, x: str) -> str:
    return responses(b, x, last=True)


def network(rng: Rng, part, opset: int = 17) -> onnx.ModelProto:
    b = FloatBuilder(rng, [1, 3, SIDE, SIDE], opset=opset)
    x = part(b, b.same_conv("x", 3, CHANNELS, name="first"))
    return b.model(b.same_conv(x, CHANNELS, 4, kernel=1, name="y"), rank=4)


@pytest.mark.parametrize("opset", [17, 18])
@pytest.mark.parametrize("part", [attention, one_head, quotient, mapped, responses, responses_last])
def test_numbers(part, opset: int, rng: Rng) -> None:
    model = network(rng, part, opset)
    x = rng.normal(size=(2, 3, SIDE, SIDE)).astype(np.float32)
    made = prepare(model)
    found = {node.op_type for node in made.graph.node}
    assert not found & {"Div", "ReduceL2"} and ("Softmax" in found) == (part in (attention, one_head))
    expected = outputs_of(model, x)
    np.testing.assert_allclose(outputs_of(made, x), expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("part", [attention, one_head, quotient, mapped, responses, responses_last])
def test_on_the_machine(part, rng: Rng, seed: int, tmp_path: Path) -> None:
    model = network(rng, part)
    x = rng.normal(size=(16, 3, SIDE, SIDE)).astype(np.float32)
    on_machine(quantized(model, x, method="minmax").model, x, CONFIG, seed, tmp_path)


def test_at_the_end_they_stay(rng: Rng) -> None:
    """What no layer with weights depends on is the processor's anyway."""
    b = FloatBuilder(rng, [1, 3, SIDE, SIDE], opset=17)
    y = quotient(b, b.same_conv("x", 3, CHANNELS, name="first"))
    assert [node.op_type for node in prepare(b.model(y)).graph.node].count("Div") == 1


def test_sizes_stay_integers(rng: Rng) -> None:
    """A number of windows, made of the samples, in the shape that a layer's input has."""
    b = FloatBuilder(rng, ["n", 3, SIDE, SIDE], opset=17)
    y = b.same_conv("x", 3, CHANNELS)
    count = b.node("Div", b.node("Shape", y, start=0, end=1), b.node("Shape", "x", start=0, end=1))
    shape = b.node("Concat", b.constant(np.array([-1, CHANNELS, SIDE])), b.node("Mul", count, b.constant(
        np.array([SIDE]))), axis=0)
    model = b.model(b.same_conv(b.node("Reshape", y, shape), CHANNELS, 4))
    assert not any(node.op_type == "Reciprocal" for node in prepare(model).graph.node)
    assert np.isfinite(outputs_of(prepare(model), np.zeros((2, 3, SIDE, SIDE), np.float32))).all()


def test_a_divisor_that_is_kept_from_zero_stays_float(rng: Rng):
    """A sum that may be zero, as linear attention divides by: as an integer it would lose what is added to it."""
    b = FloatBuilder(rng, ["N", 3, 6, 6])
    above, below = (b.node("Relu", b.same_conv("x", 3, 8)) for _ in range(2))
    guarded = b.node("Add", below, b.constant(np.float32(1e-5)), name="guard")
    y = b.node("Div", above, guarded, name="quotient")
    model = b.model(b.same_conv(y, 8, 4))
    found = quantized(model, rng.random((8, 3, 6, 6)).astype(np.float32)).model
    assert not any(name.startswith(guarded) for node in found.graph.node if node.op_type == "QuantizeLinear"
                   for name in node.input)
    assert np.isfinite(outputs_of(found, np.zeros((1, 3, 6, 6), np.float32))).all()


@pytest.mark.parametrize("first", [False, True])
def test_masked_scores_of_one_head(first: bool, rng: np.random.Generator) -> None:
    """They are no map either, whichever operand the mask is."""
    b = FloatBuilder(rng, [1, 1, 8, 8])
    scores = b.node("MatMul", "x", b.node("Transpose", "x", perm=[0, 1, 3, 2]))
    mask = b.node("Mul", b.node("ReduceMean", "x", axes=[2], keepdims=1), b.constant(np.float32(-100)))
    shares = b.node("Softmax", b.node("Add", *((mask, scores) if first else (scores, mask))), axis=-1)
    model = b.model(b.node("MatMul", b.node("MatMul", shares, "x"), b.weights(8, 8)))
    operators = {node.op_type for node in prepare(model).graph.node}
    assert "Softmax" in operators and "Exp" not in operators
