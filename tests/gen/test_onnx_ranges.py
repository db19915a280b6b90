"""Roundings that the importer chooses: of branches that a model adds unquantised, and of constants after a layer."""

from pathlib import Path

import numpy as np
import pytest

from gen.check.compare import compare
from gen.ir.errors import GraphError
from gen.ir.graph import Conv, Pool
from gen.onnx.importer import load
from tests.gen.qdq import Builder


def batch_norm(b: Builder, value: str, channels: int, *, gain: float = 1.0, shift: float = 1.0) -> str:
    """Factors of both signs around ``gain``, shifts around ``shift``."""
    numbers = [b.rng.uniform(0.5, 1.5, channels) * gain * b.rng.choice([-1, 1], channels),
               b.rng.normal(0, shift, channels), b.rng.normal(0, 0.3, channels), b.rng.uniform(0.5, 2, channels)]
    return b.node("BatchNormalization", value, *(b.constant(n.astype(np.float32)) for n in numbers))


@pytest.mark.parametrize("number", [np.int8, np.uint8])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("gain", [0.3, 1.0, 4.0, 30.0])
def test_a_branch_of_any_size(gain: float, relu: bool, number: type, rng: np.random.Generator, tmp_path: Path) -> None:
    """Q(Relu(Conv(x) + x)): the branch is far larger than the sum may be, and its other operand brings it back."""
    b, channels = Builder(rng, number=number), 24
    x = b.dequantize(b.input(1, channels, 8, 8), 0.05)
    array = b.constant(rng.integers(-127, 128, (channels, channels, 3, 3)).astype(np.int8))
    weights = b.node("DequantizeLinear", array, b.scale(gain / 128 / 15))
    y = b.node("Add", b.node("Conv", x, weights, b.bias(channels), pads=[1, 1, 1, 1]), x)
    b.output(b.quantize(b.node("Relu", y) if relu else y, 0.055))
    path = b.save(tmp_path)
    assert compare(path, b.samples()).largest <= 1
    assert len(load(path).layers) == 1


def test_a_branch_that_int8_cannot_hold(rng: np.random.Generator, tmp_path: Path) -> None:
    """An operand of six times the sum's range: the branch has to bring it back, and would be three steps coarse."""
    b = Builder(rng)
    x = b.dequantize(b.input(1, 24, 8, 8), 0.3)
    b.output(b.quantize(b.node("Add", b.node("Conv", x, b.weights(24, 24, 3, 3), pads=[1, 1, 1, 1]), x), 0.05))
    with pytest.raises(GraphError, match=r"adds the unquantised result of conv\d+, for which 9 bits .* too coarse; put "
                                         r"QuantizeLinear and DequantizeLinear after conv\d+"):
        load(b.save(tmp_path))


@pytest.mark.parametrize("gain", [1.0, 4.0, 16.0])
@pytest.mark.parametrize("operator", ["BatchNormalization", "Add", "Sub", "Relu(Add)"])
def test_a_constant_between_quantisations(operator: str, gain: float, rng: np.random.Generator, tmp_path: Path) -> None:
    """What a quantiser writes without folding: constants finer than a step of the input, of which each is ``gain``."""
    b = Builder(rng)
    x = b.dequantize(b.input(1, 20, 6, 7), 0.05)
    if operator == "BatchNormalization":
        y = batch_norm(b, x, 20, gain=gain)
    else:
        constant = b.constant(rng.normal(0, 1, (20, 1, 1)).astype(np.float32))
        y = b.node(operator.removeprefix("Relu(").rstrip(")"), x, constant)
        y = b.node("Relu", y) if operator.startswith("Relu") else y
    step = 0.05 * (1 if operator == "BatchNormalization" else 1 / gain)
    b.output(b.quantize(y, step))
    (row,) = compare(b.save(tmp_path), b.samples()).layers
    # Rounded once, from exact integers: as near as a layer with weights.
    assert row.largest <= 1 and row.differing <= 0.05 * gain * row.values


@pytest.mark.parametrize("pool", ["MaxPool", "AveragePool"])
def test_a_constant_behind_a_pool(pool: str, rng: np.random.Generator, tmp_path: Path) -> None:
    b = Builder(rng)
    y = b.node(pool, b.dequantize(b.input(1, 20, 9, 8), 0.05), kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1],
               **({"count_include_pad": 1} if pool == "AveragePool" else {}))
    b.output(b.quantize(batch_norm(b, y, 20, gain=8.0), 0.05))
    path = b.save(tmp_path)
    assert compare(path, b.samples()).largest <= 1
    assert [type(layer) for layer in load(path).layers] == ([Pool, Conv] if pool == "MaxPool" else [Conv])


def test_whole_constants_leave_a_copy(rng: np.random.Generator, tmp_path: Path) -> None:
    """Nothing is to be gained by weights where the constants are steps of the input."""
    b = Builder(rng)
    x = b.dequantize(b.input(1, 20, 6, 7), 0.5)
    b.output(b.quantize(b.node("Add", x, b.constant(np.float32(1.5))), 0.4))
    (layer,) = load(b.save(tmp_path)).layers
    assert isinstance(layer, Pool)
