"""Softmax and normalisations in models: against onnxruntime, and on the functional simulator."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cores.config import NpuConfig
from gen.check.compare import compare_model
from gen.ir.errors import GraphError, UnfitError
from gen.onnx.importer import Imported, load_model
from gen.onnx.machine import Machine
from sim.cycles import estimate
from tests.compiled import compile_kept
from tests.errors import raises
from tests.gen.qdq import Builder
from tests.gen.test_compiler import run_and_compare
from tests.gen.test_onnx_heads import projected, scores

Rng = np.random.Generator
CONFIG = NpuConfig.preset(64, gather=1, rows=32)
MACHINE = Machine.of(CONFIG)


def checked(b: Builder, folder: Path, seed: int, *ops: str) -> None:
    """Every layer differs from onnxruntime's by a unit at most; the machine has the golden model's bytes."""
    imported = load_model(b.save(folder), machine=MACHINE)
    assert [layer.op for layer in imported.graph.layers] == list(ops)
    assert max(row.largest for row in compare_model(imported, b.samples()).layers) <= 1
    run_and_compare(*compile_kept(imported.graph, CONFIG), seed, ("load", "store"))


@pytest.mark.parametrize("number", [np.int8, np.uint8])
def test_attention(number: type, rng: Rng, seed: int, tmp_path: Path) -> None:
    """Scores of three heads, Softmax of each, and their products with values."""
    b, heads, tokens, size = Builder(rng, number=number), 3, 19, 20
    points = (3, -7) if number is np.int8 else (131, 121)
    scored = b.dequantize(scores(b, heads, tokens, size, points), 0.083, 5)
    chances = b.requantize(b.node("Softmax", scored, axis=-1), 1 / 256, -128 if number is np.int8 else 0)
    value = projected(b, b.dequantize(b.input(1, tokens, heads * size, name="v"), 0.05, 3), heads, tokens, size,
                      points[0], axes=[0, 2, 1, 3])
    b.output(b.quantize(b.node("MatMul", chances, value), 0.047, points[0]))
    checked(b, tmp_path, seed, "conv", "conv", *["matmul"] * heads, "softmax", "conv", *["matmul"] * heads)


@pytest.mark.parametrize("axis", [-1, 1])
def test_softmax(axis: int, rng: Rng, seed: int, tmp_path: Path) -> None:
    """Of tokens, whose channels are last, and of pixels."""
    b = Builder(rng)
    x = b.dequantize(b.input(*((1, 9, 20) if axis == -1 else (1, 20, 3, 3))), 0.08, 3)
    b.output(b.quantize(b.node("Softmax", x, axis=axis), 1 / 256, -128), rank=3 if axis == -1 else 4)
    checked(b, tmp_path, seed, "softmax")


@pytest.mark.parametrize("size", [10, 300])
def test_a_last_row(size: int, rng: Rng, seed: int, tmp_path: Path) -> None:
    """Is the processor's, as the row unit would take longer, and a line says so; not where a layer follows."""
    b = Builder(rng)
    x = b.requantize(b.node("Gemm", b.dequantize(b.input(1, 20), 0.08, 3), b.weights(20, size, axis=1)), 0.08, 3)
    shares = b.requantize(b.node("Softmax", x, axis=-1), 1 / 256, -128)
    b.output(b.node("Reshape", shares, b.constant(np.array([1, 1, size]))), np.float32, rank=3)
    last = load_model(b.save(tmp_path), machine=MACHINE)
    assert [layer.op for layer in last.graph.layers] == ["conv"]
    (line,) = last.remarks
    assert "node softmax" in line.lower() and "has one row: the processor computes it" in line
    assert compare_model(last, b.samples()).largest <= 1
    b.output(b.quantize(b.node("Gemm", shares, b.weights(size, 4, axis=1)), 0.1, 0), rank=2)
    both = load_model(b.save(tmp_path), machine=MACHINE)
    assert [layer.op for layer in both.graph.layers] == ["conv", "softmax", "conv"] and not both.remarks
    with_rows = replace(both.graph, layers=both.graph.layers[:2], outputs={"y": (both.graph.layers[1].output, ())})
    quick, slow = (estimate(CONFIG, compile_kept(graph, CONFIG)[0].code).cycles for graph in (last.graph, with_rows))
    assert slow > quick + 300


def test_normalisations(rng: Rng, seed: int, tmp_path: Path) -> None:
    b, channels = Builder(rng, opset=17), 52
    x = b.dequantize(b.input(1, 9, channels), 0.08, 3)
    gamma, beta = rng.uniform(0.05, 2, channels), rng.normal(0, 1, channels)
    y = b.requantize(b.node("LayerNormalization", x, *(b.constant(c.astype(np.float32)) for c in (gamma, beta)),
                            epsilon=1e-6), 0.05, -4)
    y = b.requantize(b.node("MatMul", y, b.weights(channels, 24, axis=1)), 0.05, 9)
    b.output(b.quantize(b.node("LayerNormalization", y, b.constant(np.ones(24, np.float32))), 0.03, 0), rank=3)
    checked(b, tmp_path, seed, "normalise", "conv", "normalise")


@pytest.mark.parametrize("point", [0, -90, 77])
def test_scales_of_any_sign(point: int, rng: Rng, seed: int, tmp_path: Path) -> None:
    """Some are negative, some zero; the result may have any zero point, and be clipped."""
    b, channels = Builder(rng, opset=17), 52
    x = b.dequantize(b.input(1, 9, channels), 0.08, 3)
    gamma, beta = rng.uniform(-2, 2, channels), rng.normal(0, 1, channels)
    gamma[::7], beta[::14] = 0, 0
    y = b.node("LayerNormalization", x, *(b.constant(c.astype(np.float32)) for c in (gamma, beta)), epsilon=1e-6)
    b.output(b.quantize(b.node("Relu", y) if point == 77 else y, 0.03, point), rank=3)
    checked(b, tmp_path, seed, "normalise", "conv")


def test_without_a_mean(rng: Rng, seed: int, tmp_path: Path) -> None:
    """The input has a mean, and a zero point, which is no part of it."""
    b, channels = Builder(rng, opset=23), 52
    x = b.dequantize(b.input(1, 9, channels), 0.08, 30)
    gamma = b.constant(rng.uniform(0.05, 2, channels).astype(np.float32))
    b.output(b.quantize(b.node("RMSNormalization", x, gamma, epsilon=1e-6), 0.05, -4), rank=3)
    checked(b, tmp_path, seed, "normalise")


def long_rows(channels: int, rng: Rng, folder: Path) -> tuple[Builder, Imported]:
    b = Builder(rng, opset=17)
    x = b.dequantize(b.input(1, 3, channels), 0.08, -9)
    gamma = b.constant(rng.uniform(0.5, 2, channels).astype(np.float32))
    b.output(b.quantize(b.node("LayerNormalization", x, gamma), 0.05, 3), rank=3)
    imported = load_model(b.save(folder), machine=MACHINE)
    assert [layer.op for layer in imported.graph.layers] == ["pool", "normalise"]
    return b, imported


def test_long_rows(rng: Rng, seed: int, tmp_path: Path) -> None:
    """Their values are in coarser steps, of which sums have room; without those they are refused."""
    b, imported = long_rows(1536, rng, tmp_path)
    assert 0 < compare_model(imported, b.samples()).largest <= 3
    run_and_compare(*compile_kept(imported.graph, CONFIG), seed, ("load", "store"))
    narrow, rows = imported.graph.layers
    with pytest.raises(UnfitError, match="rows of 1536 channels have sums"):
        compile_kept(replace(imported.graph, layers=[replace(rows, input=narrow.input)]), CONFIG)


def test_rows_with_results_of_too_many_bits(rng: Rng, tmp_path: Path) -> None:
    _, imported = long_rows(1040, rng, tmp_path)
    with pytest.raises(UnfitError, match="rows of 1040 channels have sums"):
        compile_kept(imported.graph, CONFIG)


def test_epsilon_beside_small_values(rng: Rng, seed: int, tmp_path: Path) -> None:
    """Rows that hardly vary, as in a block that training has given up: the machine's roots are of 43 bits."""
    for step in (4e-5, 1e-6):
        b = Builder(rng, opset=17)
        x = b.dequantize(b.input(1, 9, 20), step, 3)
        y = b.node("LayerNormalization", x, b.constant(np.ones(20, np.float32)))
        b.output(b.quantize(y, 250 * step, 0), rank=3)
        if step > 1e-5:
            checked(b, tmp_path, seed, "normalise")
        else:
            with raises(GraphError, "bad-scale", match="hardly normalises"):
                load_model(b.save(tmp_path), machine=MACHINE)


def test_what_is_refused(rng: Rng, tmp_path: Path) -> None:
    for code, gamma, axis, machine in [
            ("needs-unit", 1, -1, Machine()), ("bad-scale", 0, -1, MACHINE),
            ("unsupported-form", 1, 1, MACHINE)]:
        b = Builder(rng, opset=17)
        x = b.dequantize(b.input(1, 9, 20), 0.08, 3)
        scale = b.constant(np.full(20, gamma, np.float32))
        b.output(b.quantize(b.node("LayerNormalization", x, scale, axis=axis)), rank=3)
        with raises(GraphError, code):
            load_model(b.save(tmp_path), machine=machine)
