"""Differences of two tensors, sums with a function or with one number for each pixel: against onnxruntime, and on the
functional simulator.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from cores.config import NpuConfig
from gen.check.compare import compare_model
from gen.ir import reference
from gen.ir.epilogue.table import Table
from gen.ir.errors import GraphError
from gen.ir.graph import Conv, Pool, is_broadcast
from gen.onnx.importer import load_model
from gen.onnx.machine import Machine
from tests.epilogues import operation
from tests.gen.qdq import Builder
from tests.gen.test_onnx_product import MACHINE, checked, simulate

Rng = np.random.Generator
Make = Callable[[Builder, str, str], str]
PLAIN = Machine.of(NpuConfig.preset(16))


def conv(b: Builder, x: str, channels: int = 8, out: int = 8) -> str:
    return b.node("Conv", x, b.weights(out, channels, 1, 1), b.bias(out))


def mean(b: Builder, x: str) -> str:
    """One number for each channel."""
    return b.requantize(b.node("GlobalAveragePool", x), 0.031)


def each_pixel(b: Builder, x: str) -> str:
    return b.requantize(b.node("Conv", x, b.weights(1, 8, 3, 3), pads=[1, 1, 1, 1]), 0.037)


#: What is made of two tensors, or of one of them and something that has to be computed first; with it the layers.
DIFFERENCES: dict[str, tuple[Make, int]] = {
    "two tensors": (lambda b, x, y: b.node("Sub", x, y), 1),
    "clipped": (lambda b, x, y: b.node("Relu", b.node("Sub", x, y)), 1),
    "a result less a tensor": (lambda b, x, y: b.node("Sub", conv(b, x), y), 2),
    "a tensor less a result": (lambda b, x, y: b.node("Sub", x, conv(b, y)), 1),
    "less a clipped result": (lambda b, x, y: b.node("Sub", x, b.node("Clip", conv(b, y), b.scale(-1), b.scale(2))), 1),
    "less a vector": (lambda b, x, y: b.node("Sub", x, mean(b, y)), 3),
    "of a vector": (lambda b, x, y: b.node("Sub", mean(b, x), y), 3),
    "less a number for each pixel": (lambda b, x, y: b.node("Sub", x, each_pixel(b, y)), 4),
    "of a number for each pixel": (lambda b, x, y: b.node("Sub", each_pixel(b, x), y), 4),
    "less a function": (lambda b, x, y: b.node("Sub", b.node("Tanh", x), y), 2),
}


def one(b: Builder, name: str = "x", scale: float = 0.0291) -> str:
    return b.dequantize(b.input(1, 8, 7, 6, name=name), scale)


def pair(b: Builder) -> tuple[str, str]:
    """Tensors whose scales have no power of two between them: ties are rounded up here, and to even there."""
    return one(b), one(b, "y", 0.0417)


@pytest.mark.parametrize("number", [np.int8, np.uint8])
@pytest.mark.parametrize("name", DIFFERENCES)
def test_differences(name: str, number: type, rng: Rng, seed: int, tmp_path: Path) -> None:
    make, layers = DIFFERENCES[name]
    b = Builder(rng, number=number)
    b.output(b.quantize(make(b, *pair(b)), 0.0532))
    imported = load_model(b.save(tmp_path), machine=MACHINE)
    assert compare_model(imported, b.samples()).largest <= 1
    assert len(imported.graph.layers) <= layers
    simulate(imported.graph, seed)


def test_every_difference(rng: Rng, tmp_path: Path) -> None:
    """All pairs of int8 values: of scales that are alike the difference is exact, -128 less 127 and back among them."""
    b = Builder(rng)
    x, y = (b.dequantize(b.input(1, 1, 256, 256, name=name), 0.05, point) for name, point in (("x", 90), ("y", -100)))
    b.output(b.quantize(b.node("Sub", x, y), 0.1, 3))
    values = np.arange(-128, 128, dtype=np.int8)
    feeds = {"x": np.tile(values, (256, 1))[None, None], "y": np.tile(values[:, None], (1, 256))[None, None]}
    (ours,) = reference.run(load_model(b.save(tmp_path)).graph, feeds)[0].values()
    exact = ((feeds["x"] - 90.0) - (feeds["y"] + 100.0)) / 2 + 3
    np.testing.assert_array_equal(ours, np.clip(np.floor(exact + 0.5), -128, 127))


def test_function_of_one_tensor_is_one_table(rng: Rng, tmp_path: Path) -> None:
    for number, op in enumerate(("Sub", "Add")):
        b = Builder(rng)
        x = one(b)
        b.output(b.quantize(b.node(op, x, b.node("Tanh", x))))
        (tmp_path / op).mkdir()
        (layer,) = checked(b, tmp_path / op).graph.layers
        assert operation(layer, Table) and not layer.others, number


SUMS: dict[str, tuple[Make, str]] = {
    "function and tensor": (lambda b, x, y: b.node("Add", b.node("Sigmoid", x), y), "table, sum"),
    "tensor and function": (lambda b, x, y: b.node("Add", y, b.node("Mul", x, b.node("Sigmoid", x))), "table, sum"),
    "result and function": (lambda b, x, y: b.node("Add", conv(b, y), b.node("Tanh", x)), "table, sum"),
    "two functions": (lambda b, x, y: b.node("Add", b.node("Tanh", x), b.node("Sigmoid", y)), "table, table, sum"),
    "clipped": (lambda b, x, y: b.node("Relu", b.node("Add", b.node("Tanh", x), y)), "table, sum"),
}


@pytest.mark.parametrize("number", [np.int8, np.uint8])
@pytest.mark.parametrize("name", SUMS)
def test_functions_in_front_of_a_sum(name: str, number: type, rng: Rng, seed: int, tmp_path: Path) -> None:
    """A function whose result the model does not quantise has a table of its own, as fine as the sum needs it."""
    make, layers = SUMS[name]
    b = Builder(rng, number=number)
    b.output(b.quantize(make(b, *pair(b)), 0.0253))
    path = b.save(tmp_path)
    graph = load_model(path, machine=MACHINE).graph
    assert ", ".join("sum" if layer.others else "table" for layer in graph.layers) == layers
    samples = b.samples(1)
    (theirs,) = ort.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"]).run(None, samples)
    (ours,) = reference.run(graph, samples)[0].values()
    assert np.abs(ours.astype(int) - theirs).max() <= 1 and len(np.unique(ours)) > 5
    simulate(graph, seed)


def test_functions_too_coarse_or_endless(rng: Rng, tmp_path: Path) -> None:
    for op, words in (("Exp", "8 bits beside this sum's are too coarse"), ("Log", "is not finite for every value")):
        b = Builder(rng)
        x, y = pair(b)
        wide = b.node("DequantizeLinear", "x", b.scale(0.09), b.point(0))
        b.output(b.quantize(b.node("Add", b.node(op, wide), y), 0.002))
        with pytest.raises(GraphError, match=rf"node \w+ \((Add|QuantizeLinear)\): .*{words}.*; put"):
            load_model(b.save(tmp_path), machine=MACHINE)


@pytest.mark.parametrize("op", ["Add", "Mul"])
@pytest.mark.parametrize("last", [False, True])
def test_one_number_for_each_pixel(op: str, last: bool, rng: Rng, seed: int, tmp_path: Path) -> None:
    """It is repeated for all channels by a convolution; a sum with it needs no optional unit."""
    b = Builder(rng)
    x = one(b)
    operands = (x, each_pixel(b, x))
    b.output(b.quantize(b.node(op, *(operands[::-1] if last else operands)), 0.0532))
    graph = checked(b, tmp_path).graph
    _, layer = graph.layers
    assert isinstance(layer, Conv) and layer.weights.shape == (8, 1, 1, 1)
    assert layer.others and not is_broadcast(graph, layer)
    simulate(graph, seed)
    if op == "Add":
        assert load_model(b.save(tmp_path), machine=PLAIN).graph.layers
        return
    with pytest.raises(GraphError, match="--features product"):
        load_model(b.save(tmp_path), machine=PLAIN)


@pytest.mark.parametrize(("op", "axes", "keep"), [("ReduceMean", [1], 1), ("ReduceMean", [-3], 0),
                                                   ("ReduceMax", [2, 3], 1), ("ReduceMax", [-1, -2], 0)])
@pytest.mark.parametrize("opset", [13, 18])
def test_reductions(op: str, axes: list[int], keep: int, opset: int, rng: Rng, seed: int, tmp_path: Path) -> None:
    b = Builder(rng, opset=opset)
    x = one(b)
    if opset == 18:
        made = b.node(op, x, b.constant(np.array(axes)), keepdims=keep)
    else:
        made = b.node(op, x, axes=axes, keepdims=keep)
    b.output(b.quantize(made, 0.0191), rank=4 if keep else 4 - len(axes))
    (layer,) = checked(b, tmp_path).graph.layers
    assert isinstance(layer, Conv if op == "ReduceMean" else Pool)
    simulate(load_model(tmp_path / "model.onnx", machine=MACHINE).graph, seed)


@pytest.mark.parametrize("number", [np.int8, np.uint8])
@pytest.mark.parametrize(("channels", "keep"), [(8, 1), (21, 0), (33, 1), (2, 1)])
def test_largest_channel(channels: int, keep: int, number: type, rng: Rng, seed: int, tmp_path: Path) -> None:
    """Exact, whatever the halves: of an odd number of channels they overlap."""
    b = Builder(rng, number=number)
    q = b.scale(0.03), b.point(None)
    made = b.node("ReduceMax", b.node("DequantizeLinear", b.input(1, channels, 5, 6), *q), axes=[1], keepdims=keep)
    b.output(b.node("QuantizeLinear", made, *q), rank=3 + keep)
    path, samples = b.save(tmp_path), b.samples(1)
    graph = load_model(path, machine=PLAIN).graph
    (theirs,) = ort.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"]).run(None, samples)
    (ours,) = reference.run(graph, samples)[0].values()
    np.testing.assert_array_equal(ours, theirs)
    assert len(graph.layers) == int(np.ceil(np.log2(channels)))
    (output,) = compare_model(load_model(path, machine=PLAIN), samples).outputs
    assert output.distribution == {0: theirs.size}
    simulate(graph, seed)


@pytest.mark.parametrize("op", ["ReduceMean", "ReduceMax"])
@pytest.mark.parametrize("shape", [(4, 4, 4), (8, 8), (4, 1, 16)])
def test_reductions_of_parts_of_a_channel(op: str, shape: tuple[int, ...], rng: Rng, tmp_path: Path) -> None:
    """An axis of what was the pixels of one channel is one of channels: several of its rows lie in that channel."""
    b = Builder(rng)
    q = b.scale(0.05), b.point(3)
    x = b.node("QuantizeLinear", b.node("Relu", b.node("DequantizeLinear", b.input(1, 1, 8, 8), *q)), *q)
    x = b.node("Reshape", b.node("DequantizeLinear", x, *q), b.constant([1, *shape]))
    b.output(b.node("QuantizeLinear", b.node(op, x, axes=[1], keepdims=1), *q), rank=1 + len(shape))
    found = compare_model(load_model(b.save(tmp_path), machine=PLAIN), b.samples())
    assert max((row.largest for row in found.layers), default=0) <= 1
    assert set(found.outputs[0].distribution) <= {-1, 0, 1}
