"""LayerNormalization that is written as its steps is found, over the last axis and over the channels of a map."""

from pathlib import Path

import numpy as np
import pytest

from cores.config import NpuConfig
from gen.check.compare import compare_model
from gen.onnx.importer import load_model
from gen.onnx.machine import Machine
from gen.quantize.prepare import prepare
from tests.compiled import compile_kept
from tests.gen.float_models import FloatBuilder
from tests.gen.quantizing import outputs_of, quantized
from tests.gen.test_compiler import run_and_compare

CONFIG = NpuConfig.preset(64, rows=64)
CHANNELS, SIDE = 12, 6


def steps(b: FloatBuilder, x: str, axis: int, *, power: float = 2.0, bias: bool = True) -> str:
    """As PyTorch exports it in opset 13: the difference is there once or twice."""
    def mean(value: str) -> str:
        return b.node("ReduceMean", value, axes=[axis], keepdims=1)

    shape = (CHANNELS, 1, 1) if axis == 1 else (CHANNELS,)
    less = b.node("Sub", x, mean(x))
    square = b.node("Pow", b.node("Sub", x, mean(x)), b.constant(np.float32(power)))
    root = b.node("Sqrt", b.node("Add", mean(square), b.constant(np.float32(1e-5))))
    y = b.node("Mul", b.node("Div", less, root), b.constant(b.rng.uniform(0.5, 2, shape)))
    return b.node("Add", y, b.constant(b.rng.normal(size=shape))) if bias else y


def network(rng: np.random.Generator, axis: int, **options: object):
    b = FloatBuilder(rng, [1, 3, SIDE, SIDE])
    x = b.same_conv("x", 3, CHANNELS, name="first")
    x = x if axis == 1 else b.node("Transpose", x, perm=[0, 2, 3, 1])
    y = steps(b, x, axis, **options)
    y = y if axis == 1 else b.node("Transpose", y, perm=[0, 3, 1, 2])
    return b.model(b.same_conv(y, CHANNELS, 4, kernel=1, name="y"), rank=4)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("axis", [1, -1])
def test_found(axis: int, bias: bool, rng: np.random.Generator, seed: int, tmp_path: Path) -> None:
    model = network(rng, axis, bias=bias)
    x = rng.normal(size=(8, 3, SIDE, SIDE)).astype(np.float32)
    made = prepare(model)
    assert {node.op_type for node in made.graph.node} <= {"Conv", "Transpose", "LayerNormalization"}
    np.testing.assert_allclose(outputs_of(made, x), outputs_of(model, x), rtol=0, atol=1e-4)
    (tmp_path / "m.onnx").write_bytes(quantized(model, x, method="minmax").model.SerializeToString())
    imported = load_model(tmp_path / "m.onnx", machine=Machine.of(CONFIG))
    assert [layer.op for layer in imported.graph.layers] == ["conv", "normalise", "conv"]
    assert max(row.largest for row in compare_model(imported, {"x": x[:2]}).layers) <= 1
    run_and_compare(*compile_kept(imported.graph, CONFIG), seed, ("load", "store"))


def test_another_power_is_none(rng: np.random.Generator) -> None:
    assert "LayerNormalization" not in {node.op_type for node in prepare(network(rng, -1, power=4.0)).graph.node}
