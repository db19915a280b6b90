"""Constants that are added to activations go into biases: as many layers less, and the same numbers."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from cores.config import NpuConfig
from gen.check.compare import compare
from gen.onnx.importer import load
from gen.prune.timing import cycles_of
from gen.quantize.quantize import quantize
from gen.quantize.shifts import fold_shifts, move_shifts
from tests.gen.float_models import FloatBuilder
from tests.gen.quantizing import outputs_of

Rng = np.random.Generator
CHANNELS = 32


def shift(b: FloatBuilder, value: str, shape: tuple[int, ...] = (CHANNELS, 1, 1)) -> str:
    return b.node("Add", value, b.constant(b.rng.normal(0, 0.3, shape)))


def reactnet(rng: Rng, blocks: int, end: str = "conv") -> onnx.ModelProto:
    """Blocks of RSign, binary convolution, batch norm, shortcut and RPReLU, as PyTorch exports them."""
    b = FloatBuilder(rng, [1, 3, 8, 8])
    x = b.same_conv("x", 3, CHANNELS, name="stem")
    for _ in range(blocks):
        w = np.where(rng.random((CHANNELS, CHANNELS, 3, 3)) < 0.5, -0.05, 0.05)
        y = b.node("Conv", b.node("Sign", shift(b, x, (1, CHANNELS, 1, 1))), b.constant(w), pads=[1] * 4)
        y = shift(b, b.node("Add", b.norm(y, rng.uniform(0.5, 1.5, CHANNELS)), x))
        x = shift(b, b.node("PRelu", y, b.constant(rng.uniform(0.1, 0.4, (CHANNELS, 1, 1)))))
    return b.model(x if end == "shift" else b.same_conv(x, CHANNELS, 8, name="y"))


def adds(model: onnx.ModelProto) -> int:
    """Additions of a constant."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return sum(node.op_type == "Add" and not constants.isdisjoint(node.input) for node in model.graph.node)


def copied(model: onnx.ModelProto) -> onnx.ModelProto:
    result = onnx.ModelProto()
    result.CopyFrom(model)
    return result


@pytest.mark.parametrize("end", ["conv", "shift"])
def test_shifts_of_reactnet(end: str, rng: Rng):
    """Of each block that of RSign stays; and the last, which a convolution with padding reads, or nothing does."""
    model = reactnet(rng, 3, end)
    x = rng.normal(size=(5, 3, 8, 8)).astype(np.float32)
    expected, moved = outputs_of(model, x), move_shifts(copied(model))
    onnx.checker.check_model(moved, full_check=True)
    assert (adds(model), adds(moved)) == (9, 4)
    # Where a sum is next to a threshold its order decides; elsewhere the numbers are the same.
    assert np.mean(np.abs(outputs_of(moved, x) - expected) > 1e-3) < 0.02
    assert move_shifts(copied(moved)) == moved


def branches(rng: Rng, *, slope: float = 0.4, stem: str = "conv", reader: str = "",
             after: bool = False) -> onnx.ModelProto:
    """Two RSigns, the second of a tensor that RPReLU makes and that an average and a layer without padding read, too;
    of which ``reader`` is another one; ``after``: it has the last shift of that.
    """
    b = FloatBuilder(rng, [1, 3, 8, 8])
    x = b.same_conv("x", 3, CHANNELS, name="stem")
    x = b.node("Relu", x) if stem == "relu" else x
    if stem == "maximum":
        x = b.node("MaxPool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4)

    def binary(x: str, outputs: int, stride: int) -> str:
        w = np.where(rng.random((outputs, CHANNELS, 3, 3)) < 0.5, -0.05, 0.05)
        y = b.node("Conv", b.node("Sign", shift(b, x, (1, CHANNELS, 1, 1))), b.constant(w), pads=[1] * 4,
                   strides=[stride] * 2)
        return b.norm(y, rng.uniform(0.5, 1.5, outputs))

    y = shift(b, b.node("Add", binary(x, CHANNELS, 1), x))
    slopes = rng.uniform(0.1, slope, (CHANNELS, 1, 1)) if slope else np.full((1, 1, 1), 0.3)
    x = b.node("PRelu", y, b.constant(slopes))
    x = shift(b, x) if after else x
    pooled = b.node("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=0, count_include_pad=1)
    w = b.constant(rng.normal(0, 0.1, (2 * CHANNELS, CHANNELS, 1, 1)))
    y = b.node("Add", binary(x, 2 * CHANNELS, 2), b.norm(b.node("Conv", pooled, w), np.ones(2 * CHANNELS)))
    model = b.model(b.same_conv(y, 2 * CHANNELS, 8, name="y"))
    if reader:
        other = {"relu": lambda: b.node("Relu", x), "padded": lambda: b.same_conv(x, CHANNELS, 8),
                 "output": lambda: x}[reader]()
        model = b.model(model.graph.output[0].name)
        model.graph.output.append(helper.make_tensor_value_info(other, onnx.TensorProto.FLOAT, None))
    return model


def of_signs(model: onnx.ModelProto) -> int:
    """Signs of a sum with a constant that nothing else reads."""
    uses = Counter(name for node in model.graph.node for name in node.input)
    made = {node.output[0]: node for node in model.graph.node}
    constants = {tensor.name for tensor in model.graph.initializer}
    return sum(node.op_type == "Sign" and made[node.input[0]].op_type == "Add" and uses[node.input[0]] == 1
               and not constants.isdisjoint(made[node.input[0]].input) for node in model.graph.node)


@pytest.mark.parametrize("end", ["conv", "shift"])
def test_shifts_of_signs(end: str, rng: Rng):
    """None is left, and each RPReLU is a sum, but for one that ends the model."""
    model = reactnet(rng, 3, end)
    x = rng.normal(size=(5, 3, 8, 8)).astype(np.float32)
    expected, folded = outputs_of(model, x), fold_shifts(move_shifts(copied(model)))
    onnx.checker.check_model(folded, full_check=True)
    assert (of_signs(model), of_signs(folded)) == (3, 0)
    assert sum(node.op_type == "PRelu" for node in folded.graph.node) == (end == "shift")
    assert np.mean(np.abs(outputs_of(folded, x) - expected) > 1e-3) < 0.02
    assert fold_shifts(copied(folded)) == folded


@pytest.mark.parametrize("changes, bent", [
    (dict(), 0), (dict(after=True), 0), (dict(stem="maximum"), 0), (dict(after=True, slope=1.2), 1)])
def test_shifts_beside_averages(changes: dict, bent: int, rng: Rng):
    """Where the shift after a PRelu cannot be in front of it, it has that of the Sign, too."""
    model = branches(rng, **changes)
    x = rng.normal(size=(5, 3, 8, 8)).astype(np.float32)
    folded = fold_shifts(move_shifts(copied(model)))
    assert (of_signs(model), of_signs(folded)) == (2, 0)
    assert sum(node.op_type == "PRelu" for node in folded.graph.node) == bent
    assert np.mean(np.abs(outputs_of(folded, x) - outputs_of(model, x)) > 1e-3) < 0.02


def test_shifts_of_doubled_channels(rng: Rng):
    """ReActNet on MobileNet's layers: two layers of one RSign side by side, each with the shortcut, and an RPReLU."""
    b = FloatBuilder(rng, [1, 3, 8, 8])
    x = b.same_conv("x", 3, CHANNELS, name="stem")
    signs = b.node("Sign", shift(b, x, (1, CHANNELS, 1, 1)))
    parts = []
    for _ in range(2):
        w = b.constant(np.where(rng.random((CHANNELS, CHANNELS, 1, 1)) < 0.5, -0.05, 0.05))
        parts.append(b.node("Add", b.norm(b.node("Conv", signs, w), rng.uniform(0.5, 1.5, CHANNELS)), x))
    numbers = (2 * CHANNELS, 1, 1)
    y = b.node("PRelu", shift(b, b.node("Concat", *parts, axis=1), numbers), b.constant(rng.uniform(0.1, 0.4, numbers)))
    w = b.constant(np.where(rng.random((8, 2 * CHANNELS, 1, 1)) < 0.5, -0.05, 0.05))
    model = b.model(b.node("Conv", b.node("Sign", shift(b, shift(b, y, numbers), numbers)), w))
    x = rng.normal(size=(5, 3, 8, 8)).astype(np.float32)
    folded = fold_shifts(move_shifts(copied(model)))
    assert (adds(model), of_signs(folded)) == (4, 0)
    # What the sum takes for the PRelu has a constant of its own.
    assert adds(folded) == 1
    assert np.mean(np.abs(outputs_of(folded, x) - outputs_of(model, x)) > 1e-3) < 0.02


@pytest.mark.parametrize("changes", [
    dict(slope=1.2), dict(slope=0), dict(stem="relu"), dict(reader="relu"), dict(reader="padded"),
    dict(reader="output")])
def test_shifts_that_stay(changes: dict, rng: Rng):
    """One of two: of slopes above 1, of a single one, and where something else reads the tensor that would need it as
    it was.
    """
    model = branches(rng, **changes)
    x = rng.normal(size=(5, 3, 8, 8)).astype(np.float32)
    folded = fold_shifts(move_shifts(copied(model)))
    assert of_signs(folded) == 1
    assert np.mean(np.abs(outputs_of(folded, x) - outputs_of(model, x)) > 1e-3) < 0.02


@pytest.mark.slow
def test_cycles_of_reactnet(rng: Rng, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    model = reactnet(rng, 2)
    x = rng.normal(size=(8, 3, 8, 8)).astype(np.float32)
    config = NpuConfig.preset(256, gather=1, binary_rows=8)
    cycles, layers = [], []
    for without in ("", "fold_shifts", "move_shifts"):
        if without:
            monkeypatch.setattr(f"gen.quantize.prepare.{without}", lambda model: model)
        made = quantize(model, {"x": x}).model
        onnx.save(made, tmp_path / "q.onnx")
        cycles.append(cycles_of(made, config, name="q"))
        layers.append(len(load(tmp_path / "q.onnx").layers))
        assert not compare(tmp_path / "q.onnx", {"x": x}).wrong
    assert cycles == sorted(cycles) and len(set(cycles)) == 3
    # A block is signs, which need no layer of their own with the unit, and two layers.
    assert layers == [8, 9, 12]


@pytest.mark.parametrize("form", ["output", "one_channel", "samples"])
def test_shifts_of_sums_that_stay(form: str, rng: Rng):
    """A sum that is a result of the model; one of a single channel, that a shift makes several; and numbers that are
    not those of the channels, but of the samples.
    """
    b = FloatBuilder(rng, [4, 3, 8] if form == "samples" else [1, 3, 6, 6])
    outputs = 1 if form == "one_channel" else 4

    def layer() -> str:
        w = b.weights(outputs, 3, 1) if form == "samples" else b.weights(outputs, 3, 1, 1)
        return b.node("Conv", "x", w, b.constant(rng.normal(size=outputs)))

    moved = shift(b, b.node("Add", layer(), b.node("Sigmoid", layer())), (4, 1, 1))
    value = moved if form == "output" else b.node("Conv", moved, b.weights(2, 4, *(1 for _ in b.shape[2:])))
    model = b.model(value)
    session, x = ort.InferenceSession, rng.normal(size=b.shape).astype(np.float32)
    expected, found = (session(each.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
                       for each in (model, fold_shifts(move_shifts(copied(model)))))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("reader", ["relu", "output", "shared", "pixel"])
def test_what_cannot_be_moved_stays(reader: str, rng: Rng):
    b = FloatBuilder(rng, [1, 4, 6, 6])
    bent = b.node("LeakyRelu", b.same_conv("x", 4, 4))
    moved = shift(b, bent, (1, 4, 6, 6) if reader == "pixel" else (4, 1, 1))
    other = b.same_conv("x", 4, 4)
    value = b.node("Relu", moved) if reader == "relu" else b.node("Add", moved, other)
    if reader == "shared":
        value = b.node("Add", value, b.node("Sigmoid", other))
    model = b.model(value)
    if reader == "output":
        model.graph.output.append(helper.make_tensor_value_info(moved, onnx.TensorProto.FLOAT, [1, 4, 6, 6]))
    x = rng.normal(size=(3, 4, 6, 6)).astype(np.float32)
    expected = outputs_of(model, x)
    changed = move_shifts(copied(model))
    assert adds(changed) == adds(model) == 1
    np.testing.assert_allclose(outputs_of(changed, x), expected, atol=1e-5)
