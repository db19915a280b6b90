"""Masks of scores when a float model is quantised: all of it on the accelerator, and near onnxruntime."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from cores.config import NpuConfig
from gen.check.compare import compare_model
from gen.onnx.importer import load_model
from gen.onnx.machine import Machine
from tests.gen.float_models import FloatBuilder
from tests.gen.quantizing import outputs_of, quantized

TOKENS, HEADS, SIZE = 9, 2, 20
WIDTH = HEADS * SIZE


@pytest.mark.parametrize("low", [-np.inf, np.finfo(np.float32).min, -1e4])
def test_causal(low: float, rng: np.random.Generator, tmp_path: Path) -> None:
    b = FloatBuilder(rng, [1, TOKENS, WIDTH], opset=17)
    split = b.constant(np.array([1, TOKENS, HEADS, SIZE]))
    query, key, value = (
        b.node("Transpose", b.node("Reshape", b.node("MatMul", "x", b.weights(WIDTH, WIDTH)), split), perm=perm)
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
    mask = np.where(np.tri(TOKENS, dtype=bool), 0, np.float32(low)).astype(np.float32)
    scores = b.node("Mul", b.node("MatMul", query, key), b.constant(np.float32(SIZE**-0.5)))
    shares = b.node("Softmax", b.node("Add", scores, b.constant(mask)), axis=-1)
    mixed = b.node("Transpose", b.node("MatMul", shares, value), perm=[0, 2, 1, 3])
    mixed = b.node("Reshape", mixed, b.constant(np.array([1, TOKENS, WIDTH])))
    model = b.model(b.node("MatMul", mixed, b.weights(WIDTH, 12), name="y"), rank=3)
    x = rng.normal(size=(4, TOKENS, WIDTH)).astype(np.float32)
    made = quantized(model, x, method="minmax").model
    expected = outputs_of(model, x)
    assert np.abs(outputs_of(made, x) - expected).max() < 0.1 * np.abs(expected).max()
    onnx.save(made, tmp_path / "masked.onnx")
    imported = load_model(tmp_path / "masked.onnx", machine=Machine.of(NpuConfig.preset(64, turn=1, rows=64)))
    assert compare_model(imported, {"x": x}).largest <= 2
