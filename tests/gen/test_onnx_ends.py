"""What the processor does at inputs and outputs: any arrangement, parts of a tensor, and the other 8-bit type."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gen.check.compare import compare
from gen.ir import reference
from gen.ir.errors import GraphError
from gen.ir.graph import Graph
from gen.onnx.importer import load
from tests.errors import raises
from tests.gen.qdq import Builder

Rng = np.random.Generator


def check(b: Builder, folder: Path) -> Graph:
    """Import, and compare layers and outputs with onnxruntime: every host step exact."""
    path, samples = b.save(folder), b.samples()
    comparison = compare(path, samples)
    assert comparison.layers and comparison.largest <= 1
    assert [output.host_differing for output in comparison.outputs] == [0] * len(b.outputs)
    return load(path)


def _shuffle(b: Builder, y: str) -> str:
    """PixelShuffle as exporters write it for a float model."""
    y = b.node("Transpose", b.node("Reshape", y, b.constant([-1, 2, 2, 2, 4, 6])), perm=[0, 1, 4, 2, 5, 3])
    return b.node("Reshape", y, b.constant([-1, 2, 8, 12]))


def _shuffle_quantised(b: Builder, y: str) -> str:
    """The same as a quantiser writes it, with a pair after every step."""
    y = b.requantize(b.node("Reshape", y, b.constant([-1, 2, 2, 2, 4, 6])), 0.05, 3)
    y = b.requantize(b.node("Transpose", y, perm=[0, 1, 4, 2, 5, 3]), 0.05, 3)
    return b.node("Reshape", y, b.constant([-1, 2, 8, 12]))


def _joined(b: Builder, y: str) -> str:
    """Two parts in the other order."""
    low, high = (b.node("Slice", y, b.constant([i]), b.constant([i + 4]), b.constant([1])) for i in (0, 4))
    return b.node("Concat", high, low, axis=1)


#: Of a dequantised (N, 8, 4, 6): what is made of it, and the output's rank.
FORMS: dict[str, tuple[Callable[[Builder, str], str], int]] = {
    "dcr": (lambda b, y: b.node("DepthToSpace", y, blocksize=2), 4),
    "crd": (lambda b, y: b.node("DepthToSpace", y, blocksize=2, mode="CRD"), 4),
    "space_to_depth": (lambda b, y: b.node("SpaceToDepth", y, blocksize=2), 4),
    "shuffle": (_shuffle, 4),
    "shuffle_quantised": (_shuffle_quantised, 4),
    "joined": (_joined, 4),
    "mirrored": (lambda b, y: b.node("Slice", y, b.constant([-1]), b.constant([-99]), b.constant([3]),
                                     b.constant([-1])), 4),
    "every_other": (lambda b, y: b.node("Slice", y, b.constant([0, 1]), b.constant([8, 4]), b.constant([1, -2]),
                                        b.constant([3, 2])), 4),
    "gathered": (lambda b, y: b.node("Gather", y, b.constant([2, 0, 2]), axis=1), 4),
    "one_channel": (lambda b, y: b.node("Squeeze", b.node("Gather", y, b.constant([5]), axis=1), b.constant([1])), 3),
    "softmax_turned": (lambda b, y: b.node("Transpose", b.node("Softmax", y, axis=1), perm=[0, 2, 3, 1]), 4),
    "softmax_shuffled": (lambda b, y: _shuffle(b, b.node("Softmax", y, axis=1)), 4),
    "softmax_of_a_part": (lambda b, y: b.node("Softmax", b.node(
        "Slice", y, b.constant([2]), b.constant([5]), b.constant([1])), axis=1), 4),
    "part_of_a_softmax": (lambda b, y: b.node("Slice", b.node("Softmax", y, axis=1), b.constant([2]), b.constant([5]),
                                              b.constant([1])), 4),
}


# A Softmax in float32 differs from onnxruntime's in the last bit, so those are quantised.
@pytest.mark.parametrize(("form", "quantised"), [
    (form, quantised) for form in FORMS for quantised in (True, False) if quantised or "softmax" not in form])
def test_arrangements_at_outputs(form: str, quantised: bool, rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng, number=np.uint8 if quantised else np.int8)
    y = b.requantize(b.node("Conv", b.dequantize(b.input("N", 3, 4, 6)), b.weights(8, 3, 1, 1)), 0.05, 3)
    make, rank = FORMS[form]
    y = make(b, y)
    if quantised:
        softmax = "softmax" in form
        y = b.quantize(y, 1 / 256, 0) if softmax else b.quantize(y, 0.05, 3)
    b.output(y, None if quantised else np.float32, rank=rank)
    graph = check(b, tmp_path)
    assert len(graph.layers) == 1


@pytest.mark.parametrize("form", ["dcr", "crd", "shuffle"])
def test_arrangements_in_front_of_the_quantisation(form: str, rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    y = FORMS[form][0](b, b.node("Conv", b.dequantize(b.input(1, 3, 4, 6)), b.weights(8, 3, 1, 1)))
    b.output(b.quantize(y, 0.05, 3))
    check(b, tmp_path)


def test_several_outputs_of_one_tensor(rng: Rng, tmp_path: Path) -> None:
    """Whole, in parts, turned, as numbers and as integers."""
    b = Builder(rng)
    y = b.quantize(b.node("Conv", b.dequantize(b.input(1, 3, 4, 6)), b.weights(8, 3, 1, 1)), 0.05, 3)
    real = b.dequantize(y, 0.05, 3)
    parts = b.node("Split", real, b.constant([3, 5]), axis=1)
    b.nodes[-1].output.append("rest")
    for name, number in ((y, None), (parts, np.float32), ("rest", np.float32),
                         (b.node("DepthToSpace", real, blocksize=2), np.float32),
                         (b.node("Transpose", y, perm=[0, 2, 3, 1]), None)):
        b.output(name, number)
    graph = check(b, tmp_path)
    assert len(graph.layers) == 1 and len(graph.outputs) == 5


@pytest.mark.parametrize("form", ["dcr", "space_to_depth", "shuffle"])
@pytest.mark.parametrize("number", [np.int8, np.float32])
def test_arrangements_at_inputs(form: str, number: type, rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    x = FORMS[form][0](b, b.input(1, 8, 4, 6, number=number))
    x = b.requantize(x, 0.05, 3) if number == np.float32 else b.dequantize(x, 0.05, 3)
    channels = {"space_to_depth": 32}.get(form, 2)
    b.output(b.quantize(b.node("Conv", x, b.weights(5, channels, 1, 1)), 0.05, 3))
    check(b, tmp_path)


# -- the other 8-bit type ------------------------------------------------------------------------------------------


def _retyped(b: Builder, value: str, scale: float, point: int, number: type) -> str:
    return b.node("QuantizeLinear", value, b.scale(scale), b.constant(number(point)))


def _dequantised(b: Builder, value: str, scale: float, point: int, number: type) -> str:
    return b.node("DequantizeLinear", value, b.scale(scale), b.constant(number(point)))


@pytest.mark.parametrize("where", ["input", "float_input", "middle"])
def test_other_type_is_no_layer(where: str, rng: Rng, tmp_path: Path) -> None:
    """The same scale, a zero point moved by 128."""
    b = Builder(rng)
    if where == "input":
        x = b.dequantize(b.input(1, 3, 6, 6, name="x"), 0.05, 2)
    elif where == "float_input":
        x = b.requantize(b.input(1, 3, 6, 6, number=np.float32), 0.05, 2)
    else:
        x = b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, 6, 6)), b.weights(3, 3, 1, 1)), 0.05, 2)
    again = _dequantised(b, _retyped(b, x, 0.05, 130, np.uint8), 0.05, 130, np.uint8)
    b.output(b.quantize(b.node("Conv", again, b.weights(4, 3, 3, 3), pads=[1, 1, 1, 1]), 0.05, 3))
    b.output(b.quantize(b.node("Conv", x, b.weights(4, 3, 1, 1)), 0.05, 3))
    graph = check(b, tmp_path)
    assert [layer.op for layer in graph.layers] == ["conv"] * (3 if where == "middle" else 2)


@pytest.mark.parametrize("shift", [0, 1])
def test_input_quantised_in_both_types(shift: int, rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    x = b.input(1, 3, 6, 6, number=np.float32)
    for number, point in ((np.int8, 2), (np.uint8, 130 + shift)):
        real = _dequantised(b, _retyped(b, x, 0.05, point, number), 0.05, point, number)
        b.output(b.quantize(b.node("Conv", real, b.weights(4, 3, 3, 3)), 0.05, 3))
    if not shift:
        assert len(check(b, tmp_path).layers) == 2
        return
    with raises(GraphError, "quantised-twice", operator="QuantizeLinear"):
        load(b.save(tmp_path))


@pytest.mark.parametrize("number", [np.int8, np.uint8])
def test_outputs_in_both_types(number: type, rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng, number=number)
    point, other, moved = (2, np.uint8, 130) if number == np.int8 else (130, np.int8, 2)
    y = b.quantize(b.node("Conv", b.dequantize(b.input(1, 3, 6, 6)), b.weights(8, 3, 1, 1)), 0.05, point)
    turned = _retyped(b, b.dequantize(y, 0.05, point), 0.05, moved, other)
    real = _dequantised(b, turned, 0.05, moved, other)
    for name, kind in ((y, number), (turned, other), (real, np.float32),
                       (b.node("DepthToSpace", turned, blocksize=2), other)):
        b.output(name, kind)
    graph = check(b, tmp_path)
    assert len(graph.layers) == 1
    results, _ = reference.run(graph, b.samples())
    assert [r.dtype for r in results.values()] == [number, other, np.float32, other]


def test_parts_read_in_both_types_are_joined(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    y = b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, 6, 6)), b.weights(8, 3, 1, 1)), 0.05, 2)
    again = _dequantised(b, _retyped(b, y, 0.05, 130, np.uint8), 0.05, 130, np.uint8)
    b.output(b.node("Concat", y, again, axis=1), np.float32)
    b.output(_retyped(b, b.node("Concat", again, y, axis=1), 0.05, 130, np.uint8), np.uint8)
    assert len(check(b, tmp_path).layers) == 1


def test_clip_into_the_other_type(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    y = b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, 6, 6)), b.weights(8, 3, 1, 1)), 0.05, 2)
    b.output(_retyped(b, b.node("Relu", y), 0.05, 130, np.uint8), np.uint8)
    assert len(check(b, tmp_path).layers) == 1


@pytest.mark.parametrize("op", ["Conv", "AveragePool"])
@pytest.mark.parametrize("first", ["MaxPool", "Conv"])
def test_padding_where_zero_is_another_number(first: str, op: str, rng: Rng, tmp_path: Path) -> None:
    """Read with another scale and zero point than the tensor was quantised with, or of an input that has none yet."""
    b = Builder(rng)
    x = b.input(1, 3, 8, 8)
    if first == "MaxPool":
        y = b.node("MaxPool", x, kernel_shape=[2, 2])
    else:
        y = b.quantize(b.node("Conv", b.dequantize(x), b.weights(3, 3, 1, 1)), 0.05, 3)
    y = b.dequantize(y, 0.08, -70)
    if op == "Conv":
        y = b.node("Conv", y, b.weights(4, 3, 3, 3), pads=[1, 1, 1, 1])
    else:
        y = b.node("AveragePool", y, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)
    b.output(b.quantize(y, 0.05, 3))
    check(b, tmp_path)
