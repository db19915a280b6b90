"""Pixels that lie apart, put together by a layer: phases of transposed convolutions, steps, maps in a row."""

from pathlib import Path

import numpy as np
import pytest

from gen.ir.graph import Move
from tests.gen.float_models import FloatBuilder
from tests.gen.test_never_refused import compiled, host

Rng = np.random.Generator


def transposed(b: FloatBuilder, source: str, channels: int, outputs: int, *, size: int = 2,
               **attributes: object) -> str:
    return b.node("ConvTranspose", source, b.weights(channels, outputs, size, size),
                  b.constant(b.rng.normal(size=outputs) / 4), strides=[2, 2], **attributes)


def moves(b: FloatBuilder, result: str, folder: Path, left: int = 0) -> list[Move]:
    """Those of the compiled model, which leaves so many nodes to the processor."""
    found = compiled(b.model(result), folder)
    assert len(host(found)) == left, host(found)
    return [layer for workload in found.workloads for layer in workload.graph.layers if isinstance(layer, Move)]


@pytest.mark.parametrize("channels", [16, 24, 5])
def test_two_transposed_convolutions(channels: int, rng: Rng, tmp_path: Path) -> None:
    """As at the end of a text detector: the first one's phases become pixels, by one layer and no copies of channels
    but where phases begin within a block.
    """
    b = FloatBuilder(rng, ["n", 8, 6, 7])
    y = b.node("Relu", transposed(b, b.node("Relu", b.same_conv("x", 8, 8)), 8, channels))
    made = moves(b, b.node("Sigmoid", transposed(b, y, channels, 1)), tmp_path, left=1)     # the Sigmoid of an output
    assert [len(layer.operands) for layer in made] == [4]


@pytest.mark.parametrize("op", ["Concat", "Add"])
def test_a_step_of_a_decoder(op: str, rng: Rng, tmp_path: Path) -> None:
    """A transposed convolution beside what it was made of: along the channels, or added."""
    b = FloatBuilder(rng, ["n", 8, 8, 10])
    wide = b.node("Relu", b.same_conv("x", 8, 24))
    narrow = b.node("Relu", b.conv(wide, 24, 16, strides=[2, 2], pads=[1] * 4))
    y = b.node(op, transposed(b, narrow, 16, 24), wide, **({"axis": 1} if op == "Concat" else {}))
    assert len(moves(b, b.same_conv(b.node("Relu", y), 48 if op == "Concat" else 24, 6), tmp_path)) == 1


def test_a_result_that_is_cut(rng: Rng, tmp_path: Path) -> None:
    """Of an odd number of rows and columns, not all pixels of the phases are left."""
    b = FloatBuilder(rng, ["n", 8, 6, 5])
    y = transposed(b, b.node("Relu", b.same_conv("x", 8, 8)), 8, 16, size=3, pads=[1] * 4)
    assert len(moves(b, b.same_conv(b.node("Relu", y), 16, 4), tmp_path)) == 1


@pytest.mark.parametrize("mode", ["CRD", "DCR"])
def test_depth_to_space(mode: str, rng: Rng, tmp_path: Path) -> None:
    b = FloatBuilder(rng, ["n", 8, 6, 5])
    y = b.node("DepthToSpace", b.node("Relu", b.same_conv("x", 8, 32)), blocksize=2, mode=mode)
    assert len(moves(b, b.same_conv(y, 8, 4), tmp_path)) == 1


@pytest.mark.parametrize("channels", [8, 40])
def test_space_to_depth(channels: int, rng: Rng, tmp_path: Path) -> None:
    """By a Reshape and a Transpose, as PyTorch's PixelUnshuffle is exported: a layer for each phase, and the channels
    of all in order, though each channel's phases are beside each other.
    """
    b = FloatBuilder(rng, [1, 3, 6, 8])
    split, whole = (b.constant(np.array(shape)) for shape in ((1, channels, 3, 2, 4, 2), (1, 4 * channels, 3, 4)))
    y = b.node("Reshape", b.node("Relu", b.same_conv("x", 3, channels)), split)
    y = b.node("Reshape", b.node("Transpose", y, perm=[0, 1, 3, 5, 2, 4]), whole)
    assert len(moves(b, b.same_conv(y, 4 * channels, 4), tmp_path)) == 4


@pytest.mark.parametrize("axis", [2, 3])
def test_maps_one_after_the_other(axis: int, rng: Rng, tmp_path: Path) -> None:
    """Of different sizes, along rows or columns."""
    b = FloatBuilder(rng, ["n", 8, 6, 8])
    first = b.node("Relu", b.same_conv("x", 8, 12))
    strides = [2, 1] if axis == 2 else [1, 2]
    y = b.node("Concat", first, b.node("Relu", b.conv(first, 12, 12, strides=strides, pads=[1] * 4)), axis=axis)
    (move,) = moves(b, b.same_conv(y, 12, 4), tmp_path)
    assert len(move.operands) == 2


def test_tokens_one_after_the_other(rng: Rng, tmp_path: Path) -> None:
    """What is made of all of them in front of them."""
    b = FloatBuilder(rng, ["n", 9, 16])
    y = b.node("Relu", b.node("MatMul", "x", b.weights(16, 24)))
    mean = b.node("Relu", b.node("MatMul", b.node("ReduceMean", y, axes=[1], keepdims=1), b.weights(24, 24)))
    assert len(moves(b, b.node("MatMul", b.node("Concat", mean, y, axis=1), b.weights(24, 8)), tmp_path)) == 1


def test_steps_of_a_recurrent_layer(rng: Rng, tmp_path: Path) -> None:
    """A matrix product of all of them: vectors that become pixels."""
    b = FloatBuilder(rng, ["n", 4, 12])
    y = b.node("Transpose", "x", perm=[1, 0, 2])
    y = b.node("RNN", y, b.weights(1, 16, 12), b.weights(1, 16, 16), hidden_size=16)
    y = b.node("Transpose", b.node("Squeeze", y, b.constant(np.array([1]))), perm=[1, 0, 2])
    (move,) = moves(b, b.node("Relu", b.node("MatMul", y, b.weights(16, 24))), tmp_path)
    assert len(move.operands) == 4


@pytest.mark.parametrize("mode", ["reflect", "edge"])
def test_padding_with_the_image(mode: str, rng: Rng, tmp_path: Path) -> None:
    """Of an input, and between layers."""
    b = FloatBuilder(rng, ["n", 8, 7, 9])

    def padded(source: str, count: int) -> str:
        return b.node("Pad", source, b.constant(np.array([0, 0, count, count] * 2)), mode=mode)

    y = b.node("Relu", b.conv(padded("x", 2), 8, 12, kernel=5))
    assert len(moves(b, b.conv(padded(y, 1), 12, 4), tmp_path)) == 2


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool"])
def test_all_pixels_of_phases(op: str, rng: Rng, tmp_path: Path) -> None:
    """As a gate after a transposed convolution takes them, or a normalisation."""
    b = FloatBuilder(rng, ["n", 8, 6, 7])
    y = b.node("Relu", transposed(b, b.node("Relu", b.same_conv("x", 8, 8)), 8, 16))
    y = b.node("Concat", b.same_conv(b.node(op, y), 16, 8, kernel=1), b.node(op, b.same_conv(y, 16, 8)), axis=1)
    assert len(moves(b, b.same_conv(y, 16, 4, kernel=1), tmp_path)) == 1
