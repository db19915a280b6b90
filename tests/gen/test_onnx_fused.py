"""Operators that stand for several: the same numbers as onnxruntime's, whole on the accelerator; what is refused."""

from collections.abc import Callable
from math import sqrt
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from gen.ir.errors import GraphError
from gen.onnx.importer import load_model
from gen.onnx.read import read
from tests.coverage.measure import measure

Rng = np.random.Generator
_TOKENS, _HEADS, _SIZE = 19, 2, 20
_WIDTH = _HEADS * _SIZE


class Blocks:
    """Collects the nodes of a model of tokens ``x`` (1, 19, 40)."""

    def __init__(self, rng: Rng, opset: int = 17) -> None:
        self.rng, self.opset = rng, opset
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def array(self, values: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(values if values.dtype == bool else values.astype(np.float32),
                                                      name))
        return name

    def random(self, *shape: int) -> str:
        return self.array(self.rng.normal(0, 1 / sqrt(shape[0]), shape))

    def node(self, op: str, *inputs: str, domain: str = "", outputs: int = 1, **attributes: object) -> str:
        name = f"{op}{len(self.nodes)}"
        outs = [name, *(f"{name}/{n}" for n in range(1, outputs))]
        self.nodes.append(helper.make_node(op, list(inputs), outs, name=name, domain=domain, **attributes))
        return name

    def microsoft(self, op: str, *inputs: str, **attributes: object) -> str:
        return self.node(op, *inputs, domain="com.microsoft", **attributes)

    def linear(self, x: str, before: int = _WIDTH, after: int = _WIDTH) -> str:
        return self.node("Add", self.node("MatMul", x, self.random(before, after)), self.random(after))

    def three(self) -> list[str]:
        return [self.linear("x") for _ in range(3)]

    def model(self, output: str, batch: int | str = 1) -> onnx.ModelProto:
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes, "blocks", [value("x", TensorProto.FLOAT, [batch, _TOKENS, _WIDTH])],
            [value(output, TensorProto.FLOAT, [None] * 3)], self.constants)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def of_onnx(b: Blocks) -> str:
    return b.node("Attention", *b.three(), q_num_heads=_HEADS, kv_num_heads=_HEADS)


def causal(b: Blocks) -> str:
    return b.node("Attention", *b.three(), q_num_heads=_HEADS, kv_num_heads=_HEADS, is_causal=1, scale=0.3)


def masked(b: Blocks) -> str:
    seen = np.ones((_TOKENS, _TOKENS), bool)
    seen[:, 5:7] = False
    return b.node("Attention", *b.three(), b.array(seen), q_num_heads=_HEADS, kv_num_heads=_HEADS)


def grouped(b: Blocks) -> str:
    """Two heads of queries for one of keys."""
    query, key, value = b.three()[0], *(b.linear("x", after=_SIZE) for _ in range(2))
    return b.node("Attention", query, key, value, q_num_heads=_HEADS, kv_num_heads=1, softcap=1.5)


def masked_later(b: Blocks) -> str:
    """Numbers that are added, of which some hide, and of later tokens."""
    numbers = b.rng.normal(size=(_TOKENS, _TOKENS))
    numbers[2:, 1] = -np.inf
    return b.node("Attention", *b.three(), b.array(numbers), q_num_heads=_HEADS, kv_num_heads=_HEADS, is_causal=1)


def in_heads(b: Blocks) -> str:
    shape = b.constants
    shape.append(numpy_helper.from_array(np.array([0, 0, _HEADS, _SIZE]), "split"))
    shape.append(numpy_helper.from_array(np.array([0, 0, _WIDTH]), "join"))
    heads = [b.node("Transpose", b.node("Reshape", x, "split"), perm=[0, 2, 1, 3]) for x in b.three()]
    return b.node("Reshape", b.node("Transpose", b.node("Attention", *heads), perm=[0, 2, 1, 3]), "join")


def past(b: Blocks) -> list[str]:
    """Keys and values of earlier tokens."""
    b.constants.append(numpy_helper.from_array(np.array([0, 0, _HEADS, _SIZE]), "split"))
    return [b.node("Transpose", b.node("Reshape", b.linear("x"), "split"), perm=[0, 2, 1, 3]) for _ in range(2)]


def after_past(b: Blocks) -> str:
    """Keys and values of earlier tokens in front, and a mask for all of them."""
    seen = np.ones((_TOKENS, 2 * _TOKENS), bool)
    seen[:, 3:6] = False
    return b.node("Attention", *b.three(), b.array(seen), *past(b), outputs=3, q_num_heads=_HEADS,
                  kv_num_heads=_HEADS)


def causal_after_past(b: Blocks) -> str:
    """A token sees all earlier ones, itself, and none later."""
    return b.node("Attention", *b.three(), "", *past(b), outputs=3, q_num_heads=_HEADS, kv_num_heads=_HEADS,
                  is_causal=1)


def several_after_past(b: Blocks) -> str:
    return b.microsoft("MultiHeadAttention", *b.three(), "", "", "", *past(b), outputs=3, num_heads=_HEADS)


def one_way_after_past(b: Blocks) -> str:
    return b.microsoft("MultiHeadAttention", *b.three(), "", "", "", *past(b), outputs=3, num_heads=_HEADS,
                       unidirectional=1)


def of_microsoft(b: Blocks) -> str:
    return b.microsoft("Attention", "x", b.random(_WIDTH, 3 * _WIDTH), b.random(3 * _WIDTH), num_heads=_HEADS)


def one_way(b: Blocks) -> str:
    return b.microsoft("Attention", "x", b.random(_WIDTH, 3 * _WIDTH), b.random(3 * _WIDTH), num_heads=_HEADS,
                       unidirectional=1, mask_filter_value=-500.0)


def several_heads(b: Blocks) -> str:
    return b.microsoft("MultiHeadAttention", *b.three(), num_heads=_HEADS)


def with_biases(b: Blocks) -> str:
    return b.microsoft("MultiHeadAttention", *b.three(), b.random(3 * _WIDTH), "", b.random(1, 1, _TOKENS, _TOKENS),
                       num_heads=_HEADS)


def integers(b: Blocks, numbers: np.ndarray) -> str:
    name = f"c{len(b.constants)}"
    b.constants.append(numpy_helper.from_array(numbers, name))
    return name


def angles(b: Blocks, positions: int) -> list[str]:
    """Cosines and sines."""
    turns = np.outer(np.arange(positions), 50.0 ** -np.linspace(0, 1, _SIZE // 2))
    return [b.array(np.cos(turns)), b.array(np.sin(turns))]


def turned(b: Blocks) -> str:
    query, key, value = b.three()
    positions = integers(b, np.arange(2, 2 + _TOKENS)[None])
    found = [b.node("RotaryEmbedding", x, *angles(b, 2 * _TOKENS), positions, num_heads=_HEADS) for x in (query, key)]
    return b.node("Attention", *found, value, q_num_heads=_HEADS, kv_num_heads=_HEADS)


def turned_in_pairs(b: Blocks) -> str:
    query, key, value = b.three()
    first = integers(b, np.array([3]))
    found = [b.microsoft("RotaryEmbedding", x, first, *angles(b, 2 * _TOKENS), num_heads=_HEADS, interleaved=1)
             for x in (query, key)]
    return b.microsoft("MultiHeadAttention", *found, value, num_heads=_HEADS)


def skipped(b: Blocks) -> str:
    """The sum is a result, too, as a block hands it to the next."""
    y = b.microsoft("SkipLayerNormalization", "x", b.linear("x"), b.array(b.rng.uniform(0.5, 2, _WIDTH)),
                    b.random(_WIDTH), b.random(_WIDTH), outputs=4, epsilon=1e-5)
    b.nodes[-1].output[1:3] = ["", ""]
    return b.node("Add", b.microsoft("BiasGelu", b.linear(y), b.random(_WIDTH)), f"{y}/3")


def simplified(b: Blocks) -> str:
    """As onnxruntime's optimiser writes it: in ONNX's own domain, which does not have it."""
    gamma = b.array(b.rng.uniform(0.5, 2, _WIDTH))
    y = b.node("SimplifiedLayerNormalization", b.linear("x"), gamma, epsilon=1e-5)
    y = b.microsoft("SkipSimplifiedLayerNormalization", y, b.linear(y), gamma)
    return b.linear(b.microsoft("FastGelu", y, b.random(_WIDTH)))


def early(b: Blocks) -> str:
    """onnxruntime's LayerNormalization is older than ONNX's."""
    y = b.node("LayerNormalization", "x", b.array(b.rng.uniform(0.5, 2, _WIDTH)), b.random(_WIDTH))
    return b.linear(b.microsoft("FastGelu", y))


#: Form -> opset.
FORMS: dict[Callable[[Blocks], str], int] = {
    of_onnx: 23, causal: 24, masked: 23, grouped: 24, masked_later: 24, in_heads: 24, after_past: 24,
    causal_after_past: 23, several_after_past: 17, one_way_after_past: 17, of_microsoft: 17, one_way: 17,
    several_heads: 17, with_biases: 17, turned: 23, turned_in_pairs: 17, skipped: 17, simplified: 17, early: 14}
forms = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)


def run(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


@pytest.mark.parametrize("batch", [1, "N"])
@forms
def test_the_same_numbers(form: Callable[[Blocks], str], batch: int | str, rng: Rng, tmp_path: Path) -> None:
    b = Blocks(rng, FORMS[form])
    path = tmp_path / "m.onnx"
    onnx.save(b.model(form(b), batch), path)
    x = rng.normal(size=(1, _TOKENS, _WIDTH)).astype(np.float32)
    ours = read(path).proto
    assert not {node.op_type for node in ours.graph.node} & {
        "Attention", "MultiHeadAttention", "RotaryEmbedding", "SkipLayerNormalization",
        "SkipSimplifiedLayerNormalization", "BiasGelu"}
    theirs = run(onnx.load(path), x)
    assert np.abs(run(ours, x) - theirs).max() < 1e-4 * np.abs(theirs).max()


@pytest.mark.parametrize(("attributes", "low", "high"), [
    ({"left_window_size": 3}, -3, _TOKENS), ({"left_window_size": 2, "right_window_size": 1}, -2, 1),
    ({"left_window_size": 4, "right_window_size": 2, "is_causal": 1}, -4, 0)], ids=("left", "both", "causal"))
@pytest.mark.parametrize("before", [0, _TOKENS])
def test_windows(before: int, attributes: dict[str, int], low: int, high: int, rng: Rng, tmp_path: Path) -> None:
    """The same as a mask that says which tokens each sees; onnxruntime has no windows."""
    x = rng.normal(size=(1, _TOKENS, _WIDTH)).astype(np.float32)
    after = np.arange(_TOKENS + before) - np.arange(_TOKENS)[:, None] - before
    state, outputs = rng.bit_generator.state, []
    for mask, given in ((None, attributes), ((low <= after) & (after <= high), {})):
        rng.bit_generator.state = state
        b = Blocks(rng, 24 if mask is not None else 25)
        inputs = [*b.three(), "" if mask is None else b.array(mask), *(past(b) if before else [])]
        onnx.save(b.model(b.node("Attention", *inputs, q_num_heads=_HEADS, kv_num_heads=_HEADS, **given)),
                  tmp_path / "m.onnx")
        outputs.append(run(read(tmp_path / "m.onnx").proto, x))
    assert np.array_equal(*outputs)


@pytest.mark.parametrize("mask", [np.tri(_TOKENS, k=-1, dtype=bool), np.where(np.tri(_TOKENS, k=-1), 0, -np.inf)],
                         ids=("bool", "numbers"))
def test_a_token_without_keys(mask: np.ndarray, rng: Rng, tmp_path: Path) -> None:
    """The first: its result is 0, which no Softmax gives."""
    b = Blocks(rng, 23)
    onnx.save(b.model(b.node("Attention", *b.three(), b.array(mask), q_num_heads=_HEADS, kv_num_heads=_HEADS)),
              tmp_path / "m.onnx")
    assert "Attention" in {node.op_type for node in read(tmp_path / "m.onnx").proto.graph.node}


@pytest.mark.parametrize(("positions", "why"), [
    (np.arange(_TOKENS)[None] + 1, "its angles are not of"), (np.arange(_TOKENS)[None] - 1, "its angles are not of"),
    (np.stack([np.arange(_TOKENS), np.arange(_TOKENS)[::-1]]), "of their own for samples")],
    ids=("far", "below", "two"))
def test_positions(positions: np.ndarray, why: str, rng: Rng, tmp_path: Path) -> None:
    b = Blocks(rng, 23)
    step = b.array(np.float32(0.1))
    x = b.node("DequantizeLinear", b.node("QuantizeLinear", "x", step), step)
    y = b.node("RotaryEmbedding", x, *angles(b, _TOKENS), integers(b, positions), num_heads=_HEADS)
    onnx.save(b.model(y), tmp_path / "m.onnx")
    with pytest.raises(GraphError, match=f"RotaryEmbedding.*{why}"):
        load_model(tmp_path / "m.onnx")


@pytest.mark.slow
@pytest.mark.parametrize("form", [
    of_onnx, grouped, masked_later, in_heads, after_past, causal_after_past, several_after_past, of_microsoft,
    several_heads, turned, turned_in_pairs, skipped, simplified, early], ids=lambda form: form.__name__)
def test_on_the_accelerator(form: Callable[[Blocks], str], rng: Rng, tmp_path: Path) -> None:
    """From a float model, with a layer after it: nothing is left to the processor, no value differs."""
    b = Blocks(rng, FORMS[form])
    onnx.save(b.model(b.linear(form(b))), tmp_path / "m.onnx")
    options = "--macs", "64", "--features", "turn,rows,table,product", "--method", "minmax"
    found = measure(tmp_path / "m.onnx", options)
    assert not found.refused and not found.reasons
    assert found.compared and not found.different


def test_positions_that_are_given(rng: Rng, tmp_path: Path) -> None:
    """The processor has what turns by them, and what is of no known type after that."""
    b = Blocks(rng)
    query, key, value = b.three()
    query = b.microsoft("RotaryEmbedding", query, "places", *angles(b, _TOKENS), num_heads=_HEADS)
    mixed = b.microsoft("MultiHeadAttention", query, key, value, num_heads=_HEADS)
    model = b.model(b.node("MatMul", mixed, b.random(_WIDTH, 8)))
    model.graph.input.append(helper.make_tensor_value_info("places", TensorProto.INT64, [1, _TOKENS]))
    onnx.save(model, tmp_path / "m.onnx")
    found = measure(tmp_path / "m.onnx", ("--macs", "64", "--features", "turn,rows,table", "--method", "minmax"))
    assert not found.refused and found.compared and not found.different


@pytest.mark.parametrize(("op", "inputs", "attributes", "why"), [
    ("Attention", 5, {}, "has past keys or values alone"),
    ("Attention", 3, {"q_num_heads": 3, "kv_num_heads": 2}, "no whole number of queries"),
    ("MultiHeadAttention", 1, {}, "packed in one"),
    ("MultiHeadAttention", 5, {}, "has a mask of tokens"),
], ids=str)
def test_refused(op: str, inputs: int, attributes: dict, why: str, rng: Rng, tmp_path: Path) -> None:
    b = Blocks(rng, 23)
    names = [*(b.node("DequantizeLinear", b.node("QuantizeLinear", "x", b.array(np.float32(0.1))),
                      b.array(np.float32(0.1))) for _ in range(min(inputs, 3)))]
    names += [""] * (4 - inputs if inputs > 3 else 0)
    names += ["", *["x"] * (inputs - 4)] if inputs > 4 else []
    numbers = {"q_num_heads": _HEADS, "kv_num_heads": _HEADS} if op == "Attention" else {"num_heads": _HEADS}
    domain = "" if op == "Attention" else "com.microsoft"
    onnx.save(b.model(b.node(op, *names, domain=domain, **numbers | attributes)), tmp_path / "m.onnx")
    with pytest.raises(GraphError, match=f"{op}.*{why}"):
        load_model(tmp_path / "m.onnx")
