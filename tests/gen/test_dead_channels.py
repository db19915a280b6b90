"""Channels that died in training: weights next to nothing beside a constant, whose bias in their units has no end.

`gen.quantize` gives them a scale that fits; these models have none, as others write them.
"""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from cores.config import NpuConfig
from gen.check.compare import compare
from gen.ir.ranges import input_ranges
from gen.mapping.overflow_check import fit_sums
from gen.onnx.importer import load_model
from gen.onnx.read import read
from gen.partition.partition import partition
from gen.quantize import insert
from tests.gen.float_models import FloatBuilder
from tests.gen.quantizing import quantized


@pytest.fixture(autouse=True)
def other_quantiser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insert, "fit_weights", lambda *arguments: {})


def network(rng: np.random.Generator, form: str, size: float, shift: float) -> onnx.ModelProto:
    """A layer of 8 channels, of which number 2 has weights of ``size``, then a constant factor and summand."""
    b = FloatBuilder(rng, [1, 6, 8, 8])
    x = b.node("Relu", b.same_conv("x", 6, 8), name="first")
    if form == "Gemm":
        y = b.node("Gemm", b.node("Flatten", b.node("GlobalAveragePool", x)), b.weights(8, 8), name="dead", transB=1)
    else:
        y = b.same_conv(x, 8, 8, name="dead", group=8 if form == "depthwise" else 1)
    weights = next(c for c in b.constants if c.name == next(n for n in b.nodes if n.name == "dead").input[1])
    array = numpy_helper.to_array(weights).copy()
    array[2] *= size / np.abs(array[2]).max()
    weights.CopyFrom(numpy_helper.from_array(array, weights.name))
    y = b.node("Add", b.node("Mul", y, b.constant(np.float32([1.3]))), b.constant(np.float32([shift])))
    y = b.node("Relu", y, name="end") if shift > 0 else y
    return b.model(b.node("Gemm", y, b.weights(4, 8), transB=1) if form == "Gemm" else b.same_conv(y, 8, 4))


@pytest.mark.parametrize("size", [3e-7, 3e-9, 1e-13, 1e-30])
@pytest.mark.parametrize("form, shift", [("plain", 0.7), ("plain", -3.0), ("depthwise", 0.7), ("Gemm", 0.7)])
def test_a_dead_channel(form: str, shift: float, size: float, rng: np.random.Generator, tmp_path: Path) -> None:
    """Its layer stays on the machine, and counts as onnxruntime does but for rounding."""
    x = rng.normal(size=(20, 6, 8, 8)).astype(np.float32)
    path = tmp_path / "q.onnx"
    onnx.save(quantized(network(rng, form, size, shift), x).model, path)
    assert not partition(read(path)).host
    imported = load_model(path)
    if (form, size) != ("depthwise", 3e-9):     # its result is the same for all inputs, and 32 bits hold it
        (remark,) = imported.remarks
        assert remark.startswith(f"{path}: node dead: 1 channel with weights so small that no constant fits beside")
    for layer in imported.graph.layers:
        fit_sums(layer, NpuConfig(), input_ranges(imported.graph)[layer.name])
    found = compare(path, {"x": x[:6]})
    assert found.largest <= 1
    assert sum(row.differing for row in found.layers) <= sum(row.values for row in found.layers) // 200


def test_a_channel_that_saturates(rng: np.random.Generator, tmp_path: Path) -> None:
    """A summand that no sum brings back into the range."""
    b = FloatBuilder(rng, [1, 6, 8, 8])
    summand = b.constant(np.float32([0, 0, 1e4, -1e4]).reshape(1, 4, 1, 1))
    y = b.node("Add", b.same_conv("x", 6, 4, name="layer"), summand)
    y = b.node("Clip", y, b.constant(np.float32(-1)), b.constant(np.float32(1)))
    x, path = rng.normal(size=(4, 6, 8, 8)).astype(np.float32), tmp_path / "q.onnx"
    onnx.save(quantized(b.model(b.same_conv(y, 4, 4)), x).model, path)
    assert not partition(read(path)).host
    assert compare(path, {"x": x}).largest <= 1
