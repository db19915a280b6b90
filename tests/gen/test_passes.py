"""A pass leaves a graph alone that it has nothing to do with, and never changes a result."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gen import passes
from gen.ir import reference
from gen.ir.epilogue.add import Add
from gen.ir.errors import GraphError
from gen.ir.graph import Graph
from gen.onnx.importer import Importer, load
from gen.onnx.read import read
from gen.passes import PASSES, fuse_residual, run_passes
from tests.gen.qdq import Builder
from tests.random_layers import random_graph

Rng = np.random.Generator


def unoptimised(path: Path, monkeypatch: pytest.MonkeyPatch) -> Graph:
    with monkeypatch.context() as patch:
        patch.setattr("gen.onnx.importer.run_passes", lambda graph: graph)
        return Importer(read(path)).run().graph


def network(rng: Rng) -> Builder:
    """Something for every pass to do."""
    b = Builder(rng)
    x = b.node("Conv", b.dequantize(b.input(1, 3, 8, 8)), b.weights(8, 3, 3, 3), pads=[1, 1, 1, 1])
    x = b.requantize(b.node("Relu", b.requantize(x, 0.05, 2)), 0.05, 2)
    # A layer of which only the shape is used.
    x = b.node("Reshape", x, b.node("Shape", b.quantize(b.node("Conv", x, b.weights(8, 8, 1, 1)))))
    y = b.requantize(b.node("Conv", x, b.weights(8, 8, 3, 3), pads=[1, 1, 1, 1]))
    y = b.requantize(b.node("Add", x, y), 0.08)
    y = b.node("AveragePool", y, kernel_shape=[8, 8], strides=[8, 8])
    b.output(b.quantize(y, 0.01, 0))
    return b


def test_results_stay_the_same(rng: Rng, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    b = network(rng)
    before = unoptimised(b.save(tmp_path), monkeypatch)
    inputs = b.samples()
    wanted, _ = reference.run(before, inputs)
    graph = before
    for apply in PASSES:
        changed = apply(graph)
        assert changed is not graph, f"{apply.__name__} found nothing to do"
        outputs, _ = reference.run(changed, inputs)
        assert all(np.array_equal(outputs[name], wanted[name]) for name in wanted)
        graph = changed
    assert len(before.layers) == 6 and [layer.op for layer in graph.layers] == ["conv", "conv", "pool"]
    assert set(graph.tensors) == {t for layer in graph.layers for t in (layer.input, layer.output)}


@pytest.mark.parametrize("apply", PASSES, ids=lambda p: p.__name__)
def test_nothing_to_do_is_the_same_graph(apply, rng: Rng, tmp_path: Path) -> None:
    graph = load(network(rng).save(tmp_path))
    assert apply(graph) is graph


def test_clip_of_a_residual_result(rng: Rng, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clip after an addition goes into the second stage."""
    b = Builder(rng)
    x = b.dequantize(b.input(1, 4, 5, 5))
    total = b.requantize(b.node("Add", x, x), 0.08, 1)
    b.output(b.quantize(b.node("Clip", total, b.constant(np.float32(-1)), b.constant(np.float32(2))), 0.08, 1))
    path, inputs = b.save(tmp_path), b.samples()
    (layer,) = load(path).layers
    (added,) = layer.epilogue
    assert isinstance(added, Add) and (added.low, added.high) == (-11, 26)
    ours, _ = reference.run(load(path), inputs)
    wanted, _ = reference.run(unoptimised(path, monkeypatch), inputs)
    assert all(np.array_equal(ours[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("change", [dict(multiplier=3), dict(bias=1), dict(low=-100), dict(high=100)])
def test_addition_behind_a_requantisation_stays(change: dict, rng: Rng, tmp_path: Path,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a plain copy can disappear when its addition is fused."""
    b = network(rng)
    graph = unoptimised(b.save(tmp_path), monkeypatch)
    (addition,) = (layer for layer in graph.layers if layer.others)
    first = addition.requantize
    for name, value in change.items():
        first = replace(first, **{name: value if name in ("low", "high") else getattr(first, name) + value})
    other = replace(addition, requantize=first)
    graph = replace(graph, layers=[other if layer is addition else layer for layer in graph.layers])
    assert fuse_residual(graph) is graph


def test_graphs_are_verified_behind_every_pass(rng: Rng, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(graph: Graph) -> Graph:
        return replace(graph, layers=graph.layers[1:])

    monkeypatch.setattr(passes, "PASSES", (breaks,))
    with pytest.raises(GraphError, match="read before it is written"):
        run_passes(load(network(rng).save(tmp_path)))


def test_random_graphs_survive(rng: Rng) -> None:
    for _ in range(200):
        graph = random_graph(int(rng.integers(1 << 31)), max_channels=9, max_size=6)
        inputs = {n: rng.integers(-128, 128, (1, *graph.tensors[t].shape)).astype(np.int8)
                  for n, (t, _) in graph.inputs.items()}
        before, _ = reference.run(graph, inputs)
        after, _ = reference.run(run_passes(graph), inputs)
        assert all(np.array_equal(after[n], before[n]) for n in before)
