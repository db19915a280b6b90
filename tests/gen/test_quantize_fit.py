"""Scales of tensors that are zero on all samples, and of channels without weights: they fit what is beside them."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from cores.config import NpuConfig
from gen.ir.graph import Graph
from gen.onnx.importer import load_model
from gen.onnx.machine import Machine
from gen.quantize.quantize import Quantized
from tests.gen.float_models import FloatBuilder
from tests.gen.quantizing import outputs_of, quantized

Rng = np.random.Generator
SHAPE = (6, 8, 8)


def samples(rng: Rng) -> np.ndarray:
    return rng.normal(size=(8, *SHAPE)).astype(np.float32)


def scale_of(model: onnx.ModelProto, name: str) -> np.ndarray:
    """That of a value, or of weights, in a quantised model."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    return numpy_helper.to_array(constants[f"{name}_scale"])


def imported(found: Quantized, x: np.ndarray, folder: Path, *, near: float = 0.01,
             machine: Machine | None = None) -> Graph:
    """The graph, as all of a model is on the accelerator; its outputs are the float model's but for ``near`` of their
    energy.
    """
    onnx.save(found.model, folder / "q.onnx")
    model = load_model(folder / "q.onnx", machine=machine)
    assert not model.remarks
    wanted, made = outputs_of(found.reference, x), outputs_of(found.model, x)
    assert np.square(made - wanted).sum() <= near * np.square(wanted).sum()
    return model.graph


def scale_weights(b: FloatBuilder, node: str, factor: float | np.ndarray) -> None:
    """Multiplies a layer's weights and bias, all of them or each channel's."""
    for name in next(n for n in b.nodes if n.name == node).input[1:]:
        tensor = next(c for c in b.constants if c.name == name)
        array = numpy_helper.to_array(tensor)
        each = np.reshape(factor, (-1, *[1] * (array.ndim - 1)))
        tensor.CopyFrom(numpy_helper.from_array((array * each).astype(np.float32), name))


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("join", ["Add", "Concat"])
def test_a_branch_of_zeros(join: str, size: float, rng: Rng, tmp_path: Path) -> None:
    """As a residual block whose last batch norm begins with zeros: its step is that of what it is added to."""
    b = FloatBuilder(rng, [1, *SHAPE])
    stem = b.same_conv("x", 6, 8, name="stem")
    scale_weights(b, "stem", size)
    stem = b.node("Relu", stem)
    branch = b.same_conv(b.node("Relu", b.same_conv(stem, 8, 8)), 8, 8, name="branch")
    scale_weights(b, "branch", 0)
    joined = b.node(join, branch, stem, **({"axis": 1} if join == "Concat" else {}))
    y = b.same_conv(b.node("Relu", joined, name="joined"), 16 if join == "Concat" else 8, 4)
    x = samples(rng)
    found = quantized(b.model(y), x, method="minmax")
    imported(found, x, tmp_path)
    assert 0.5 < scale_of(found.model, "branch") / scale_of(found.model, "joined") < 4


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("size", [1e-4, 1e4])
def test_what_is_never_positive(size: float, per_channel: bool, rng: Rng, tmp_path: Path) -> None:
    """A Relu that gives zeros alone, in front of a layer: that one's result are its biases, which have to be exact."""
    b = FloatBuilder(rng, [1, *SHAPE])
    first = b.node("Sub", b.same_conv("x", 6, 8, name="first"), b.constant(np.float32([1e3])))
    dead = b.node("Relu", first, name="dead")
    y = b.node("MaxPool", dead, kernel_shape=[2, 2], strides=[2, 2])
    y = b.same_conv(y, 8, 8, name="second")
    scale_weights(b, "second", size)
    y = b.same_conv(b.node("Relu", y), 8, 4, name="third")
    scale_weights(b, "third", 1 / size)
    x = samples(rng)
    imported(quantized(b.model(y), x, method="minmax", per_channel=per_channel), x, tmp_path, near=1e-3)


def test_dead_ones_in_a_row(rng: Rng, tmp_path: Path) -> None:
    """What reads a dead tensor is dead: the size comes from the sum at their end."""
    b = FloatBuilder(rng, [1, *SHAPE])
    stem = b.node("Relu", b.same_conv("x", 6, 8, name="stem"))
    scale_weights(b, "stem", 1e-3)
    branch = stem
    for number in range(3):
        branch = b.conv(branch, 8, 8, pads=[1] * 4, name=f"branch{number}")
        if not number:
            scale_weights(b, "branch0", 0)
    x = samples(rng)
    y = b.same_conv(b.node("Relu", b.node("Add", stem, branch), name="joined"), 8, 4)
    found = quantized(b.model(y), x, method="minmax")
    imported(found, x, tmp_path)
    for number in range(3):
        assert scale_of(found.model, f"branch{number}") < 100 * scale_of(found.model, "joined")


def test_only_zeros(rng: Rng, tmp_path: Path) -> None:
    """An input that is nothing but zeros on the samples, and all that is made of it."""
    b = FloatBuilder(rng, [1, *SHAPE])
    y = b.conv(b.node("Relu", b.conv("x", 6, 8, pads=[1] * 4)), 8, 4, pads=[1] * 4)
    x = np.zeros((4, *SHAPE), np.float32)
    imported(quantized(b.model(y), x, method="minmax"), x, tmp_path)


@pytest.mark.parametrize("convolved", [False, True])
def test_rounding(convolved: bool, rng: Rng, tmp_path: Path) -> None:
    """Averages that are next to nothing on the samples that there are have steps that a multiplier reaches."""
    b = FloatBuilder(rng, [1, *SHAPE])
    stem = b.conv("x", 6, 8, kernel=1)
    mean = b.node("GlobalAveragePool", stem)
    if convolved:
        mean = b.conv(mean, 8, 8, kernel=1)
    model = b.model(b.same_conv(b.node("Sub", stem, mean), 8, 4))
    x = samples(rng)
    x -= x.mean(axis=(2, 3), keepdims=True)
    machine = Machine.of(NpuConfig.preset(64, product=1))
    imported(quantized(model, x, method="minmax"), x, tmp_path, machine=machine)


def test_a_factor_of_next_to_nothing(rng: Rng, tmp_path: Path) -> None:
    """What is made of a layer is its summand; no scale of weights gets out of hand."""
    b = FloatBuilder(rng, [1, *SHAPE])
    y = b.node("Gemm", b.node("Flatten", b.node("GlobalAveragePool", "x")), b.weights(8, 6), name="layer", transB=1)
    factors = np.float32([1, 0, 1e-38, 1e-30, 1e-9, 1, 1, 1])
    y = b.node("Add", b.node("Mul", y, b.constant(factors)), b.constant(rng.normal(size=8)))
    x = samples(rng)
    imported(quantized(b.model(b.node("Gemm", b.node("Relu", y), b.weights(4, 8), transB=1)), x, method="minmax"), x,
             tmp_path)


@pytest.mark.parametrize("form", ["plain", "depthwise", "Gemm", "all of a layer"])
@pytest.mark.parametrize("size", [0, 1e-30, 1e-12, 3e-7])
def test_channels_without_weights(form: str, size: float, rng: Rng, tmp_path: Path) -> None:
    """Beside constants that are not small; nothing is left for the importer to mend."""
    b = FloatBuilder(rng, [1, *SHAPE])
    x = b.node("Relu", b.same_conv("x", 6, 8, name="first"))
    factor = np.full(8, size) if form == "all of a layer" else np.where(np.arange(8) % 3 == 0, size, 1)
    if form == "Gemm":
        y = b.node("Flatten", b.node("GlobalAveragePool", x))
        y = b.node("Gemm", y, b.weights(8, 8), name="dead", transB=1)
    else:
        y = b.conv(x, 8, 8, pads=[1] * 4, name="dead", group=8 if form == "depthwise" else 1)
    scale_weights(b, "dead", factor)
    y = b.node("Add", b.node("Mul", y, b.constant(np.float32([1.3]))), b.constant(np.float32([0.7])))
    y = b.node("Relu", y)
    y = b.node("Gemm", y, b.weights(4, 8), transB=1) if form == "Gemm" else b.same_conv(y, 8, 4)
    values = samples(rng)
    imported(quantized(b.model(y), values, method="minmax"), values, tmp_path)


@pytest.mark.parametrize("size", [1e-40, 1e-33])
def test_layers_that_died_in_training(size: float, rng: Rng) -> None:
    """Weight decay leaves numbers of which a scale is no normal float32, or its product with another is none."""
    b = FloatBuilder(rng, [1, *SHAPE])
    stem = b.node("Relu", b.same_conv("x", 6, 8, name="stem"))
    dead = [b.node("Relu", b.same_conv(stem, 8, 8, name=f"dead{number}")) for number in range(2)]
    last = b.same_conv(b.node("Mul", *dead, name="product"), 8, 8, name="last")
    shift = b.node("Add", last, b.constant(np.float32([1e-3])))
    for name in ("dead0", "dead1", "last"):
        scale_weights(b, name, size)
    x = samples(rng)
    found = quantized(b.model(b.node("Add", b.same_conv(stem, 8, 8, name="alive"), b.node("Relu", shift))), x)
    scales = [numpy_helper.to_array(tensor) for tensor in found.model.graph.initializer
              if tensor.name.endswith("_scale")]
    assert all(((scale < 1e6) & (scale >= np.finfo(np.float32).tiny)).all() for scale in scales)
    wanted, made = outputs_of(found.reference, x), outputs_of(found.model, x)
    assert np.square(made - wanted).sum() <= 0.01 * np.square(wanted).sum()
