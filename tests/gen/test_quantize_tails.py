"""What follows the last layers of a float model, as decoders of boxes do: the processor's, and not quantised."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from gen.onnx.machine import Machine
from gen.onnx.read import read
from gen.partition.partition import partition
from gen.quantize.plan import plan_quantisation
from gen.quantize.prepare import prepare
from tests.gen.float_models import FloatBuilder, detection_network
from tests.gen.quantizing import outputs_of, quantized


def decibels(exact: np.ndarray, other: np.ndarray) -> float:
    return float(10 * np.log10((exact ** 2).sum() / ((exact - other) ** 2).sum()))


@pytest.mark.parametrize("joined", [False, True])
def test_boxes_and_scores(joined: bool, rng: np.random.Generator, tmp_path: Path) -> None:
    """In one output: scores from 0 to 1 beside boxes of hundreds of pixels are as good as boxes are."""
    model, x = detection_network(rng, joined=joined), rng.normal(size=(20, 3, 32, 32)).astype(np.float32)
    found = quantized(model, x)
    exact, rounded = outputs_of(model, x), outputs_of(found.model, x)
    assert np.abs(exact[:, :4]).max() > 40 * np.abs(exact[:, 4:]).max()
    assert decibels(exact[:, :4], rounded[:, :4]) > 25 and decibels(exact[:, 4:], rounded[:, 4:]) > 25
    assert (exact[:, 4:].argmax(1) == rounded[:, 4:].argmax(1)).mean() > 0.9
    onnx.save(found.model, tmp_path / "q.onnx")
    cut = partition(read(tmp_path / "q.onnx"), machine=Machine.having("table", "product"))
    assert (cut.subgraphs, cut.switches) == (1, 1)
    # What decodes boxes multiplies each value once, for which it is not worth to quantise any.
    assert "decoded" in cut.host and "decoded" not in {layer.node for layer in found.plan.layers}


def test_what_the_processor_joins_stays_float(rng: np.random.Generator) -> None:
    """Each branch has a grid of its own; a Concat that a layer reads through a pool, and none of the processor's, does
    not.
    """
    b = FloatBuilder(rng, [1, 3, 8, 8])
    one, other = (b.same_conv("x", 3, 4, name=name) for name in ("one", "other"))
    inside = b.node("Concat", one, other, name="inside", axis=1)
    pooled = b.node("MaxPool", inside, name="pooled", kernel_shape=[2, 2], strides=[2, 2])
    left = b.same_conv(pooled, 8, 4, name="left")
    outside = b.node("Concat", other, one, name="outside", axis=1)
    normed = b.node("LpPool", outside, name="normed", kernel_shape=[1, 1], p=3)
    right = b.conv(normed, 8, 4, name="right", strides=[2, 2], pads=[1] * 4)
    last = b.node("Relu", b.node("Concat", left, right, name="last", axis=1), name="y")
    plan = plan_quantisation(prepare(b.model(last)))
    assert set(plan.tensors) == {"x", "one", "other", "inside", "left", "normed", "right"}


def test_constants_of_single_values_stay_float(rng: np.random.Generator) -> None:
    """A grid of coordinates is added to the result of a layer as that is."""
    b = FloatBuilder(rng, [1, 3, 8, 8])
    x = b.node("Add", b.same_conv("x", 3, 4, name="last"), b.constant(rng.normal(size=(1, 1, 8, 8))), name="placed")
    y = b.node("Add", x, b.same_conv("x", 3, 4, name="other"), name="y")
    assert set(plan_quantisation(prepare(b.model(y))).tensors) == {"x", "last", "other"}


@pytest.mark.parametrize("outputs", [4, 5])
def test_layers_after_the_processor(outputs: int, rng: np.random.Generator) -> None:
    """That multiply a value as often as it takes to quantise it stay float."""
    b = FloatBuilder(rng, [1, 3, 8, 8])
    normed = b.node("Softmax", b.same_conv("x", 3, 6, name="first"), axis=1, name="normed")
    plan = plan_quantisation(prepare(b.model(b.same_conv(normed, 6, outputs, kernel=1, name="y"))))
    assert set(plan.tensors) == ({"x", "first", "normed", "y"} if outputs == 5 else {"x", "first"})
