"""The real networks against golden outputs and onnxruntime; and whether the comparison finds a difference."""

import warnings
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from gen.check.compare import compare, compare_model
from gen.cli import main
from gen.ir import reference
from gen.ir.epilogue.leaky import Leaky
from gen.ir.errors import GraphError
from gen.onnx.importer import load_model
from tests.epilogues import operation
from tests.gen.float_models import FloatBuilder
from tests.gen.qdq import Builder
from tests.gen.test_never_refused import beside
from tests.selection import with_full

#: Model, layers of its graph, samples to compare, largest difference at the logits.
NETWORKS = [
    ("mlperf_resnet8_int8", 11, 10, 5),
    ("mlperf_vww_mnv1_025_int8", 29, 4, 1),
    ("mlperf_kws_dscnn_int8", 11, 12, 1),
    ("tinymaix_mnist_resnet_int8", 5, 200, 1),
    ("tinymaix_mnist_valid_int8", 5, 200, 1),
    ("coral_mnv1_025_128_uint8", 29, 4, 3),
    ("coral_mnv2_10_224_uint8", 54, 1, 3),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "layers", "samples", "largest"), NETWORKS)
def test_networks(name: str, layers: int, samples: int, largest: int, models: Path) -> None:
    imported = load_model(models / f"{name}.onnx")
    assert len(imported.graph.layers) == layers
    golden = np.load(models / f"{name}.golden.npz")
    inputs = {key: golden[key][:samples] for key in imported.graph.inputs}
    comparison = compare_model(imported, inputs)
    # Every layer by itself: one step at most, and rarely that. Averages of equal scale have exact halves, which
    # onnxruntime rounds to even.
    assert comparison.largest <= 1
    for row in comparison.layers:
        assert row.differing <= row.values * (0.05 if row.op == "pool" else 0.002) + 1, row
    (output,) = comparison.outputs
    assert max(abs(difference) for difference in output.distribution) <= largest
    assert output.host_differing == 0
    outputs, _ = reference.run(imported.graph, inputs)
    ours, theirs = outputs[output.output].argmax(axis=1), golden["ort"][:samples].argmax(axis=1)
    if (golden["label"] >= 0).all():        # the others are photographs without a label
        labels = golden["label"][:samples]
        assert (ours == labels).sum() == (theirs == labels).sum()
        assert (ours == theirs).all()
    else:
        # Where the answer differs, onnxruntime and TFLite do not agree on it either.
        disputed = golden["tflite_ref"][:samples].argmax(axis=1) != theirs
        assert ((ours == theirs) | disputed).all()


def test_detector(models: Path) -> None:
    """YOLO with LeakyRelu, Resize and Concat: wholly on the machine, as near to onnxruntime as TFLite is."""
    imported = load_model(models / "yolo_person_96_int8.onnx")
    golden = np.load(models / "yolo_person_96_int8.golden.npz")
    inputs = {"input_0": golden["input_0"]}
    assert sum(operation(layer, Leaky) is not None for layer in imported.graph.layers) == 28
    assert [layer.repeats for layer in imported.graph.layers if layer.repeats != (1, 1)] == [(2, 2)]
    assert all(layer.op == "conv" for layer in imported.graph.layers if operation(layer, Leaky))
    comparison = compare_model(imported, inputs)
    assert comparison.largest <= 1 and sum(row.differing for row in comparison.layers) < 100
    outputs, _ = reference.run(imported.graph, inputs)
    for name, output in outputs.items():
        ours = np.abs(output.astype(int) - golden[f"ort_{name}"])
        between = np.abs(golden[f"tflite_ref_{name}"].astype(int) - golden[f"ort_{name}"])
        assert ours.max() <= between.max() and ours.mean() <= between.mean()


class NormalSamples(CalibrationDataReader):
    """A few samples of normal noise."""

    def __init__(self, rng: np.random.Generator, key: str, shape: tuple[int, ...]) -> None:
        self.left = [{key: rng.normal(0, 1, shape).astype(np.float32)} for _ in range(2)]

    def get_next(self) -> dict[str, np.ndarray] | None:  # type: ignore[override]
        return self.left.pop() if self.left else None


#: Settings of onnxruntime's quantiser beside its defaults.
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "per_channel": {"per_channel": True},
    "operators": {"quant_format": QuantFormat.QOperator},
    "unsigned_operators": {"quant_format": QuantFormat.QOperator, "activation_type": QuantType.QUInt8,
                           "per_channel": True},
    "unsigned": {"activation_type": QuantType.QUInt8},
}


@pytest.mark.slow
@pytest.mark.parametrize("settings", ["default", *(pytest.param(s, marks=pytest.mark.full) for s in SETTINGS
                                                   if s != "default")])
@pytest.mark.parametrize("name, prepared", with_full(list(product([
    "mlperf_resnet8_float", "mlperf_vww_float", "mnist8_float", "resnet20_cifar10_bn", "super_resolution_10_float"],
    [True, False])), ("super_resolution_10_float", False)))
def test_models_of_onnxruntimes_quantiser(name: str, prepared: bool, settings: str, models: Path,
                                          rng: np.random.Generator, tmp_path: Path) -> None:
    """With its preprocessing and without, which leaves BatchNormalization and biases between quantisations."""
    source = onnx.load(models / f"{name}.onnx")
    constants = {i.name for i in source.graph.initializer}
    (value,) = (i for i in source.graph.input if i.name not in constants)
    key, shape = value.name, (1, *(d.dim_value for d in value.type.tensor_type.shape.dim[1:]))
    # Older files list weights among the inputs, which would stay float.
    del source.graph.input[:]
    source.graph.input.append(value)
    source.ir_version = max(source.ir_version, 4)
    options: dict[str, Any] = SETTINGS[settings]
    if source.opset_import[0].version < 13:     # DequantizeLinear has an axis from then on
        options = {**options, "per_channel": False}
    floats, path = str(tmp_path / "float.onnx"), str(tmp_path / "model.onnx")
    onnx.save(source, floats)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if prepared:
            quant_pre_process(floats, floats, skip_symbolic_shape=True)
        quantize_static(floats, path, NormalSamples(rng, key, shape), **options)
    comparison = compare(path, {key: rng.normal(0, 1, (3, *shape[1:])).astype(np.float32)})
    assert comparison.largest <= 1
    assert comparison.outputs[0].host_differing == 0
    assert max(abs(difference) for difference in comparison.outputs[0].distribution) <= 8


def test_binary_network(models: Path) -> None:
    """Signs and sums, which no quantisation is behind."""
    golden = np.load(models / "cnvW1A1_cifar10.golden.npz")
    comparison = compare(models / "cnvW1A1_cifar10.onnx", {"image": golden["image"][:2]})
    assert len(comparison.layers) == 10 and not any(row.differing for row in comparison.layers)
    (output,) = comparison.outputs
    assert (output.distribution, output.agreement, output.host_differing) == ({0: 20}, 1.0, 0)


def test_finds_a_wrong_layer(rng: np.random.Generator, tmp_path: Path) -> None:
    """Two steps too many in one layer show there, and nowhere else."""
    b = Builder(rng)
    y = b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, 6, 6)), b.weights(8, 3, 3, 3)), 0.1)
    b.output(b.quantize(b.node("Conv", y, b.weights(5, 8, 3, 3)), 0.1))
    imported = load_model(b.save(tmp_path))
    first, second = imported.graph.layers
    wrong = replace(first, requantize=replace(first.requantize, zero_point=first.requantize.zero_point + 2))
    spoiled = replace(imported, graph=replace(imported.graph, layers=[wrong, second]))
    comparison = compare_model(spoiled, b.samples())
    assert [row.largest > 1 for row in comparison.layers] == [True, False]
    assert set(comparison.outputs[0].distribution) != {0}


def test_a_residual_has_a_row_of_its_own(rng: np.random.Generator, tmp_path: Path) -> None:
    b = Builder(rng)
    x = b.dequantize(b.input(1, 8, 6, 6))
    y = b.requantize(b.node("Conv", x, b.weights(8, 8, 1, 1)))
    b.output(b.quantize(b.node("Add", x, y), 0.1))
    before, after = compare(b.save(tmp_path), b.samples()).layers
    assert before.layer == after.layer and (before.op, after.op) == ("conv", "add")


def test_finds_a_wrong_host_step(rng: np.random.Generator, tmp_path: Path) -> None:
    b = Builder(rng)
    b.output(b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, 6, 6)), b.weights(8, 3, 3, 3))), np.float32)
    imported = load_model(b.save(tmp_path))
    ((name, (tensor, (step,))),) = imported.graph.outputs.items()
    wrong = replace(step, parameters={**step.parameters, "zero_point": 200})
    spoiled = replace(imported, graph=replace(imported.graph, outputs={name: (tensor, (wrong,))}))
    assert compare_model(spoiled, b.samples()).outputs[0].host_differing > 0


def test_no_samples(rng: np.random.Generator, tmp_path: Path) -> None:
    b = Builder(rng)
    b.output(b.quantize(b.node("Conv", b.dequantize(b.input(1, 3, 6, 6)), b.weights(8, 3, 3, 3))))
    with pytest.raises(GraphError, match="no samples"):
        compare(b.save(tmp_path), {"x": np.zeros((0, 3, 6, 6), np.int8)})


def test_a_node_that_is_refused_in_its_segment_alone(rng: np.random.Generator, tmp_path: Path) -> None:
    """A mean over channels that lie in another way after what the processor has; `compare` leaves it to that, as
    `compile` does.
    """
    b = FloatBuilder(rng, ["n", 12, 32])

    def scaled(x: str) -> str:
        mean = b.node("ReduceMean", b.node("Pow", x, b.constant(np.float32(4))), axes=[-1], keepdims=1)
        root = b.node("Sqrt", b.node("Add", mean, b.constant(np.float32(1e-5))))
        return b.node("Mul", x, b.node("Reciprocal", root))

    y = b.node("Gather", b.constant(rng.normal(size=(50, 32))), "y")
    y = b.node("Add", y, b.node("MatMul", scaled(y), b.weights(32, 32)))
    y = b.node("Add", b.node("MatMul", scaled(y), b.weights(32, 8)), b.node("MatMul", "x", b.weights(32, 8)))
    path, samples = tmp_path / "m.onnx", tmp_path / "x.npz"
    onnx.save(beside(b, y, onnx.TensorProto.INT64, ["n", 12]), path)
    np.savez(samples, x=rng.normal(size=(4, 12, 32)).astype(np.float32), y=rng.integers(0, 50, (4, 12)))
    assert main(["compare", str(path), "--calibrate", str(samples), "--input", str(samples)]) == 0
