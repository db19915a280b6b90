"""Linear attention, whose quotient by a sum that may be zero becomes layers: near the float model, and all on the
machine."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from cores.config import NpuConfig
from gen.quantize.prepare import prepare
from gen.quantize.ranges import BINS, Distribution
from gen.quantize.reciprocals import bound_reciprocals
from tests.gen.float_models import FloatBuilder
from tests.gen.quantizing import on_machine, outputs_of, quantized

Rng = np.random.Generator
CONFIG = NpuConfig.preset(64, product=1, table=1, turn=1)
HEADS, SIZE, SIDE = 2, 16, 5
WIDTH, TOKENS = HEADS * SIZE, SIDE * SIDE


def network(rng: Rng, *, turned: bool, batch: int | str = 1, split: bool = False, bias: float = 0.0,
            positive: bool = True, guard: float = 1e-15, one_query: bool = False) -> onnx.ModelProto:
    """As timm's EfficientViT, or, ``turned``, as the one of its authors: (1, heads, D, tokens). ``bias``: of q.
    ``one_query``: that of the first head, for all.
    """
    b = FloatBuilder(rng, [batch, 3, SIDE, SIDE], opset=17)
    axis, row = (2, 3) if turned else (3, 2)

    def integers(*values: int) -> str:
        return b.constant(np.array(values))

    def part(x: str, first: int, last: int) -> str:
        return b.node("Slice", x, integers(first), integers(last), integers(axis))

    x = b.same_conv("x", 3, 3 * WIDTH, kernel=1)
    of_query = np.arange(3 * WIDTH) % (3 * SIZE) < SIZE
    x = b.node("Add", x, b.constant((bias * of_query).reshape(-1, 1, 1)))
    y = b.node("Reshape", x, integers(-1, HEADS, 3 * SIZE, TOKENS))
    y = y if turned else b.node("Transpose", y, perm=[0, 1, 3, 2])
    query, key, value = (part(y, number * SIZE, (number + 1) * SIZE) for number in range(3))
    query, key = (b.node("Relu", name) for name in (query, key)) if positive else (query, key)
    key = b.node("Transpose", key, perm=[0, 1, 3, 2])
    query = b.node("Slice", query, *map(integers, (0, 1, 1))) if one_query else query
    pads = [0] * 8
    pads[4 + axis] = 1
    value = b.node("Pad", value, integers(*pads), b.constant(np.float32(1)))
    if turned:
        sums = b.node("MatMul", b.node("MatMul", value, key), query)
    else:
        sums = b.node("MatMul", query, b.node("MatMul", key, value))
    if split:
        above, below = (f"{sums}_{number}" for number in range(2))
        b.nodes.append(onnx.helper.make_node("Split", [sums, integers(SIZE, 1)], [above, below], axis=axis))
    else:
        above, below = part(sums, 0, -1), part(sums, -1, 2**63 - 1)
    y = b.node("Div", above, b.node("Add", below, b.constant(np.float32(guard))))
    y = y if turned else b.node("Transpose", y, perm=[0, 1, 3, 2])
    y = b.node("Reshape", y, integers(-1, WIDTH, SIDE, SIDE))
    return b.model(b.same_conv(y, WIDTH, 4, kernel=1, name="y"), rank=4)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("batch", [1, "N"])
@pytest.mark.parametrize("turned", [False, True])
def test_numbers(turned: bool, batch: int | str, split: bool, rng: Rng) -> None:
    model = network(rng, turned=turned, batch=batch, split=split)
    x = rng.normal(size=(3, 3, SIDE, SIDE)).astype(np.float32)
    made = prepare(model)
    assert not {node.op_type for node in made.graph.node} & {"Div", "Pad", "Split"}
    expected = outputs_of(model, x)
    np.testing.assert_allclose(outputs_of(made, x), expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def test_queries_of_zero(rng: Rng) -> None:
    """Where none is positive the quotient is 0, as it was."""
    model = network(rng, turned=False, bias=-100.0)
    x = rng.normal(size=(2, 3, SIDE, SIDE)).astype(np.float32)
    for made in (prepare(model), quantized(model, x).model):
        found, expected = outputs_of(made, x), outputs_of(model, x)
        assert np.isfinite(found).all() and np.abs(found - expected).max() < 0.02 * max(np.abs(expected).max(), 1)


def test_what_may_be_negative_stays(rng: Rng) -> None:
    """The sum of its channels may be zero where the quotient is not."""
    assert any(node.op_type == "Div" for node in prepare(network(rng, turned=False, positive=False)).graph.node)


@pytest.mark.parametrize("changes", [dict(guard=5e-4), dict(one_query=True)], ids=str)
def test_others_stay(changes: dict, rng: Rng) -> None:
    """What adds to a sum, and queries of other heads than the keys."""
    model, x = network(rng, turned=False, **changes), rng.normal(size=(2, 3, SIDE, SIDE)).astype(np.float32) / 50
    expected = outputs_of(model, x)
    np.testing.assert_allclose(outputs_of(prepare(model), x), expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("turned", [False, True])
def test_on_the_machine(turned: bool, rng: Rng, seed: int, tmp_path: Path) -> None:
    model = network(rng, turned=turned)
    x = rng.normal(size=(16, 3, SIDE, SIDE)).astype(np.float32)
    on_machine(quantized(model, x, method="minmax").model, x, CONFIG, seed, tmp_path)


def test_tokens_of_all_sizes() -> None:
    """Some are a sixtieth of others, which would leave them few steps above and below; the quotients are as large."""
    rng = np.random.default_rng(0)
    model = network(rng, turned=False)
    x = (20 * rng.normal(size=(16, 3, SIDE, SIDE)) * 60 ** -rng.random((16, 1, SIDE, SIDE))).astype(np.float32)
    expected, found = (outputs_of(each, x) for each in (model, quantized(model, x, method="minmax").model))
    # 6 dB if queries keep their size.
    assert 10 * np.log10((expected**2).sum() / ((found - expected)**2).sum()) > 10


def test_ranges_of_reciprocals() -> None:
    """Of a sum that is next to nothing once, its reciprocal is not what all others have their steps by; a sum with more
    than a guard has none of that size.
    """
    counts = np.zeros(2 * BINS)
    counts[BINS + BINS // 2:] = counts[BINS] = 1
    found = {"sum": Distribution(counts, 1e-6, 4.0), "inverse": Distribution(counts, 0.25, 1e6)}

    def ranges(guard: float) -> dict[str, tuple[float, float]]:
        nodes = [onnx.helper.make_node("Add", ["x", "guard"], ["sum"]),
                 onnx.helper.make_node("Reciprocal", ["sum"], ["inverse"])]
        constant = onnx.numpy_helper.from_array(np.float32(guard), "guard")
        return bound_reciprocals(onnx.helper.make_model(onnx.helper.make_graph(nodes, "sums", [], [], [constant])),
                                 found)

    assert ranges(1e-9) == {"inverse": (0.0, 0.5)}
    assert not ranges(0.5)
