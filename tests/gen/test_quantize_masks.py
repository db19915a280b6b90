"""Masks of scores when a float model is quantised: all of it on the accelerator, and near onnxruntime."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from cores.config import NpuConfig
from gen.check.compare import compare_model
from gen.onnx.importer import load_model
from gen.onnx.machine import Machine
from gen.quantize.options import QuantizeOptions
from gen.quantize.prepare import prepare
from gen.quantize.quantize import quantize
from tests.gen.float_models import FloatBuilder
from tests.gen.quantizing import outputs_of, quantized

TOKENS, HEADS, SIZE = 9, 2, 20
WIDTH = HEADS * SIZE


@pytest.mark.parametrize("low", [-np.inf, np.finfo(np.float32).min, -1e4])
def test_causal(low: float, rng: np.random.Generator, tmp_path: Path) -> None:
    b = FloatBuilder(rng, [1, TOKENS, WIDTH], opset=17)
    split = b.constant(np.array([1, TOKENS, HEADS, SIZE]))
    query, key, value = (
        b.node("Transpose", b.node("Reshape", b.node("MatMul", "x", b.weights(WIDTH, WIDTH)), split), perm=perm)
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
    mask = np.where(np.tri(TOKENS, dtype=bool), 0, np.float32(low)).astype(np.float32)
    scores = b.node("Mul", b.node("MatMul", query, key), b.constant(np.float32(SIZE**-0.5)))
    shares = b.node("Softmax", b.node("Add", scores, b.constant(mask)), axis=-1)
    mixed = b.node("Transpose", b.node("MatMul", shares, value), perm=[0, 2, 1, 3])
    mixed = b.node("Reshape", mixed, b.constant(np.array([1, TOKENS, WIDTH])))
    model = b.model(b.node("MatMul", mixed, b.weights(WIDTH, 12), name="y"), rank=3)
    x = rng.normal(size=(4, TOKENS, WIDTH)).astype(np.float32)
    made = quantized(model, x, method="minmax").model
    expected = outputs_of(model, x)
    assert np.abs(outputs_of(made, x) - expected).max() < 0.1 * np.abs(expected).max()
    onnx.save(made, tmp_path / "masked.onnx")
    imported = load_model(tmp_path / "masked.onnx", machine=Machine.of(NpuConfig.preset(64, turn=1, rows=64)))
    assert compare_model(imported, {"x": x}).largest <= 2


def heads_of(b: FloatBuilder, x: str) -> list[str]:
    split = b.constant(np.array([0, 0, HEADS, SIZE]))
    return [b.node("Transpose", b.node("Reshape", b.node("MatMul", x, b.weights(WIDTH, WIDTH)), split), perm=perm)
            for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])]


def attended(b: FloatBuilder, x: str, mask: str) -> str:
    query, key, value = heads_of(b, x)
    scores = b.node("Mul", b.node("MatMul", query, key), b.constant(np.float32(SIZE**-0.5)))
    mixed = b.node("MatMul", b.node("Softmax", b.node("Add", scores, mask), axis=-1), value)
    return b.node("Reshape", b.node("Transpose", mixed, perm=[0, 2, 1, 3]), b.constant(np.array([0, 0, WIDTH])))


@pytest.mark.parametrize("batch", [1, "N"])
@pytest.mark.parametrize("shape", [(1, 1, TOKENS), (1, 1, 40), (1, TOKENS, TOKENS), (HEADS, TOKENS, TOKENS)], ids=str)
@pytest.mark.parametrize("form", ["numbers", "factor", "infinite"])
def test_given(form: str, shape: tuple[int, ...], batch: int | str, rng: np.random.Generator, tmp_path: Path) -> None:
    """Masks that are inputs, of keys or of pairs, for two layers whose scores differ in size: all of it on the
    accelerator, but what makes numbers of what is chosen.
    """
    tokens = shape[-1]
    b = FloatBuilder(rng, [batch, tokens, WIDTH], opset=17)
    mask = "mask"
    if form == "factor":
        mask = b.node("Mul", mask, b.constant(np.float32(-1e4)))
    if form == "infinite":
        mask = b.node("Where", mask, b.constant(np.float32(-np.inf)), b.constant(np.float32(0)))
    y = attended(b, "x", mask)
    y = attended(b, b.node("Mul", y, b.constant(np.float32(4))), mask)
    y = b.node("MatMul", y, b.weights(WIDTH, 12), name="y")
    number = onnx.TensorProto.FLOAT
    values = [onnx.helper.make_tensor_value_info(name, kind, [batch, *dims]) for name, kind, dims in (
        ("x", number, (tokens, WIDTH)), ("mask", onnx.TensorProto.BOOL if form == "infinite" else number, shape),
        (y, number, (tokens, 12)))]
    graph = onnx.helper.make_graph(b.nodes, "masked", values[:2], values[2:], b.constants)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    hidden = np.zeros((4, *shape), bool)
    hidden[0, ..., -3:] = hidden[1, ..., :2] = hidden[2, ..., 4] = True
    samples = {"x": rng.normal(size=(4, tokens, WIDTH)).astype(np.float32)}
    samples["mask"] = hidden if form == "infinite" else (hidden * np.float32(1 if form == "factor" else -1e4))
    made = quantize(model, samples, QuantizeOptions(method="minmax")).model
    expected, found = (np.concatenate([onnxruntime.InferenceSession(each.SerializeToString()).run(None, {
        name: array[number:number + 1] for name, array in samples.items()})[0] for number in range(4)])
        for each in (model, made))
    assert ((found - expected)**2).sum() < 0.01 * (expected**2).sum()
    onnx.save(made, tmp_path / "masked.onnx")
    machine = Machine.of(NpuConfig.preset(64, turn=1, rows=64, table=1, product=1))
    if form == "infinite":
        return      # the processor makes numbers of the choices
    assert compare_model(load_model(tmp_path / "masked.onnx", machine=machine), samples).largest <= 2


def test_given_for_others_too(rng: np.random.Generator) -> None:
    """A mask that is repeated for scores, and for a layer that needs all of its range."""
    b = FloatBuilder(rng, [1, TOKENS, WIDTH], opset=17)
    repeated, other = (b.node("Expand", "mask", b.constant(np.array([1, count, TOKENS, TOKENS])))
                       for count in (HEADS, 3))
    outputs = [b.node("MatMul", attended(b, "x", repeated), b.weights(WIDTH, 12), name="y"),
               b.node("MatMul", b.node("Reshape", other, b.constant(np.array([1, 3 * TOKENS, TOKENS]))),
                      b.weights(TOKENS, 7), name="z")]
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, *dims]) for name, dims in (
        ("x", (TOKENS, WIDTH)), ("mask", (1, TOKENS, TOKENS)), ("y", (TOKENS, 12)), ("z", (3 * TOKENS, 7)))]
    graph = onnx.helper.make_graph(b.nodes, "masked", values[:2], values[2:], b.constants)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    samples = {"x": rng.normal(size=(4, TOKENS, WIDTH)).astype(np.float32)}
    samples["mask"] = np.repeat(np.triu(np.full((1, 1, TOKENS, TOKENS), np.float32(-1e4)), 1), 4, axis=0)
    made = quantize(model, samples, QuantizeOptions(method="minmax")).model
    for place in range(len(outputs)):
        expected, found = (onnxruntime.InferenceSession(each.SerializeToString()).run(None, {
            name: array[:1] for name, array in samples.items()})[place] for each in (model, made))
        assert ((found - expected)**2).sum() < 0.01 * (expected**2).sum()


def test_given_and_a_result(rng: np.random.Generator) -> None:
    """A mask with infinite numbers that is an output of the model, too, stays as it is."""
    b = FloatBuilder(rng, [1, TOKENS, WIDTH], opset=17)
    mask = b.node("Where", "hidden", b.constant(np.float32(-np.inf)), b.constant(np.float32(0)), name="mask")
    y = b.node("MatMul", attended(b, "x", mask), b.weights(WIDTH, 12), name="y")
    number = onnx.TensorProto.FLOAT
    values = [onnx.helper.make_tensor_value_info(name, kind, [1, *dims]) for name, kind, dims in (
        ("x", number, (TOKENS, WIDTH)), ("hidden", onnx.TensorProto.BOOL, (1, TOKENS, TOKENS)),
        (y, number, (TOKENS, 12)), (mask, number, (1, TOKENS, TOKENS)))]
    graph = onnx.helper.make_graph(b.nodes, "masked", values[:2], values[2:], b.constants)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    samples = {"x": rng.normal(size=(4, TOKENS, WIDTH)).astype(np.float32),
               "hidden": np.repeat(~np.tri(TOKENS, dtype=bool)[None, None], 4, axis=0)}
    made = quantize(model, samples, QuantizeOptions(method="minmax")).model
    expected, found = (onnxruntime.InferenceSession(each.SerializeToString()).run(None, {
        name: array[:1] for name, array in samples.items()}) for each in (model, made))
    assert ((found[0] - expected[0])**2).sum() < 0.01 * (expected[0]**2).sum()
    np.testing.assert_array_equal(found[1], expected[1])


@pytest.mark.parametrize("steps", ["Mul", "Div", "Add", "Max", "Add Mul Max"])
def test_steps_between_mask_and_softmax(steps: str, rng: np.random.Generator) -> None:
    """The mask is added after them, so that they keep the range of the scores."""
    numbers = {"Mul": np.float32(0.5), "Div": np.float32([2]), "Max": np.float32(-3.4e38),
               "Add": rng.normal(size=(1, HEADS, TOKENS, TOKENS)).astype(np.float32)}
    b = FloatBuilder(rng, [1, TOKENS, WIDTH], opset=17)
    query, key, value = heads_of(b, "x")
    lowest = np.where(np.tri(TOKENS, dtype=bool), 0, np.float32(-3.4e38)).astype(np.float32)
    scores = b.node("Add", b.node("MatMul", query, key), b.constant(lowest))
    for step in steps.split():
        scores = b.node(step, scores, b.constant(numbers[step]))
    mixed = b.node("Transpose", b.node("MatMul", b.node("Softmax", scores, axis=-1), value), perm=[0, 2, 1, 3])
    model = b.model(b.node("MatMul", b.node("Reshape", mixed, b.constant(np.array([0, 0, WIDTH]))),
                           b.weights(WIDTH, 12)), rank=3)
    samples = {"x": rng.normal(size=(4, TOKENS, WIDTH)).astype(np.float32)}
    made = quantize(model, samples, QuantizeOptions(method="minmax")).model
    expected, found = (onnxruntime.InferenceSession(each.SerializeToString()).run(None, {"x": samples["x"][:1]})[0]
                       for each in (model, made))
    assert np.square(found - expected).sum() < 0.01 * np.square(expected).sum()


@pytest.mark.parametrize("steps", ["Mul", "Add", "Mul Add"])
def test_steps_after_a_given_mask(steps: str, rng: np.random.Generator) -> None:
    """Of scores that keep their steps, in two layers that share the mask."""
    b = FloatBuilder(rng, [1, TOKENS, WIDTH], opset=17)
    mask, y = b.node("Mul", "mask", b.constant(np.float32(-1e4))), "x"
    for _ in range(2):
        query, key, value = heads_of(b, y)
        scores = b.node("Add", b.node("MatMul", query, key), mask)
        for step in steps.split():
            number = np.float32(SIZE**-0.5) if step == "Mul" else rng.normal(size=(1, HEADS, TOKENS, TOKENS))
            scores = b.node(step, scores, b.constant(number))
        mixed = b.node("Transpose", b.node("MatMul", b.node("Softmax", scores, axis=-1), value), perm=[0, 2, 1, 3])
        y = b.node("Reshape", mixed, b.constant(np.array([0, 0, WIDTH])))
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in (
        ("x", [1, TOKENS, WIDTH]), ("mask", [1, 1, 1, TOKENS]), (y, [1, TOKENS, WIDTH]))]
    graph = onnx.helper.make_graph(b.nodes, "masked", values[:2], values[2:], b.constants)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    samples = {"x": rng.normal(size=(4, TOKENS, WIDTH)).astype(np.float32),
               "mask": np.broadcast_to(np.float32([0] * 6 + [1] * 3), (4, 1, 1, TOKENS))}
    made = quantize(model, samples, QuantizeOptions(method="minmax")).model
    expected, found = ([onnxruntime.InferenceSession(each.SerializeToString()).run(None, {
        name: array[:1] for name, array in samples.items()})[0] for each in (model, made)])
    assert ((found - expected)**2).sum() < 0.01 * (expected**2).sum()


@pytest.mark.parametrize("given", [False, True], ids=("constant", "input"))
def test_masked_scores_that_are_a_result(given: bool, rng: np.random.Generator) -> None:
    """The Softmax has a sum of its own; what leaves the model is as low as it was."""
    b = FloatBuilder(rng, [1, TOKENS, WIDTH], opset=17)
    query, key, value = heads_of(b, "x")
    numbers = np.where(np.tri(TOKENS, dtype=bool), 0, np.float32(-1e4)).astype(np.float32)[None, None]
    scores = b.node("MatMul", query, key)
    total = b.node("Add", scores, "mask" if given else b.constant(numbers), name="total")
    mixed = b.node("Transpose", b.node("MatMul", b.node("Softmax", total, axis=-1), value), perm=[0, 2, 1, 3])
    y = b.node("MatMul", b.node("Reshape", mixed, b.constant(np.array([0, 0, WIDTH]))), b.weights(WIDTH, 12), name="y")
    number = onnx.TensorProto.FLOAT
    values = [onnx.helper.make_tensor_value_info(name, number, [1, *dims]) for name, dims in (
        ("x", (TOKENS, WIDTH)), ("mask", (1, TOKENS, TOKENS)), (y, (TOKENS, 12)), (total, (HEADS, TOKENS, TOKENS)))]
    graph = onnx.helper.make_graph(b.nodes, "masked", values[:2] if given else values[:1], values[2:], b.constants)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    samples = {"x": rng.normal(size=(4, TOKENS, WIDTH)).astype(np.float32)}
    samples |= {"mask": np.repeat(numbers, 4, axis=0)} if given else {}
    made = quantize(model, samples, QuantizeOptions(method="minmax")).model
    expected, found = (onnxruntime.InferenceSession(each.SerializeToString()).run(None, {
        name: array[:1] for name, array in samples.items()}) for each in (model, made))
    assert all(((a - b)**2).sum() < 0.01 * (b**2).sum() for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("given", [False, True], ids=("constant", "input"))
@pytest.mark.parametrize("seen", [False, True])
def test_chosen(seen: bool, given: bool, rng: np.random.Generator) -> None:
    """A Where in front of the Softmax, by what is seen or by what is not; the number does not widen the scores' range,
    which would leave nothing of them. A constant choice is a sum.
    """
    b = FloatBuilder(rng, [1, TOKENS, WIDTH], opset=17)
    x = b.node("MatMul", "x", b.weights(WIDTH, WIDTH))
    scores = b.node("MatMul", x, b.node("Transpose", x, perm=[0, 2, 1]))
    mask = np.tri(TOKENS, dtype=bool)[None]
    mask, number = mask if seen else ~mask, b.constant(np.float32(-1e9))
    choice = b.constant(mask) if not given else "mask"
    masked = b.node("Where", choice, *((scores, number) if seen else (number, scores)))
    y = b.node("MatMul", b.node("Softmax", masked, axis=-1), x)
    y = b.node("MatMul", y, b.weights(WIDTH, 12), name="y")
    values = [onnx.helper.make_tensor_value_info(name, kind, [1, TOKENS, size]) for name, kind, size in (
        ("x", onnx.TensorProto.FLOAT, WIDTH), ("mask", onnx.TensorProto.BOOL, TOKENS), (y, onnx.TensorProto.FLOAT, 12))]
    graph = onnx.helper.make_graph(b.nodes, "masked", values[:1 + given], values[2:], b.constants)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    samples = {"x": rng.normal(size=(4, TOKENS, WIDTH)).astype(np.float32) / 6}
    samples |= {"mask": np.repeat(mask, 4, axis=0)} if given else {}
    made = quantize(model, samples).model
    assert ("Where" in {node.op_type for node in made.graph.node}) == given
    expected, found = ([onnxruntime.InferenceSession(each.SerializeToString()).run(None, {
        name: array[:1] for name, array in samples.items()})[0] for each in (model, made)])
    assert ((found - expected)**2).sum() < 0.01 * (expected**2).sum()


@pytest.mark.parametrize(("what", "form"), [
    ("large", "where"), ("large", "sum"), ("output", "where"), ("output", "sum"), ("read", "where"), ("read", "sum"),
    ("empty", "where")])
def test_numbers_of_the_float_model(what: str, form: str, rng: np.random.Generator) -> None:
    """Masked scores that are large, that something else reads, or rows of which all keys are masked: the model's own
    numbers.
    """
    b = FloatBuilder(rng, [1, TOKENS, WIDTH], opset=17)
    query = b.node("MatMul", "x", b.constant(rng.normal(0, 4, (WIDTH, WIDTH)) if what == "large" else np.eye(WIDTH)))
    scores = b.node("MatMul", query, b.node("Transpose", "x", perm=[0, 2, 1]))
    seen = np.tri(TOKENS, k=-1 if what == "empty" else 0, dtype=bool)
    masked = (b.node("Where", b.constant(seen), scores, b.constant(np.float32(-1e9))) if form == "where" else
              b.node("Add", scores, b.constant(np.where(seen, 0, np.float32(-1e9)).astype(np.float32))))
    y = b.node("MatMul", b.node("MatMul", b.node("Softmax", masked, axis=-1), "x"), b.weights(WIDTH, 12))
    if what == "read":
        y = b.node("Add", y, b.node("ReduceMean", masked, axes=[-1]))
    model = b.model(y, rank=3)
    if what == "output":
        model.graph.output.insert(0, onnx.helper.make_tensor_value_info(masked, onnx.TensorProto.FLOAT, None))
    x = rng.normal(size=(2, TOKENS, WIDTH)).astype(np.float32)
    expected = outputs_of(model, x)
    np.testing.assert_allclose(outputs_of(prepare(model), x), expected, rtol=0, atol=1e-4 * np.abs(expected).max())
