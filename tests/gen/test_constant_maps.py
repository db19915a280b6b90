"""Constants with a number for each pixel: against onnxruntime, on the functional simulator, and the IR's rules."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from cores.config import NpuConfig
from gen.check.compare import compare_model
from gen.ir.errors import GraphError
from gen.ir.verify import verify
from gen.onnx.importer import Imported, load_model
from gen.onnx.machine import Machine
from gen.program.file import load_program, save_program
from tests.compiled import compile_kept
from tests.errors import raises
from tests.gen.float_models import FloatBuilder
from tests.gen.qdq import Builder
from tests.gen.quantizing import quantized
from tests.gen.test_compiler import run_and_compare

Rng = np.random.Generator
CONFIG = NpuConfig.preset(64, product=1)
MACHINE = Machine.of(CONFIG)
TOKENS, CHANNELS = 9, 20


def quantised_map(b: Builder, *shape: int, number: type = np.int8) -> str:
    limits = np.iinfo(number)
    array = b.rng.integers(limits.min, limits.max + 1, shape).astype(number)
    return b.node("DequantizeLinear", b.constant(array), b.scale(0.03), b.constant(number(limits.max - 99)))


def float_map(b: Builder, *shape: int) -> str:
    return b.constant(b.rng.normal(0, 2, shape).astype(np.float32))


def checked(b: Builder, folder: Path, seed: int, *ops: str, largest: int = 1) -> Imported:
    """Layers differ from onnxruntime's by so much at most; the machine has the golden model's bytes."""
    imported = load_model(b.save(folder), machine=MACHINE)
    assert [layer.op for layer in imported.graph.layers] == list(ops)
    rows = compare_model(imported, b.samples()).layers
    assert max(row.largest for row in rows) <= largest and not any(row.beyond for row in rows)
    run_and_compare(*compile_kept(imported.graph, CONFIG), seed, ("load", "store"))
    return imported


@pytest.mark.parametrize("number", [np.int8, np.uint8])
def test_position_embedding(number: type, rng: Rng, seed: int, tmp_path: Path) -> None:
    """Added by the layer that makes the tokens."""
    b = Builder(rng, number=number)
    x = b.dequantize(b.input(1, TOKENS, 12), 0.05)
    y = b.node("MatMul", x, b.weights(12, CHANNELS, axis=1))
    y = b.node("Add", quantised_map(b, 1, TOKENS, CHANNELS, number=number), y)
    b.output(b.quantize(y, 0.05), rank=3)
    checked(b, tmp_path, seed, "conv")


@pytest.mark.parametrize(("op", "first"), [("Add", False), ("Sub", False), ("Sub", True), ("Mul", True)])
@pytest.mark.parametrize("kind", [float_map, quantised_map])
def test_of_a_tensor(kind, op: str, first: bool, rng: Rng, seed: int, tmp_path: Path) -> None:
    """A constant is broadcast over an axis, and is rounded if it is float."""
    b = Builder(rng)
    x = b.dequantize(b.input(1, CHANNELS, 4, 5), 0.05)
    operands = [x, kind(b, CHANNELS, 1, 5)]
    b.output(b.quantize(b.node(op, *operands[::-1 if first else 1]), 0.1))
    checked(b, tmp_path, seed, "conv" if (op, first) == ("Sub", True) else "pool", largest=12)


def test_products_need_their_unit(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    b.output(b.quantize(b.node("Mul", b.dequantize(b.input(1, 4, 3, 3)), float_map(b, 3, 3))))
    with raises(GraphError, "needs-unit"):
        load_model(b.save(tmp_path))


def test_file(rng: Rng, tmp_path: Path) -> None:
    """A constant is in the program's data, in front of what may be written, and once if it is there twice."""
    b = Builder(rng)
    x, same = b.dequantize(b.input(1, CHANNELS, 4, 5), 0.05), quantised_map(b, CHANNELS, 4, 5)
    once = b.requantize(b.node("Add", x, same), 0.1)
    b.output(b.quantize(b.node("Sub", once, same), 0.1))
    program, graph = compile_kept(load_model(b.save(tmp_path), machine=MACHINE).graph, CONFIG)
    values = next(iter(graph.constants.values()))
    assert np.ascontiguousarray(values[:16].transpose(1, 2, 0)).tobytes() in program.constants
    save_program(program, tmp_path / "model.npu")
    assert load_program(tmp_path / "model.npu").constants == program.constants


def test_rules(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    b.output(b.quantize(b.node("Add", b.dequantize(b.input(1, 4, 3, 3)), float_map(b, 3, 3))))
    graph = load_model(b.save(tmp_path)).graph
    (name, value), = graph.constants.items()
    for wrong, text in [
            ({"value": value.astype(np.int16)}, "its value must be int8"),
            ({"value": value[:, :2]}, "its value must be int8"),
            ({"signs": True}, "a constant is neither part of another tensor nor signs")]:
        tensors = {**graph.tensors, name: replace(graph.tensors[name], **wrong)}
        with raises(GraphError, "graph-rule", text):
            verify(replace(graph, tensors=tensors))
    layer = replace(graph.layers[0], output=name)
    with raises(GraphError, "graph-rule", "is written twice"):
        verify(replace(graph, layers=(layer,)))


def test_quantised_here(rng: Rng, tmp_path: Path) -> None:
    """The quantiser rounds them, so that nothing differs from onnxruntime by more than a unit."""
    b = FloatBuilder(rng, [1, TOKENS, 12])
    y = b.node("MatMul", "x", b.constant(rng.normal(0, 0.3, (12, CHANNELS))))
    y = b.node("Add", b.constant(rng.normal(0, 1, (1, TOKENS, CHANNELS))), y)
    model = b.model(b.node("MatMul", y, b.constant(rng.normal(0, 0.2, (CHANNELS, 12)))))
    x = rng.normal(size=(4, TOKENS, 12)).astype(np.float32)
    onnx.save(quantized(model, x).model, tmp_path / "q.onnx")
    imported = load_model(tmp_path / "q.onnx")
    assert [tensor.value_off for tensor in imported.graph.tensors.values() if tensor.value is not None] == [0]
    assert max(row.largest for row in compare_model(imported, {"x": x}).layers) <= 1


@pytest.mark.parametrize("kind", [float_map, quantised_map])
@pytest.mark.parametrize(("before", "after"), [(1, 0), (0, 2), (2, 1)])
def test_tokens_beside_those_of_an_image(before: int, after: int, kind, rng: Rng, seed: int, tmp_path: Path) -> None:
    """Class tokens in front of those of a convolution, or after them; then the first token, which has a layer."""
    b = Builder(rng)
    x = b.node("Conv", b.dequantize(b.input(1, 3, 8, 6), 0.05), b.weights(CHANNELS, 3, 2, 2), strides=[2, 2])
    x = b.node("Transpose", b.node("Reshape", b.requantize(x), b.constant([1, CHANNELS, 12])), perm=[0, 2, 1])
    parts = [*[kind(b, 1, before, CHANNELS)] * (before > 0), x, *[kind(b, 1, after, CHANNELS)] * (after > 0)]
    tokens = b.requantize(b.node("Concat", *parts, axis=1), 0.06)
    tokens = b.requantize(b.node("Add", tokens, kind(b, 1, 12 + before + after, CHANNELS)), 0.08)
    first = b.node("Gather", tokens, b.constant(np.int64(0)), axis=1)
    b.output(b.quantize(b.node("Gemm", first, b.weights(CHANNELS, 7, axis=1)), 0.05), rank=2)
    checked(b, tmp_path, seed, "conv", "pool", "pool", "conv", "conv", largest=40)


def test_tokens_beside_pixels_are_refused(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    x = b.dequantize(b.input(1, 4, 3, 3), 0.05)
    b.output(b.quantize(b.node("Concat", x, float_map(b, 1, 4, 1, 3), axis=2), 0.05))
    with raises(GraphError, "unsupported-form"):
        load_model(b.save(tmp_path), machine=MACHINE)
