"""Heads with constants of their own, heads that are repeated, and parts of tokens: the same numbers, on the machine."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from cores.config import NpuConfig
from gen.check.compare import compare_model
from gen.onnx.importer import load_model
from gen.onnx.machine import Machine
from gen.quantize.prepare import prepare
from tests.compiled import compile_kept
from tests.gen.float_models import FloatBuilder
from tests.gen.quantizing import outputs_of, quantized
from tests.gen.test_compiler import run_and_compare

Rng = np.random.Generator
CONFIG = NpuConfig.preset(64, product=1, table=1, turn=1, rows=64)
TOKENS, HEADS, SIZE = 11, 3, 12
CHANNELS = HEADS * SIZE


def ints(b: FloatBuilder, *numbers: int) -> str:
    return b.constant(np.array(numbers))


def linear(b: FloatBuilder, x: str, before: int, after: int) -> str:
    return b.node("MatMul", x, b.constant(b.rng.normal(0, before**-0.5, (before, after))))


def heads(b: FloatBuilder, x: str, count: int = HEADS) -> str:
    """(1, count, tokens, SIZE)."""
    y = b.node("Reshape", linear(b, x, CHANNELS, count * SIZE), ints(b, 0, 0, count, SIZE))
    return b.node("Transpose", y, perm=[0, 2, 1, 3])


def turned(b: FloatBuilder, x: str) -> str:
    return b.node("Transpose", x, perm=[0, 1, 3, 2])


def attended(b: FloatBuilder, query: str, key: str, value: str) -> str:
    shares = b.node("Softmax", b.node("MatMul", query, turned(b, key)), axis=-1)
    return joined(b, b.node("MatMul", shares, value))


def joined(b: FloatBuilder, x: str) -> str:
    return b.node("Reshape", b.node("Transpose", x, perm=[0, 2, 1, 3]), ints(b, 0, 0, CHANNELS))


def matrices(b: FloatBuilder, x: str) -> str:
    """Of the same tokens for each head, with three axes or four."""
    x = b.node("Unsqueeze", x, ints(b, 1))
    shapes = (HEADS, CHANNELS, SIZE), (1, HEADS, CHANNELS, SIZE), (HEADS, CHANNELS, SIZE)
    return attended(b, *(b.node("MatMul", x, b.constant(b.rng.normal(0, CHANNELS**-0.5, shape))) for shape in shapes))


def own_matrices(b: FloatBuilder, x: str) -> str:
    """Of each head's own channels."""
    own = b.node("MatMul", heads(b, x), b.constant(b.rng.normal(0, SIZE**-0.5, (HEADS, SIZE, SIZE))))
    return attended(b, own, heads(b, x), heads(b, x))


def queries(b: FloatBuilder, x: str) -> str:
    """That are learnt, as DETR's decoder has them: the same for each sample."""
    return attended(b, b.constant(b.rng.normal(size=(1, HEADS, 4, SIZE))), heads(b, x), heads(b, x))


def one_query(b: FloatBuilder, x: str) -> str:
    """With heads as the first axis, as PyTorch's attention has them where it gives the weights, too."""
    key, value = (b.node("Reshape", heads(b, x), ints(b, HEADS, TOKENS, SIZE)) for _ in range(2))
    query = b.constant(b.rng.normal(size=(HEADS, 1, SIZE)))
    shares = b.node("Softmax", b.node("MatMul", query, b.node("Transpose", key, perm=[0, 2, 1])), axis=-1)
    return joined(b, b.node("Reshape", b.node("MatMul", shares, value), ints(b, 1, HEADS, 1, SIZE)))


def pooled(b: FloatBuilder, x: str) -> str:
    """A query of one head."""
    query, key = b.constant(b.rng.normal(size=(1, 1, CHANNELS))), linear(b, x, CHANNELS, CHANNELS)
    scores = b.node("MatMul", query, b.node("Transpose", key, perm=[0, 2, 1]))
    return b.node("MatMul", b.node("Softmax", scores, axis=-1), linear(b, x, CHANNELS, CHANNELS))


def shared(b: FloatBuilder, x: str) -> str:
    """A head of keys for all of queries, whose factor comes after it is repeated."""
    factor = b.constant(np.float32([SIZE**-0.25]))

    def repeated(x: str) -> str:
        x = b.node("Expand", b.node("Unsqueeze", x, ints(b, 2)), ints(b, 1, 1, HEADS, TOKENS, SIZE))
        return b.node("Reshape", x, ints(b, 1, HEADS, TOKENS, SIZE))

    rolled = b.node("Add", (key := heads(b, x, 1)), b.node("Neg", b.node("Sigmoid", key)))
    key = b.node("Mul", turned(b, repeated(rolled)), factor)
    scores = b.node("MatMul", b.node("Mul", heads(b, x), factor), key)
    return joined(b, b.node("MatMul", b.node("Softmax", scores, axis=-1), repeated(heads(b, x, 1))))


def shares_of_tokens(b: FloatBuilder, x: str) -> str:
    """Linear attention: a Softmax of keys over the tokens, and one of queries over their channels."""
    key = turned(b, b.node("Softmax", heads(b, x), axis=-2))
    return joined(b, b.node("MatMul", b.node("Softmax", heads(b, x), axis=-1), b.node("MatMul", key, heads(b, x))))


def norms(b: FloatBuilder, x: str) -> str:
    """Of the queries and keys of each head."""
    found = [b.node("LayerNormalization", heads(b, x), b.constant(b.rng.uniform(0.5, 1, SIZE)),
                    b.constant(b.rng.normal(0, 0.1, SIZE)), axis=-1) for _ in range(2)]
    return attended(b, *found, heads(b, x))


def norm_of_a_part(b: FloatBuilder, x: str) -> str:
    """Of half of the channels, as gMLP has it."""
    x = linear(b, x, CHANNELS, 2 * CHANNELS)
    half = b.node("Slice", x, ints(b, CHANNELS), ints(b, 2 * CHANNELS), ints(b, 2))
    return b.node("LayerNormalization", half, b.constant(b.rng.uniform(0.5, 1, CHANNELS)), axis=-1)


def later_tokens(b: FloatBuilder, x: str, first: int = 3) -> str:
    """The mean of all but the first ones, which are registers."""
    later = b.node("Slice", linear(b, x, CHANNELS, CHANNELS), ints(b, first), ints(b, TOKENS), ints(b, 1))
    return b.node("ReduceMean", later, axes=[1], keepdims=1)


def last_token(b: FloatBuilder, x: str) -> str:
    return later_tokens(b, x, TOKENS - 1)


def network(rng: Rng, form: Callable[[FloatBuilder, str], str]):
    b = FloatBuilder(rng, [1, TOKENS, CHANNELS], opset=17)
    return b.model(linear(b, form(b, linear(b, "x", CHANNELS, CHANNELS)), CHANNELS, 8), rank=3)


@pytest.mark.parametrize("form", [matrices, own_matrices, queries, one_query, pooled, shared])
def test_numbers(form, rng: Rng) -> None:
    model = network(rng, form)
    x = rng.normal(size=(3, TOKENS, CHANNELS)).astype(np.float32)
    np.testing.assert_allclose(outputs_of(prepare(model), x), outputs_of(model, x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("form", [
    matrices, own_matrices, queries, one_query, pooled, shared, shares_of_tokens, norms, norm_of_a_part, later_tokens,
    last_token])
def test_on_the_machine(form, rng: Rng, seed: int, tmp_path: Path) -> None:
    """One graph, whose layers are onnxruntime's but for a step, and close to the float model."""
    model = network(rng, form)
    x = rng.normal(size=(16, TOKENS, CHANNELS)).astype(np.float32)
    found = quantized(model, x, method="minmax")
    (tmp_path / "m.onnx").write_bytes(found.model.SerializeToString())
    imported = load_model(tmp_path / "m.onnx", machine=Machine.of(CONFIG))
    assert max(row.largest for row in compare_model(imported, {"x": x[:2]}).layers) <= 1
    run_and_compare(*compile_kept(imported.graph, CONFIG), seed, ("load", "store"))
    expected = outputs_of(model, x)
    assert np.abs(outputs_of(found.model, x) - expected).mean() < 0.03 * np.abs(expected).max()


def test_what_else_reads_it(rng: Rng) -> None:
    """A factor stays where something else reads what is repeated."""
    b = FloatBuilder(rng, [1, TOKENS, CHANNELS], opset=17)
    repeated = b.node("Expand", linear(b, "x", CHANNELS, CHANNELS), ints(b, 4, TOKENS, CHANNELS))
    y = b.node("Add", b.node("Mul", repeated, b.constant(np.float32(3))), b.node("Sigmoid", repeated))
    model = b.model(linear(b, y, CHANNELS, 8), rank=3)
    x = rng.normal(size=(2, TOKENS, CHANNELS)).astype(np.float32)
    prepared = prepare(model)
    np.testing.assert_allclose(outputs_of(prepared, x), outputs_of(model, x), rtol=0, atol=1e-5)
    assert [node.op_type for node in prepared.graph.node].count("Expand") == 1


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("shape, of_heads", [
    ((HEADS, TOKENS, SIZE), (1, HEADS, SIZE, SIZE)),        # the result has an axis more
    ((HEADS, SIZE, SIZE), (HEADS, SIZE, SIZE)),             # they are samples
    (("N", HEADS, SIZE, SIZE), (HEADS, SIZE, SIZE))])
def test_shapes(shape: tuple[int | str, ...], of_heads: tuple[int, ...], left: bool, rng: Rng) -> None:
    b = FloatBuilder(rng, shape[:-2] + shape[:-3:-1] if left else shape)
    operands = "x", b.constant(rng.normal(size=of_heads))
    model = b.model(b.node("MatMul", *operands[::-1] if left else operands))
    x = rng.normal(size=(2, *(size for size in b.shape if size != "N"))).astype(np.float32)
    prepared = prepare(model)
    sessions = [ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
                for m in (model, prepared)]
    expected, found = (session.run(None, {"x": x if "N" in shape else x[0]})[0] for session in sessions)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
    assert found.shape == expected.shape
    assert (len(prepared.graph.node) > 1) is ("N" in shape)


@pytest.mark.parametrize("shape", [(8, SIZE), (1, 8, SIZE)])
def test_a_matrix_in_front_is_one_of_weights(shape: tuple[int, ...], rng: Rng) -> None:
    b = FloatBuilder(rng, ["N", SIZE, TOKENS])
    model = b.model(b.node("MatMul", b.constant(rng.normal(size=shape)), "x"))
    prepared = prepare(model)
    (product,) = (node for node in prepared.graph.node if node.op_type == "MatMul")
    assert product.input[1] in {tensor.name for tensor in prepared.graph.initializer}
    x = rng.normal(size=(2, SIZE, TOKENS)).astype(np.float32)
    np.testing.assert_allclose(outputs_of(prepared, x), outputs_of(model, x), rtol=0, atol=1e-5)
