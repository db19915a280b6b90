"""Patterns of what makes what, and rules that share what is known of a graph."""

from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx import NodeProto

from gen.onnx import index as index_module
from gen.onnx.index import GraphIndex
from gen.onnx.patterns import Pattern, any_of, constant, first, op, value
from gen.quantize.rewriting import Rewriting, rewritten
from tests.gen.float_models import FloatBuilder

_X, _Y = value("x"), value("y")


@pytest.fixture
def index(rng: np.random.Generator) -> GraphIndex:
    """``sum`` is Relu(image) + Relu(image) * 2, and the product 2 * Relu; ``twice`` reads the product, too."""
    b = FloatBuilder(rng, [1, 2, 3, 3])
    one, other = b.node("Relu", "x", name="one"), b.node("Relu", "x", name="other")
    product = b.node("Mul", b.constant(np.float32(2)), other, name="product")
    total = b.node("Add", one, product, name="sum")
    return GraphIndex(b.model(b.node("Add", total, product, name="twice")))


def _two(array: np.ndarray) -> bool:
    return bool(array == 2)


@pytest.mark.parametrize(("pattern", "matches"), [
    (op("Add", op("Relu", _X), op("Mul", op("Relu", _X), constant(test=_two))), True),
    (op("Add", op("Mul", constant(test=_two), op("Relu", _X)), op("Relu", _X)), True),      # both orders
    (op("Add", op("Relu", _X), op("Mul", op("Relu", _X), constant(test=lambda array: not _two(array)))), False),
    (op("Add", op("Relu", _X, label="one"), op("Mul", op("Relu", _X, label="one"), constant())), False),
    (op("Add", op("Relu", _X), op("Mul", op("Relu", _X), constant(), alone=True)), False),  # read twice
    (op("Add", op("Relu", _X, alone=True), _Y), True),
    (op("Add", _X, _X), False),
    (op("Add", op("Sigmoid", _X), _Y), False),
    (op("Add", any_of(op("Sigmoid", _X), op("Relu", _X)), _Y), True),
    (op("Sub Add", _X), False),                         # of one that commutes all inputs
    (op("Add", _X, _Y, test=lambda index, node: False), False),
])
def test_patterns(index: GraphIndex, pattern: Pattern, matches: bool):
    assert (first(index, pattern, "sum") is not None) is matches


def test_labels(index: GraphIndex):
    found = first(index, op("Add", op("Relu", _X), op("Mul", _Y, constant("two"), label="product")), "sum")
    assert found is not None
    assert {label: found[label] for label in ("x", "y", "product")} == {"x": "x", "y": "other", "product": "product"}
    assert index.number(found["two"]) == 2


class _Idle(Rewriting):
    OPERATORS = frozenset(("Add",))

    def layers(self, node: NodeProto) -> Iterator[NodeProto]:
        assert self._shapes[node.output[0]] == [1, 2, 3, 3]
        return iter(())


class _Sums(Rewriting):
    OPERATORS = frozenset(("Mul",))

    def layers(self, node: NodeProto) -> Iterator[NodeProto]:
        yield self._node(node, "Add", node.input[1], node.input[1], result=node.output[0])


class _Absent(Rewriting):
    OPERATORS = frozenset(("Conv",))

    def __init__(self, index: GraphIndex) -> None:
        raise AssertionError("no node is of its operators")


def test_rules_share_what_is_known(index: GraphIndex, monkeypatch: pytest.MonkeyPatch):
    """Shapes are inferred once for the rules up to one that changes the graph, and once for those after it."""
    inferred, calls = index_module.inferred, []

    def counted(model: onnx.ModelProto, **options: bool) -> onnx.GraphProto:
        calls.append(len(model.graph.node))
        return inferred(model, **options)

    monkeypatch.setattr(index_module, "inferred", counted)
    changed = rewritten(index.model, _Idle, _Absent, _Idle, _Sums, _Idle, _Idle)
    assert len(calls) == 2
    assert [node.op_type for node in changed.graph.node] == ["Relu", "Relu", "Add", "Add", "Add"]
    assert not changed.graph.initializer      # what nothing reads any more is gone
