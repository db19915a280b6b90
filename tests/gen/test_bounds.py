"""What `compare` makes of differences: roundings that meet are none of a layer's faults, and a wrong scale is one."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gen.check.compare
from gen.check.bounds import Bounds
from gen.check.compare import LayerDifference, compare_layers
from gen.cli import main
from gen.ir import reference
from gen.ir.epilogue.add import Add
from gen.ir.graph import Graph, Layer
from gen.onnx.importer import Imported, load_model
from gen.onnx.machine import Machine
from gen.partition.partition import Partition
from tests.gen.qdq import Builder

Rng = np.random.Generator
_STEP = 1 / 16


def _halves(b: Builder, x: str, channels: int) -> str:
    """A 1x1 convolution whose exact results are often halves of a step, which onnxruntime rounds to even."""
    weights = b.rng.integers(-1, 2, (channels, 4, 1, 1)).astype(np.int8)
    return b.node("Conv", x, b.node("DequantizeLinear", b.constant(weights), b.scale(0.5), b.constant(np.int8(0))))


def upsampled_branches(b: Builder) -> str:
    """SiLU of what is one LSB off, upsampled, beside another in a Concat of finer steps: four LSBs there are one of
    the convolution, and its slope up to 1.1."""
    x = b.requantize(b.input(1, 4, 4, 4, number=np.float32), _STEP, 0)
    parts = []
    for _ in range(2):
        y = b.requantize(_halves(b, x, 4), _STEP, 0)
        y = b.requantize(b.node("Mul", y, b.requantize(b.node("Sigmoid", y), 1 / 256, -128)), _STEP / 2, 0)
        y = b.node("Resize", y, "", b.constant(np.float32([1, 1, 2, 2])), mode="nearest",
                   coordinate_transformation_mode="asymmetric", nearest_mode="floor")
        parts.append(b.requantize(y, _STEP / 2, 0))
    return b.quantize(b.node("Concat", *parts, axis=1), _STEP / 4, 0)


def added_functions(b: Builder) -> str:
    """A sum of two functions that the model does not quantise: each table rounds to one and a half steps of the sum."""
    x = b.requantize(b.input(1, 4, 8, 8, number=np.float32), _STEP, 0)
    y, z = (b.requantize(b.node("Conv", x, b.weights(4, 4, 3, 3), pads=[1] * 4), _STEP, 0) for _ in range(2))
    waves = [b.node("Mul", b.node(op, value), b.constant(np.float32(10))) for op, value in (("Sin", y), ("Cos", z))]
    return b.quantize(b.node("Add", *waves), 0.05, 0)


def scaled_by_channel(b: Builder) -> str:
    """PRelu: a sum of a tensor and what slopes take from its negative part, which is rounded to 9 bits first."""
    x = b.requantize(_halves(b, b.requantize(b.input(1, 4, 4, 4, number=np.float32), _STEP, 0), 4), _STEP, 0)
    slopes = b.constant(b.rng.uniform(0.1, 0.4, (4, 1, 1)).astype(np.float32))
    return b.quantize(b.node("PRelu", x, slopes), _STEP / 4, 0)


def joined_rows(b: Builder) -> str:
    """Rows of two tensors, of which one is brought to the scale of the whole first, and the other has it."""
    x = b.requantize(b.input(1, 4, 8, 8, number=np.float32), _STEP, 0)
    parts = [b.requantize(b.node("Conv", x, b.weights(4, 4, 3, 3), pads=[1] * 4, strides=[down, 1]), scale, 0)
             for down, scale in ((1, 0.05), (2, _STEP))]
    whole = b.requantize(b.node("Concat", *parts, axis=2), 0.05, 0)
    return b.quantize(b.node("Conv", whole, b.weights(4, 4, 1, 1)), 0.05, 0)


MODELS = (upsampled_branches, added_functions, scaled_by_channel, joined_rows)


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest, rng: Rng, tmp_path: Path) -> Path:
    make: Callable[[Builder], str] = request.param
    b = Builder(rng, opset=18)
    b.output(make(b))
    np.savez(tmp_path / "x.npz", x=b.samples(8)["x"])
    return b.save(tmp_path)


def _rows(imported: Imported, folder: Path) -> list[LayerDifference]:
    return compare_layers(imported, dict(np.load(folder / "x.npz")))


def _spoil(layer: Layer) -> Layer:
    """A scale that is wrong by a sixteenth."""
    stage = layer.requantize
    return replace(layer, requantize=replace(stage, multiplier=stage.multiplier - stage.multiplier // 16))


def test_what_rounding_explains(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    assert main(["compare", str(model), "--input", str(tmp_path / "x.npz")]) == 0
    assert "error" not in capsys.readouterr().err
    rows = _rows(load_model(model, machine=Machine.complete()), tmp_path)
    assert sum(row.differing for row in rows) and not any(row.beyond for row in rows)


def test_a_wrong_scale_in_one_layer(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture,
                                    monkeypatch: pytest.MonkeyPatch):
    """Whichever layer it is that rounds in its first stage, it is named, and no other."""
    imported = load_model(model, machine=Machine.complete())
    computing = [n for n, layer in enumerate(imported.graph.layers) if layer.op == "conv"]
    assert computing
    for number in computing:
        layers = [_spoil(layer) if n == number else layer for n, layer in enumerate(imported.graph.layers)]
        spoiled = replace(imported, graph=replace(imported.graph, layers=layers))
        monkeypatch.setattr(Partition, "whole", spoiled)
        assert main(["compare", str(model), "--input", str(tmp_path / "x.npz")]) == 1
        (said,) = capsys.readouterr().err.splitlines()
        assert said.startswith(f"gen compare: error: layer {layers[number].name} (") and "more layers" not in said


def test_a_concat_of_what_is_one_lsb_off(rng: Rng, tmp_path: Path):
    """Each convolution has a row of its own, though what follows it is merged into it."""
    b = Builder(rng, opset=18)
    b.output(upsampled_branches(b))
    np.savez(tmp_path / "x.npz", x=b.samples(8)["x"])
    imported = load_model(b.save(tmp_path), machine=Machine.complete())
    assert [layer.repeats for layer in imported.graph.layers] == [(2, 2)] * 2
    rows = {row.op: row for row in _rows(imported, tmp_path)}
    assert rows["conv"].differing and rows["conv"].largest == 1 and not rows["concat"].differing


def test_sums_of_functions_may_be_two_units_off(rng: Rng, tmp_path: Path):
    b = Builder(rng, opset=18)
    b.output(added_functions(b))
    np.savez(tmp_path / "x.npz", x=b.samples(64)["x"])
    last = _rows(load_model(b.save(tmp_path), machine=Machine.complete()), tmp_path)[-1]
    assert last.allowed == 2 and last.beyond == 0


def _perturbed(graph: Graph, name: str, steps: float, values: dict[str, np.ndarray]) -> np.ndarray:
    """The last tensor where that called ``name`` is so many steps further up, in front of its reader's rounding."""
    layers = []
    for layer in graph.layers:
        if layer.others == (name,):
            (added,) = layer.epilogue
            assert isinstance(added, Add)
            more = round(steps * added.multiplier_b)
            layer = replace(layer, epilogue=(replace(added, constant=added.constant + more),))
        layers.append(layer)
    _, kept = reference.run(replace(graph, layers=layers), values, keep=True)
    assert kept is not None
    return kept[graph.layers[-1].output].astype(int)


def test_bounds_hold_for_what_they_are_of(rng: Rng, tmp_path: Path):
    """A tensor that the model does not have is half a step further up or down: the sum stays within its bound, and
    reaches it."""
    b = Builder(rng, opset=18)
    b.output(added_functions(b))
    inputs = b.samples(64)
    graph = load_model(b.save(tmp_path), machine=Machine.complete()).graph
    values = gen.check.compare._reference_stages(graph, inputs)
    last = graph.layers[-1]
    (other,) = last.others
    assert not graph.tensors[other].onnx_name
    allowed = Bounds(graph, values)[last.output]
    for steps in (-0.5, 0.5):
        apart = np.abs(_perturbed(graph, other, steps, inputs) - values[last.output])
        assert apart.any() and (apart <= allowed).all()
