"""Products of two tensors, and of a tensor and a vector: against onnxruntime, and on the functional simulator."""

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from cores.config import NpuConfig
from gen.check.compare import compare_model
from gen.ir import reference
from gen.ir.epilogue.multiply import Multiply
from gen.ir.epilogue.table import Table
from gen.ir.errors import CompileError, GraphError
from gen.ir.graph import Conv, Graph, Pool, is_broadcast
from gen.onnx.importer import Imported, load_model
from gen.onnx.machine import Machine
from gen.onnx.read import read
from gen.partition.partition import partition
from tests.compiled import compile_kept
from tests.epilogues import operation
from tests.errors import raises
from tests.gen.qdq import Builder
from tests.gen.test_compiler import run_and_compare

Rng = np.random.Generator
CONFIG = NpuConfig.preset(16, product=1, table=1)
MACHINE = Machine.of(CONFIG)


def simulate(graph: Graph, seed: int) -> None:
    """Run the program of a graph in strict mode."""
    run_and_compare(*compile_kept(graph, CONFIG), seed, ("load", "store"))


def checked(b: Builder, folder: Path) -> Imported:
    """A model whose layers differ from onnxruntime's by a unit at most, and seldom."""
    imported = load_model(b.save(folder), machine=MACHINE)
    comparison = compare_model(imported, b.samples())
    assert comparison.largest <= 1
    assert sum(row.differing for row in comparison.layers) <= 0.01 * sum(row.values for row in comparison.layers)
    return imported


def excited(b: Builder, x: str, channels: int, gate: str = "HardSigmoid") -> str:
    """A squeeze-and-excite block: what the channels are times is computed of their means."""
    mean = b.requantize(b.node("GlobalAveragePool", x))
    inner = b.requantize(b.node("Relu", b.node("Conv", mean, b.weights(4, channels, 1, 1))))
    outer = b.requantize(b.node("Conv", inner, b.weights(channels, 4, 1, 1)))
    low = -128 if b.number is np.int8 else 0
    # No power of two between the scales: ties are rounded up here, and to even there.
    return b.requantize(b.node("Mul", x, b.requantize(b.node(gate, outer), 1 / 256, low)), 0.043)


@pytest.mark.parametrize("number", [np.int8, np.uint8])
def test_squeeze_and_excite(number: type, rng: Rng, seed: int, tmp_path: Path) -> None:
    """Wholly on the accelerator: the last layer of the block is a copy that multiplies."""
    b = Builder(rng, number=number)
    x = b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, 9, 7)), b.weights(20, 3, 3, 3)))
    b.output(b.quantize(b.node("Conv", excited(b, x, 20), b.weights(5, 20, 1, 1))))
    graph = checked(b, tmp_path).graph
    (layer,) = (layer for layer in graph.layers if layer.others)
    assert isinstance(layer, Pool) and operation(layer, Multiply) and is_broadcast(graph, layer)
    simulate(graph, seed)
    assert partition(read(tmp_path / "model.onnx"), machine=MACHINE).subgraphs == 1
    apart = partition(read(tmp_path / "model.onnx"), machine=Machine.having("table"))
    assert apart.subgraphs > 1 and any(reason.code == "needs-unit" for reason in apart.host.values())


@pytest.mark.parametrize("number", [np.int8, np.uint8])
@pytest.mark.parametrize("point", [None, 127])
def test_of_two_tensors(number: type, point: int | None, rng: Rng, seed: int, tmp_path: Path) -> None:
    """In the layer that makes one of them, with a clip; all zero points."""
    b = Builder(rng, number=number)
    x = b.dequantize(b.input(1, 6, 8, 9))
    y, z = (b.requantize(b.node("Conv", x, b.weights(20, 6, k, k), pads=[k // 2] * 4), zero_point=point)
            for k in (1, 3))
    b.output(b.quantize(b.node("Relu", b.node("Mul", y, z)), 0.08))
    graph = checked(b, tmp_path).graph
    first, second = graph.layers
    assert isinstance(second, Conv) and second.weights.shape[2] == 3, "in that with more work"
    assert operation(second, Multiply) and not is_broadcast(graph, second)
    simulate(graph, seed)


def test_added_vector(rng: Rng, seed: int, tmp_path: Path) -> None:
    b = Builder(rng)
    x = b.dequantize(b.input(1, 20, 6, 7))
    mean = b.requantize(b.node("GlobalAveragePool", x), 0.02)
    b.output(b.quantize(b.node("Add", mean, x)))
    graph = checked(b, tmp_path).graph
    assert is_broadcast(graph, graph.layers[-1])
    simulate(graph, seed)


def test_rearranged_vector(rng: Rng, seed: int, tmp_path: Path) -> None:
    """A Gemm's result, reshaped to (1, C, 1, 1), or channels last."""
    b = Builder(rng)
    x = b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, 5, 6)), b.weights(12, 3, 1, 1)))
    vector = b.node("Flatten", b.requantize(b.node("GlobalAveragePool", x)))
    gate = b.requantize(b.node("Gemm", vector, b.weights(12, 12, axis=1)), 0.0213)
    b.output(b.quantize(b.node("Mul", b.node("Reshape", gate, b.constant([1, 12, 1, 1])), x)))
    last = b.node("Transpose", x, perm=[0, 2, 3, 1])
    b.output(b.quantize(b.node("Mul", last, b.node("Reshape", gate, b.constant([1, 1, 1, 12])))))
    graph = checked(b, tmp_path).graph
    assert sum(is_broadcast(graph, layer) for layer in graph.layers) == 2
    simulate(graph, seed)


def test_every_product(tmp_path: Path, rng: Rng) -> None:
    """All pairs of int8 values: off by one only where the exact result lies half way, or nearly."""
    b = Builder(rng)
    x, y = (b.dequantize(b.input(1, 1, 256, 256, name=name), scale, point)
            for name, scale, point in (("x", 0.05, 17), ("y", 1 / 256, -128)))
    b.output(b.quantize(b.node("Mul", x, y), 0.037, -5))
    path = b.save(tmp_path)
    values = np.arange(-128, 128, dtype=np.int8)
    feeds = {"x": np.tile(values, (256, 1))[None, None], "y": np.tile(values[:, None], (1, 256))[None, None]}
    (ours,) = reference.run(load_model(path, machine=MACHINE).graph, feeds)[0].values()
    exact = (feeds["x"] - 17.0) * (feeds["y"] + 128.0) * (0.05 / 256 / 0.037) - 5
    error = np.abs(ours - np.clip(exact, -128, 127))
    assert error.max() < 0.5 + 1 / 64
    (theirs,) = ort.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"]).run(None, feeds)
    assert np.abs(ours - theirs.astype(int)).max() <= 1 and (ours != theirs).mean() < 0.01


def test_tables_come_first(rng: Rng, tmp_path: Path) -> None:
    """x * Sigmoid(x) is a function of x, quantised in between or not."""
    b = Builder(rng)
    x = b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, 8, 8)), b.weights(8, 3, 3, 3)))
    b.output(b.quantize(b.node("Mul", x, b.requantize(b.node("Sigmoid", x), 1 / 256, -128))))
    (layer,) = checked(b, tmp_path).graph.layers
    assert operation(layer, Table) and not layer.others


def test_refused(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    x, y = (b.dequantize(b.input(1, 4, 6, 6, name=name)) for name in "xy")
    b.output(b.quantize(b.node("Mul", x, y)))
    path = b.save(tmp_path)
    with pytest.raises(GraphError, match=r"\(Mul\): has two activations .*; --features product multiplies them"):
        load_model(path)
    with pytest.raises(CompileError, match="multiplies two tensors.*; --features product has it do so"):
        compile_kept(load_model(path, machine=MACHINE).graph, NpuConfig.preset(16))
    b = Builder(rng)
    x = b.dequantize(b.input(1, 4, 6, 6))
    rows = b.requantize(b.node("MaxPool", x, kernel_shape=[1, 6]))
    b.output(b.quantize(b.node("Mul", x, rows)))
    with raises(GraphError, "operand-shapes", operator="Mul"):
        load_model(b.save(tmp_path), machine=MACHINE)
