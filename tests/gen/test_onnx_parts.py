"""Concat and Split without copies, against onnxruntime: blocks of DenseNet, Inception and ShuffleNet."""

from pathlib import Path

import numpy as np
import pytest

from cores.config import NpuConfig
from gen.compiler import compile_graph
from gen.ir.graph import Conv, Graph, Pool
from gen.onnx.importer import load
from gen.options import CompileOptions
from gen.run.inputs import Samples
from gen.run.runner import run_model
from gen.run.workload import open_workload
from tests.gen.qdq import Builder
from tests.gen.test_compiler import run_and_compare
from tests.gen.test_onnx_import import check

Rng = np.random.Generator

#: Blocks of 8 channels, and of 16.
EIGHT, SIXTEEN = NpuConfig.preset(16), NpuConfig.preset(64, gather=1, depthwise=1)
#: Of all tensors that have no reason for another.
SCALE = 0.05


def conv(b: Builder, x: str, channels: int, out: int, kernel: int = 1, scale: float = SCALE) -> str:
    y = b.node("Conv", x, b.weights(out, channels, kernel, kernel), b.bias(out), pads=[kernel // 2] * 4)
    return b.requantize(b.node("Relu", y), scale, 0)


def concat(b: Builder, *parts: str, scale: float = SCALE) -> str:
    return b.requantize(b.node("Concat", *parts, axis=1), scale, 0)


def dense_block(b: Builder, x: str, *, growth: int = 8) -> str:
    """Each layer reads all before it."""
    for number in range(3):
        y = conv(b, conv(b, x, 16 + number * growth, 12), 12, growth, 3)
        x = concat(b, x, y)
    return conv(b, x, 16 + 3 * growth, 6)


def inception_block(b: Builder, x: str) -> str:
    pooled = b.requantize(b.node("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4), SCALE, 0)
    branches = [conv(b, x, 16, 8), conv(b, conv(b, x, 16, 12), 12, 16, 3), conv(b, conv(b, x, 16, 4), 4, 8, 5),
                conv(b, pooled, 16, 8)]
    return conv(b, concat(b, *branches), 40, 6)


def cross_stage_block(b: Builder, x: str) -> str:
    """YOLO's: half of the channels go through layers, whose results are joined to themselves and to the whole."""
    _, half = split(b, x, 8, 8)
    y = conv(b, half, 8, 8, 3)
    z = conv(b, y, 8, 8, 3)
    return conv(b, concat(b, x, conv(b, concat(b, z, y), 16, 16)), 32, 6)


def split(b: Builder, x: str, *sizes: int) -> list[str]:
    """Split, quantised again as quantisers do it."""
    first, *others = (f"{x}_split{i}" for i in range(len(sizes)))
    y = b.node("Split", x, b.constant(np.array(sizes)), axis=1)
    b.nodes[-1].output[:] = [first, *others]
    assert y
    return [b.requantize(name, SCALE, 0) for name in (first, *others)]


def shuffle(b: Builder, x: str, groups: int, channels: int, size: int) -> str:
    """ShuffleNet's: channels of all groups in turn."""
    y = b.node("Reshape", x, b.constant([0, groups, channels // groups, size, size]))
    y = b.node("Transpose", y, perm=[0, 2, 1, 3, 4])
    return b.node("Reshape", y, b.constant([0, channels, size, size]))


def shuffle_block(b: Builder, x: str) -> str:
    kept, worked = split(b, x, 8, 8)
    return conv(b, shuffle(b, concat(b, kept, conv(b, worked, 8, 8, 3)), 2, 16, 6), 16, 6)


def made(block: object, rng: Rng, folder: Path, number: type = np.int8) -> Graph:
    b = Builder(rng, number=number)
    x = conv(b, b.dequantize(b.input(1, 3, 6, 6)), 3, 16, 3)
    b.output(b.quantize(b.node("Conv", block(b, x), b.weights(5, 6, 1, 1))))    # type: ignore[operator]
    graph, _ = check(b, folder)
    return graph


def layers(graph: Graph) -> tuple[int, int]:
    """Convolutions and copies."""
    copies = sum(isinstance(layer, Pool) and layer.kernel == (1, 1) for layer in graph.layers)
    return sum(isinstance(layer, Conv) for layer in graph.layers), copies


@pytest.mark.parametrize("number", [np.int8, np.uint8])
@pytest.mark.parametrize("block, convolutions, copies", [
    (dense_block, 9, 0), (inception_block, 9, 0), (cross_stage_block, 6, 0), (shuffle_block, 5, 1)])
def test_blocks(block: object, convolutions: int, copies: int, number: type, rng: Rng, tmp_path: Path) -> None:
    """No layer but the model's own, one that shuffles, and a copy of what is part of another tensor already."""
    graph = made(block, rng, tmp_path, number)
    assert layers(graph) == (convolutions, copies)
    program, _ = compile_graph(graph, EIGHT)
    # What shuffles goes into the weights of the layer after it.
    assert len(program.layers) == len(graph.layers) - (block is shuffle_block)


@pytest.mark.parametrize("block", [dense_block, cross_stage_block, shuffle_block])
def test_blocks_on_the_machine(block: object, rng: Rng, seed: int, tmp_path: Path) -> None:
    program, graph = compile_graph(made(block, rng, tmp_path), EIGHT)
    run_and_compare(program, graph, seed, ("load", "compute", "store", 1), reused=True)


def test_runs_compare_each_value_once(rng: Rng, tmp_path: Path) -> None:
    made(cross_stage_block, rng, tmp_path)
    workload = open_workload(tmp_path / "model.onnx", EIGHT, CompileOptions(keep_all=True))
    x = rng.integers(-128, 128, (1, 3, 6, 6)).astype(np.int8)
    result = run_model(workload, Samples({"x": x}, None), "functional")
    # Of a whole those of its parts.
    tensors = {layer.output for layer in workload.graph.layers} | {"x"}
    assert result.mismatches == 0
    assert result.compared == sum(np.prod(workload.graph.tensors[name].shape) for name in tensors)


@pytest.fixture(params=["moved apart", "put together"])
def apart(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether parts within a block are moved apart where they can be."""
    if request.param == "put together":
        monkeypatch.setattr("gen.compiler.space_parts", lambda graph, config, steps: graph)
    return request.param == "moved apart"


def test_parts_within_blocks(apart: bool, rng: Rng, seed: int, tmp_path: Path) -> None:
    """Of 6 channels after 16, 22 and 28."""
    graph = made(lambda b, x: dense_block(b, x, growth=6), rng, tmp_path)
    assert layers(graph) == (9, 0)
    program, moved = compile_graph(graph, EIGHT)
    # 16 is a multiple of 8, 22 and 28 are not: two layers for each of the two wholes that begin so.
    assert layers(moved) == ((9, 0) if apart else (13, 0))
    run_and_compare(program, moved, seed, ("load", 1), reused=True)


def test_other_scales_are_copied(rng: Rng, tmp_path: Path) -> None:
    """A part of another scale has a copy of its own, one that only is clipped is clipped where it is made."""
    def block(b: Builder, x: str) -> str:
        y, z = conv(b, x, 16, 8, scale=0.03), conv(b, x, 16, 8)
        joined = b.node("Clip", b.node("Concat", y, z, axis=1), b.constant(np.float32(-1)), b.constant(np.float32(3)))
        return conv(b, b.requantize(joined, SCALE, 0), 16, 6)

    graph = made(block, rng, tmp_path)
    assert layers(graph) == (5, 1)
    (copy,) = (layer for layer in graph.layers if isinstance(layer, Pool))
    assert copy.requantize.high == 60 and graph.tensors[copy.output].part


def test_what_is_not_quantised_is_made_in_its_place(rng: Rng, tmp_path: Path) -> None:
    """The layers in front of a Concat quantise to its scale, as the model has no other."""
    def block(b: Builder, x: str) -> str:
        parts = [b.node("Relu", b.node("Conv", x, b.weights(count, 16, 1, 1), b.bias(count))) for count in (8, 4, 8)]
        return conv(b, concat(b, *parts), 20, 6)

    assert layers(made(block, rng, tmp_path)) == (6, 0)


def test_ends_of_the_model(rng: Rng, seed: int, tmp_path: Path) -> None:
    """An input is copied, an output may be a part, a whole, or channels of one."""
    b = Builder(rng)
    x = b.dequantize(b.input(1, 8, 6, 6), SCALE, 0)
    y = conv(b, x, 8, 8)
    whole = b.quantize(b.node("Concat", x, y, axis=1), SCALE, 0)
    b.output(whole)
    b.output(b.quantize(y, SCALE, 0))
    b.output(b.node("Slice", whole, b.constant([5]), b.constant([11]), b.constant([1])))
    graph, _ = check(b, tmp_path)
    assert layers(graph) == (1, 1)
    assert {tensor for tensor, _ in graph.outputs.values()} == {whole, graph.layers[0].output}
    program, graph = compile_graph(load(tmp_path / "model.onnx"), EIGHT)
    run_and_compare(program, graph, seed, ("load",), reused=True)


def test_channels_of_an_input(apart: bool, rng: Rng, seed: int, tmp_path: Path) -> None:
    """Each of two layers takes some; what they take need not begin at a block, and nobody lays the input out alone."""
    b = Builder(rng)
    x = b.dequantize(b.input(1, 11, 6, 6), SCALE, 0)
    ends = [(0, 3, 3), (3, 11, 8)]
    parts = [conv(b, b.node("Slice", x, *(b.constant([n]) for n in (low, high, 1))), count, 4, 3)
             for low, high, count in ends]
    b.output(b.quantize(b.node("Conv", concat(b, *parts), b.weights(5, 8, 1, 1))))
    graph, _ = check(b, tmp_path)
    assert layers(graph) == (3, 0)
    for config in (EIGHT, SIXTEEN):
        program, aligned = compile_graph(graph, config)
        # Two put the whole together; what picks channels 3 to 10 goes into the weights that read them.
        assert layers(aligned) == ((3, 0) if apart else (5, 0))
        run_and_compare(program, aligned, seed, ("load", 1), reused=True)


@pytest.mark.parametrize("shape", [[1, 8, 6, 4], [1, 4, 6, 5, 2]], ids=str)
def test_a_part_of_an_input_that_is_an_image(shape: list[int], rng: Rng, tmp_path: Path) -> None:
    """A column that is read before the image, a frame of two: both are whole pixels, or whole channels."""
    b = Builder(rng)
    x = b.dequantize(b.input(*shape), SCALE, 0)
    part = b.node("Gather", x, b.constant(np.int64(1)), axis=len(shape) - 1)
    if len(shape) == 4:
        row = b.node("Reshape", part, b.constant([1, 48]))
        b.output(b.quantize(b.node("MatMul", row, b.weights(48, 10, axis=1)), 0.1, 0), rank=2)
    b.output(b.quantize(b.node("Conv", x if len(shape) == 4 else part, b.weights(8, shape[1], 3, 3)), 0.1, 0))
    check(b, tmp_path)
