"""Products of two activations in models: against onnxruntime, on the functional simulator, and where they are cut."""

from math import sqrt
from pathlib import Path

import numpy as np
import onnx
import pytest

from cores.config import NpuConfig
from gen.check.compare import compare_model
from gen.ir.errors import GraphError
from gen.ir.graph import MatMul
from gen.onnx.importer import Imported, load_model
from gen.onnx.machine import Machine
from gen.onnx.read import read
from gen.partition.partition import partition
from tests.compiled import compile_kept
from tests.coverage.measure import measure
from tests.errors import raises
from tests.gen.architecture_parts import PARTS
from tests.gen.qdq import Builder
from tests.gen.test_compiler import run_and_compare

Rng = np.random.Generator
CONFIG = NpuConfig.preset(64, gather=1)
MACHINE = Machine.of(CONFIG)
ROWS = NpuConfig.preset(64, turn=1, rows=64)
PRODUCTS = NpuConfig.preset(64, turn=1, rows=64, product=1, table=1)


def projected(b: Builder, x: str, heads: int, tokens: int, size: int, point: int, *, axes: list[int]) -> str:
    """Of tokens ``x`` a layer's result in heads: (1, heads, tokens, size) by ``axes`` 0, 2, 1, 3."""
    width = heads * size
    y = b.requantize(b.node("MatMul", x, b.weights(width, width, axis=1)), 0.05, point)
    return b.node("Transpose", b.node("Reshape", y, b.constant(np.array([1, tokens, heads, size]))), perm=axes)


def scores(b: Builder, heads: int, tokens: int, size: int, points: tuple[int, int]) -> str:
    """Queries times keys, quantised."""
    x = b.dequantize(b.input(1, tokens, heads * size), 0.05, 3)
    query = projected(b, x, heads, tokens, size, points[0], axes=[0, 2, 1, 3])
    key = projected(b, x, heads, tokens, size, points[1], axes=[0, 2, 3, 1])
    return b.quantize(b.node("MatMul", query, key), 0.083, 5)


def checked(b: Builder, folder: Path, seed: int, *, heads: int) -> Imported:
    """A product differs from onnxruntime's by a unit at most, and seldom; the machine has the golden model's bytes."""
    imported = load_model(b.save(folder), machine=MACHINE)
    assert len([layer for layer in imported.graph.layers if isinstance(layer, MatMul)]) == heads
    comparison = compare_model(imported, b.samples())
    assert comparison.largest <= 1
    assert sum(row.differing for row in comparison.layers) <= 0.01 * sum(row.values for row in comparison.layers)
    run_and_compare(*compile_kept(imported.graph, CONFIG), seed, ("load", "store"))
    return imported


@pytest.mark.parametrize("points", [(0, 0), (3, -7), (-128, 127)], ids=str)
@pytest.mark.parametrize(("heads", "size"), [(1, 16), (3, 20), (2, 32)])
def test_scores(heads: int, size: int, points: tuple[int, int], rng: Rng, seed: int, tmp_path: Path) -> None:
    b = Builder(rng)
    b.output(scores(b, heads, 17, size, points))
    checked(b, tmp_path, seed, heads=heads)


@pytest.mark.parametrize("number", [np.int8, np.uint8])
@pytest.mark.parametrize("heads", [1, 3])
def test_values(heads: int, number: type, rng: Rng, seed: int, tmp_path: Path) -> None:
    """Probabilities that are an input, times values; a layer after the heads side by side."""
    b, tokens, size = Builder(rng, number=number), 19, 32
    point = 3 if number is np.int8 else 131
    x = b.dequantize(b.input(1, tokens, heads * size), 0.05, point)
    chances = b.dequantize(b.input(1, heads, tokens, tokens, name="p"), 1 / 255, -128 if number is np.int8 else 0)
    value = projected(b, x, heads, tokens, size, point, axes=[0, 2, 1, 3])
    mixed = b.node("Transpose", b.requantize(b.node("MatMul", chances, value), 0.047, point), perm=[0, 2, 1, 3])
    mixed = b.node("Reshape", mixed, b.constant(np.array([1, tokens, heads * size])))
    b.output(b.quantize(b.node("MatMul", mixed, b.weights(heads * size, 8, axis=1))))
    checked(b, tmp_path, seed, heads=heads)


def test_a_machine_without_gathered_loads(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    b.output(scores(b, 2, 9, 16, (0, 0)))
    with raises(GraphError, "needs-unit", unit="gather"):
        load_model(b.save(tmp_path), machine=Machine())
    cut = partition(read(b.save(tmp_path)), machine=Machine())
    assert [reason.code for reason in cut.host.values()] == ["needs-unit"]


@pytest.mark.parametrize("heads, parts, size, points",
                         [(1, 4, 16, (3, -7)), (3, 5, 20, (-128, 127)), (2, 2, 7, (0, 0))])
def test_parts_of_pixels(heads: int, parts: int, size: int, points: tuple[int, int], rng: Rng, seed: int,
                         tmp_path: Path) -> None:
    """Windows of tokens are parts of a tensor's pixels, each with keys and values of its own: of 7x7, cut and put
    together again by layers that move them.
    """
    b, width = Builder(rng), heads * size
    x = b.dequantize(b.input(1, 7, 7 * parts, width), 0.05, 3)
    x = b.requantize(b.node("MatMul", x, b.weights(width, width, axis=1)), 0.05, 3)
    y = b.node("Transpose", b.node("Reshape", x, b.constant(np.array([7, parts, 7, width]))), perm=[1, 0, 2, 3])
    y = b.node("Reshape", y, b.constant(np.array([parts, 49, width])))

    def projected(point: int, *axes: int) -> str:
        z = b.requantize(b.node("MatMul", y, b.weights(width, width, axis=1)), 0.05, point)
        return b.node("Transpose", b.node("Reshape", z, b.constant(np.array([parts, 49, heads, size]))), perm=axes)

    product = b.node("MatMul", projected(points[0], 0, 2, 1, 3), projected(points[1], 0, 2, 3, 1))
    product = b.requantize(product, 0.083)
    bias = b.constant(rng.normal(0, 3, (heads, 49, 49)).astype(np.float32))
    masked = b.requantize(b.node("Add", product, bias), 0.09)
    shares = b.requantize(b.node("Softmax", masked, axis=-1), 1 / 256, -128)
    mixed = b.requantize(b.node("MatMul", shares, projected(points[1], 0, 2, 1, 3)), 0.047, 1)
    mixed = b.node("Transpose", mixed, perm=[0, 2, 1, 3])
    mixed = b.node("Reshape", mixed, b.constant(np.array([parts, 7, 7, width])))
    mixed = b.node("Transpose", mixed, perm=[1, 0, 2, 3])
    mixed = b.node("Reshape", mixed, b.constant(np.array([1, 7, 7 * parts, width])))
    total = b.node("Transpose", b.requantize(b.node("Add", x, mixed), 0.1), perm=[0, 3, 1, 2])
    b.output(b.quantize(b.node("Conv", total, b.weights(5, width, 3, 3))))
    imported = load_model(b.save(tmp_path), machine=Machine.of(PRODUCTS))
    kinds = [layer.op for layer in imported.graph.layers]
    assert kinds.count("matmul") == 2 * heads and kinds.count("softmax") == 1 and kinds.count("move") == 2
    assert all(layer.parts == parts for layer in imported.graph.of(MatMul))
    assert compare_model(imported, b.samples()).largest <= 1
    run_and_compare(*compile_kept(imported.graph, PRODUCTS), seed, ("load", "store"))
    with raises(GraphError, "needs-unit", unit="turn"):
        load_model(b.save(tmp_path), machine=MACHINE)


def test_heads_that_are_no_channels(rng: Rng, tmp_path: Path) -> None:
    """Every second channel of a head, and a head of which one part is missing."""
    b = Builder(rng)
    x = b.dequantize(b.input(1, 16, 32), 0.05, 3)
    y = b.requantize(b.node("MatMul", x, b.weights(32, 32, axis=1)), 0.05, 0)
    y = b.node("Transpose", b.node("Reshape", y, b.constant(np.array([4, 4, 32]))), perm=[1, 2, 0])
    b.output(b.quantize(b.node("Reshape", b.node("MatMul", y, b.node("Transpose", y, perm=[0, 2, 1])),
                               b.constant(np.array([1, 128, 32])))), rank=3)
    with raises(GraphError, "rearranged"):
        load_model(b.save(tmp_path), machine=Machine.of(ROWS))


@pytest.mark.slow
@pytest.mark.parametrize("part", ["transformer", "mean_of_tokens"])
def test_attention_is_on_the_accelerator(part: str, rng: Rng, tmp_path: Path) -> None:
    """From a float model: both products of each block, of every head; the Softmax between them is the processor's."""
    model, products = PARTS[part](rng)
    onnx.save(model, tmp_path / "part.onnx")
    found = measure(tmp_path / "part.onnx", ("--macs", "64", "--features", "all", "--method", "minmax"))
    assert not found.refused and found.host_products == 0 and found.macs > products
    assert found.compared and not found.different


@pytest.mark.parametrize(("late", "scaled"), [(False, False), (True, False), (True, True)],
                         ids=["Q in front of the Transpose", "Q behind it", "scaled scores"])
def test_channels_in_front(late: bool, scaled: bool, rng: Rng, seed: int, tmp_path: Path) -> None:
    """Values times probabilities, as YOLO11 has them: the product is that of the transposes. A Transpose between a
    Softmax and its quantisation counts. Scores that are scaled and quantised again stay in their heads' blocks.
    """
    heads, size, pixels = 2, 32, 20
    b = Builder(rng)
    x = b.dequantize(b.input(1, 48, 4, 5), 0.05, 3)
    query, key, value = (
        b.node("Reshape", b.requantize(b.node("Conv", x, b.weights(heads * size, 48, 1, 1)), 0.05, 7 * number),
               b.constant(np.array([1, heads, size, pixels]))) for number in range(3))
    product = b.requantize(b.node("MatMul", b.node("Transpose", query, perm=[0, 1, 3, 2]), key), 0.02)
    if scaled:
        product = b.requantize(b.node("Mul", product, b.constant(np.float32(1 / sqrt(size)))), 0.005, 3)
    shares = b.node("Softmax", product, axis=-1)
    turned = b.node("Transpose", shares if late else b.requantize(shares, 1 / 256, -128), perm=[0, 1, 3, 2])
    turned = b.requantize(turned, 1 / 256, -128) if late else turned
    b.output(b.quantize(b.node("MatMul", value, turned), 0.01))
    imported = load_model(b.save(tmp_path), machine=Machine.of(ROWS))
    assert [layer.op for layer in imported.graph.layers].count("matmul") == 2 * heads
    assert max(row.largest for row in compare_model(imported, b.samples()).layers) <= 1
    run_and_compare(*compile_kept(imported.graph, ROWS), seed, ("load", "store"))
