"""Tokens: pixels of feature maps in rows of another length, and inputs whose channels are last."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import gen.partition.partition as cutting
from cores.config import NpuConfig
from gen.check.compare import compare_model
from gen.ir.errors import GraphError
from gen.ir.verify import verify
from gen.onnx.importer import Imported, load_model
from gen.onnx.machine import Machine
from gen.run.application import open_application
from tests.compiled import compile_kept
from tests.errors import raises
from tests.gen.qdq import Builder
from tests.gen.test_compiler import run_and_compare

Rng = np.random.Generator
CONFIG = NpuConfig.preset(64, rows=64)
HEIGHT, WIDTH, CHANNELS = 3, 5, 20
TOKENS = HEIGHT * WIDTH


def checked(b: Builder, folder: Path, seed: int) -> Imported:
    imported = load_model(b.save(folder), machine=Machine.of(CONFIG))
    assert max(row.largest for row in compare_model(imported, b.samples()).layers) <= 1
    run_and_compare(*compile_kept(imported.graph, CONFIG), seed, ("load", "store"))
    return imported


@pytest.mark.parametrize("first", [0, 5], ids=["all channels", "some of them"])
def test_tokens_as_a_map(first: int, rng: Rng, seed: int, tmp_path: Path) -> None:
    """A convolution reads them in rows, without a copy; of channels that begin within a block there is one."""
    b = Builder(rng)
    y = b.requantize(b.node("MatMul", b.dequantize(b.input(1, TOKENS, 12)), b.weights(12, CHANNELS, axis=1)))
    y = b.node("Transpose", b.node("Reshape", y, b.constant([1, HEIGHT, WIDTH, CHANNELS])), perm=[0, 3, 1, 2])
    if first:
        y = b.node("Slice", y, *(b.constant([n]) for n in (first, CHANNELS, 1)))
    b.output(b.quantize(b.node("Conv", y, b.weights(8, CHANNELS - first, 3, 3))))
    imported = checked(b, tmp_path, seed)
    assert [layer.op for layer in imported.graph.layers] == ["conv", "conv"]
    view = imported.graph.tensors[imported.graph.layers[1].input]
    assert view.shape == (CHANNELS - first, HEIGHT, WIDTH) and view.part is not None


def test_a_view_of_a_view_is_refused(rng: Rng, tmp_path: Path) -> None:
    """Nothing may be part of itself by way of others."""
    b = Builder(rng)
    y = b.requantize(b.node("MatMul", b.dequantize(b.input(1, TOKENS, 12)), b.weights(12, CHANNELS, axis=1)))
    y = b.node("Transpose", b.node("Reshape", y, b.constant([1, HEIGHT, WIDTH, CHANNELS])), perm=[0, 3, 1, 2])
    b.output(b.quantize(b.node("Conv", y, b.weights(8, CHANNELS, 3, 3))))
    graph = load_model(b.save(tmp_path)).graph
    view = graph.tensors[graph.layers[1].input]
    assert view.part is not None
    whole = graph.tensors[view.part.whole]
    graph.tensors[whole.name] = type(whole)(**{**vars(whole), "part": type(view.part)(view.name, 0)})
    with raises(GraphError, "graph-rule"):
        verify(graph)


def test_a_sum_of_inputs_in_front(rng: Rng, seed: int, tmp_path: Path) -> None:
    """As a cut at a residual leaves it: the normalisation after the sum says which axis is that of the channels."""
    b = Builder(rng, opset=17)
    x, y = (b.dequantize(b.input(1, TOKENS, CHANNELS, name=name)) for name in ("x", "y"))
    total = b.requantize(b.node("Add", x, y), 0.07)
    total = b.node("Reshape", total, b.constant([1, HEIGHT, WIDTH, CHANNELS]))
    numbers = [b.constant(rng.uniform(0.5, 2, CHANNELS).astype(np.float32)) for _ in range(2)]
    b.output(b.quantize(b.node("LayerNormalization", total, *numbers, axis=-1), 0.03))
    assert [layer.op for layer in checked(b, tmp_path, seed).graph.layers] == ["pool", "normalise"]


def test_what_is_refused_in_a_segment_alone(rng: Rng, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is cut again, and the reason is the importer's."""
    b = Builder(rng)
    y = b.requantize(b.node("Conv", b.dequantize(b.input(1, 4, 6, 6)), b.weights(4, 4, 1, 1)))
    y = b.requantize(b.node("Softsign", y))
    b.output(b.quantize(b.node("Conv", y, b.weights(4, 4, 1, 1))))
    real = cutting.import_model

    def refusing(model: object, machine: object) -> Imported:
        nodes = [node.name for node in model.nodes if node.op == "Conv"]    # type: ignore[attr-defined]
        if nodes == ["conv9"]:
            raise GraphError("m.onnx: node conv9 (Conv): lies askew", code="rearranged", node="conv9")
        return real(model, machine)     # type: ignore[arg-type]

    monkeypatch.setattr(cutting, "import_model", refusing)
    found = open_application(b.save(tmp_path), NpuConfig.preset(16)).partition
    assert found is not None
    assert found.host["conv9"] == "lies askew" and "conv2" not in found.host


@pytest.mark.parametrize("unit", [{"turn": 1}, {"gather": 1}], ids=["turn", "gather"])
def test_transposes_between_layers(unit: dict[str, int], rng: Rng, seed: int, tmp_path: Path) -> None:
    """A matrix for the tokens, a sum and a normalisation after a Transpose, as of MLP-Mixer: exact copies."""
    b, config = Builder(rng, opset=17), NpuConfig.preset(64, rows=64, **unit)
    x = b.dequantize(b.input(1, TOKENS, CHANNELS), 0.05, 3)
    x = b.requantize(b.node("MatMul", x, b.weights(CHANNELS, CHANNELS, axis=1)), 0.04, -7)
    y = b.requantize(b.node("MatMul", b.node("Transpose", x, perm=[0, 2, 1]), b.weights(TOKENS, TOKENS, axis=1)), 0.04)
    total = b.requantize(b.node("Add", x, b.node("Transpose", y, perm=[0, 2, 1])), 0.07)
    numbers = [b.constant(rng.uniform(0.5, 2, TOKENS).astype(np.float32)) for _ in range(2)]
    b.output(b.quantize(b.node("LayerNormalization", b.node("Transpose", total, perm=[0, 2, 1]), *numbers), 0.03),
             rank=3)
    imported = load_model(b.save(tmp_path), machine=Machine.of(config))
    assert [layer.op for layer in imported.graph.layers].count("matmul") == 3
    assert max(row.largest for row in compare_model(imported, b.samples()).layers) <= 1
    run_and_compare(*compile_kept(imported.graph, config), seed, ("load", "store"))


def test_patches(rng: Rng, seed: int, tmp_path: Path) -> None:
    """Pixels of patches side by side, as MobileViT unfolds them, and back: one copy each, which readers share."""
    b, config = Builder(rng), NpuConfig.preset(64)
    size, patches = 4, (2, 2)
    x = b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, size, size)), b.weights(CHANNELS, 3, 1, 1)), 0.04, -7)
    folded = b.node("Reshape", x, b.constant([1, CHANNELS, 2, patches[0], 2, patches[1]]))
    folded = b.node("Transpose", folded, perm=[0, 1, 3, 5, 2, 4])
    folded = b.node("Reshape", folded, b.constant([1, CHANNELS, 4, 4]))
    y = b.requantize(b.node("Conv", folded, b.weights(CHANNELS, CHANNELS, 1, 3), pads=[0, 1, 0, 1]), 0.05)
    y = b.requantize(b.node("Add", folded, y), 0.07)
    y = b.node("Reshape", y, b.constant([1, CHANNELS, patches[0], patches[1], 2, 2]))
    y = b.node("Reshape", b.node("Transpose", y, perm=[0, 1, 4, 2, 5, 3]), b.constant([1, CHANNELS, size, size]))
    b.output(b.quantize(b.node("Conv", y, b.weights(4, CHANNELS, 3, 3))))
    imported = load_model(b.save(tmp_path), machine=Machine.of(config))
    assert [layer.op for layer in imported.graph.layers].count("move") == 2
    assert max(row.largest for row in compare_model(imported, b.samples()).layers) <= 1
    run_and_compare(*compile_kept(imported.graph, config), seed, ("load", "store"))


#: What is made of a map (1, 12, 4, 6), and the layers that move its pixels for that.
MOVED: list[tuple[Callable[[Builder, str], str], int]] = [
    (lambda b, x: b.node("Concat", x, x, axis=1), 2),
    (lambda b, x: b.node("Transpose", x, perm=[0, 1, 3, 2]), 1),
    (lambda b, x: b.node("Gather", x, b.constant([0, 5, 1]), axis=3), 1),
    (lambda b, x: b.node("Gather", x, b.constant([2, 2, 0, 3, 1]), axis=2), 1),
    (lambda b, x: b.node("SpaceToDepth", x, blocksize=2), 4),
]


@pytest.mark.parametrize(("change", "layers"), MOVED)
def test_moved_pixels(change: Callable[[Builder, str], str], layers: int, rng: Rng, seed: int, tmp_path: Path) -> None:
    """In front of a layer, of a map in front of which there is one."""
    b, config = Builder(rng), NpuConfig.preset(64)
    x = b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, 4, 6)), b.weights(12, 3, 1, 1)), 0.04, -7)
    y = change(b, x)
    channels = {2: 24, 4: 48}.get(layers, 12)
    b.output(b.quantize(b.node("Conv", y, b.weights(5, channels, 2, 2))))
    imported = load_model(b.save(tmp_path), machine=Machine.of(config))
    assert [layer.op for layer in imported.graph.layers].count("move") == layers
    assert max(row.largest for row in compare_model(imported, b.samples()).layers) <= 1
    run_and_compare(*compile_kept(imported.graph, config), seed, ("load", "store"))


@pytest.mark.parametrize("channels", [16, 20])
@pytest.mark.parametrize("shifted", [False, True])
def test_merged_patches(channels: int, shifted: bool, rng: Rng, seed: int, tmp_path: Path) -> None:
    """Every second row and column become channels, side by side, as Swin merges patches; the map, whose channels are
    last, is padded first, or shifted in a circle.
    """
    b, config = Builder(rng, opset=17), NpuConfig.preset(64, rows=64)
    x = b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, 5, 7)), b.weights(channels, 3, 1, 1)), 0.04, -7)
    x = b.node("Transpose", x, perm=[0, 2, 3, 1])

    def cut(y: str, start: int, end: int, axis: int, step: int = 1) -> str:
        return b.node("Slice", y, *(b.constant(np.array([n])) for n in (start, end, axis, step)))

    if shifted:
        x = cut(b.node("Concat", cut(x, 3, 7, 2), cut(x, 0, 3, 2), axis=2), 0, 4, 1)
    pads = np.array([0, 0, 0, 0, 0, 0 if shifted else 1, 1, 0])
    x = b.node("Pad", x, b.constant(pads))
    rows = [cut(x, first, 6, 1, 2) for first in (0, 1)]
    parts = [cut(row, first, 8, 2, 2) for first in (0, 1) for row in rows]
    y = b.node("LayerNormalization", b.node("Concat", *parts, axis=-1),
               b.constant(rng.uniform(0.5, 2, 4 * channels).astype(np.float32)))
    b.output(b.quantize(b.node("MatMul", b.requantize(y), b.weights(4 * channels, 8, axis=1))))
    imported = load_model(b.save(tmp_path), machine=Machine.of(config))
    assert [layer.op for layer in imported.graph.layers].count("move") >= 4
    assert max(row.largest for row in compare_model(imported, b.samples()).layers) <= 1
    run_and_compare(*compile_kept(imported.graph, config), seed, ("load", "store"))


def test_more_columns_than_a_store_repeats(rng: Rng, seed: int, tmp_path: Path) -> None:
    b, config = Builder(rng), NpuConfig.preset(64, product=1)
    x = b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, 2, 96)), b.weights(8, 3, 1, 1)))
    sums = b.requantize(b.node("ReduceSum", x, b.constant([-1]), keepdims=1), 0.3)
    sums = b.node("Expand", sums, b.constant([1, 8, 2, 96]))
    b.output(b.quantize(b.node("Mul", x, sums), 0.1))
    imported = load_model(b.save(tmp_path), machine=Machine.of(config))
    assert max(row.largest for row in compare_model(imported, b.samples()).layers) <= 1
    run_and_compare(*compile_kept(imported.graph, config), seed, ("load", "store"))


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 4, 4, 4)], ids=str)
def test_as_many_tokens_as_channels(shape: tuple[int, ...], rng: Rng, seed: int, tmp_path: Path) -> None:
    """Their shape is the same with the channels first."""
    b = Builder(rng)
    y = b.node("MatMul", b.dequantize(b.input(*shape)), b.weights(shape[-1], 6, axis=1))
    b.output(b.quantize(y), rank=len(shape))
    checked(b, tmp_path, seed)
