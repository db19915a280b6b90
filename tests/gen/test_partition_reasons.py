"""Why a node is the processor's: the reason is its own, and what it says would help does."""

from pathlib import Path

import numpy as np
import pytest

from gen.ir.errors import GraphError
from gen.onnx.handlers.refused import REFUSED
from gen.onnx.machine import Machine
from gen.onnx.read import read
from gen.partition.partition import partition
from tests.errors import is_about
from tests.gen.float_models import FloatBuilder
from tests.gen.qdq import Builder
from tests.gen.test_never_refused import compiled, host


@pytest.fixture
def builder(rng: np.random.Generator) -> Builder:
    return Builder(rng, opset=17)       # that of LayerNormalization


def convolved(builder: Builder, value: str) -> str:
    return builder.node("Conv", value, builder.weights(4, 4, 3, 3), pads=[1, 1, 1, 1])


def image(builder: Builder) -> str:
    """(1, 4, 6, 6), quantised, made by a layer."""
    return builder.requantize(convolved(builder, builder.dequantize(builder.input(1, 4, 6, 6))))


@pytest.mark.parametrize(("operator", "gates"), [("LSTM", 4), ("GRU", 3)])
def test_an_operator_that_is_not_on_the_machine(operator: str, gates: int, builder: Builder, tmp_path: Path) -> None:
    """Not that one of its inputs, lengths of sequences, has a type that the machine lacks as well."""
    rows = builder.node("Reshape", image(builder), builder.constant(np.array([4, 6, 6])))
    weights = [builder.constant(np.ones((1, gates * 5, size), np.float32)) for size in (6, 5)]
    lengths = builder.input(6, name="lengths", number=np.int32)
    state = builder.node(operator, rows, *weights, "", lengths, hidden_size=5)
    builder.output(builder.node("Flatten", state), np.float32, rank=2)
    host = partition(read(builder.save(tmp_path))).host
    (reason,) = (why for node, why in host.items() if node.startswith(operator.lower()))
    assert reason == f"{operator} {REFUSED[operator]}"


@pytest.mark.parametrize("quantised", [False, True])
def test_a_neighbour_of_such_an_operator(quantised: bool, builder: Builder, tmp_path: Path) -> None:
    """What is said to help, quantising what the processor makes, does. The machine lacks the row unit."""
    made = builder.node("LayerNormalization", image(builder), builder.constant(np.ones(6, np.float32)))
    after = builder.requantize(made) if quantised else made
    builder.output(builder.requantize(convolved(builder, after)), np.float32)
    host = partition(read(builder.save(tmp_path))).host
    norm, *others = host
    assert host[norm].code == "needs-unit"
    reason = (f"its input is the float result of node {norm}, which runs on the processor; with QuantizeLinear and "
              "DequantizeLinear after that, this node can run on the accelerator; samples for --calibrate do that, too")
    assert [host[other] for other in others] == ([] if quantised else [reason])


def test_a_model_that_lacks_its_first_quantisation(builder: Builder, tmp_path: Path) -> None:
    """The error names the option that adds it, although nothing is left for the accelerator without."""
    y = builder.node("Conv", builder.input(1, 3, 8, 8, number=np.float32), builder.weights(6, 3, 3, 3))
    builder.output(builder.requantize(builder.node("Relu", y)), np.float32)
    with pytest.raises(GraphError, match="samples for --calibrate do that, too"):
        partition(read(builder.save(tmp_path)))


def test_functions_of_functions(builder: Builder, tmp_path: Path) -> None:
    """Without tables: each says that these help, and none that a quantisation does, which would not."""
    y = image(builder)
    y = builder.node("Add", builder.node("Erf", y), builder.constant(np.float32(1)))
    y = builder.requantize(builder.node("Mul", y, builder.constant(np.float32(0.5))))
    builder.output(builder.requantize(convolved(builder, y)), np.float32)
    path = builder.save(tmp_path)
    host = partition(read(path), machine=Machine()).host
    assert len(host) == 3
    for reason in host.values():
        is_about(reason, "needs-unit", unit="table")
        assert "--features table puts on the accelerator" in reason and "QuantizeLinear" not in reason, reason
    assert any(reason.fields.get("maker", "").startswith("erf") for reason in host.values())


def test_what_helps_in_a_float_model(rng: np.random.Generator, tmp_path: Path) -> None:
    """Nobody puts nodes into it: what is in the way is another node, or the end of the model."""
    b = FloatBuilder(rng, ["n", 3, 8, 8])
    length = b.node("Clip", b.node("ReduceL2", b.same_conv("x", 3, 4), axes=[1]), b.constant(np.float32(1e-6)))
    found = host(compiled(b.model(b.node("Add", length, length), rank=4), tmp_path))
    reason = ("its input is the float result of node {}, which runs on the processor; with that node on the "
              "accelerator this one is, too")
    clip, add = (next(name for name in found if name.startswith(op)) for op in ("clip", "add"))
    assert found[clip] == reason.format(next(name for name in found if name.startswith("reducel2")))
    assert "QuantizeLinear" not in found[add]
