"""Recurrent layers, step by step: the same numbers as onnxruntime's, and whole on the accelerator once quantised."""

from collections.abc import Collection
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from gen.onnx.fused import QUANTISED_SPREADS
from gen.onnx.fused.recurrent import MOST_STEPS
from gen.onnx.passes.spread_fused import spread_fused
from gen.partition.work import multiplications
from gen.quantize.prepare import prepare
from tests.gen.float_models import FloatBuilder
from tests.gen.test_never_refused import beside, compiled, host

Rng = np.random.Generator
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_BATCH, _CHANNELS = 2, 7


def _layer(rng: Rng, op: str, *, steps: int = 3, hidden: int = 5, direction: str = "forward", layout: int = 0,
           states: bool = False, made: bool = False, opset: int = 17,
           results: Collection[str] = ("all", "last", "cell"), extra: dict[int, np.ndarray] | None = None,
           **attributes: object) -> onnx.ModelProto:
    """A model of one layer. ``made``: its weights are results of nodes. ``extra``: further inputs by their places."""
    directions = 2 if direction == "bidirectional" else 1
    rows = _GATES[op] * hidden
    constants = [numpy_helper.from_array(rng.normal(0, 0.4, shape).astype(np.float32), name) for name, shape in (
        ("W", (directions, rows, _CHANNELS)), ("R", (directions, rows, hidden)), ("B", (directions, 2 * rows)))]
    names, nodes = ["x", "W", "R", "B", "", "", "", ""], []
    if made:
        nodes = [helper.make_node("Identity", [name], [f"{name}/made"]) for name in names[1:4]]
        names[1:4] = [f"{name}/made" for name in names[1:4]]
    shape = [_BATCH, steps, _CHANNELS] if layout else [steps, _BATCH, _CHANNELS]
    inputs, state = {"x": shape}, [_BATCH, directions, hidden] if layout else [directions, _BATCH, hidden]
    for number in range((2 if op == "LSTM" else 1) if states else 0):
        names[5 + number] = f"state{number}"
        inputs[f"state{number}"] = state
    for place, array in (extra or {}).items():
        names[place] = f"extra{place}"
        constants.append(numpy_helper.from_array(array, names[place]))
    while not names[-1]:
        del names[-1]
    outputs = {"all": [_BATCH, steps, directions, hidden] if layout else [steps, directions, _BATCH, hidden],
               "last": state} | ({"cell": state} if op == "LSTM" else {})
    nodes.append(helper.make_node(op, names, [name if name in results else "" for name in outputs], name="layer",
                                  hidden_size=hidden, direction=direction, layout=layout, **attributes))
    value = helper.make_tensor_value_info
    if opset < 14:
        nodes[-1].attribute.remove(next(attribute for attribute in nodes[-1].attribute if attribute.name == "layout"))
    graph = helper.make_graph(nodes, "layer", [value(name, TensorProto.FLOAT, dims) for name, dims in inputs.items()],
                              [value(name, TensorProto.FLOAT, dims) for name, dims in outputs.items()
                               if name in results], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _apart(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return spread_fused(copy, QUANTISED_SPREADS)


def _numbers(rng: Rng, model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {value.name: rng.normal(size=[dim.dim_value for dim in value.type.tensor_type.shape.dim]).astype(np.float32)
            for value in model.graph.input}


def _compare(expected: list[np.ndarray], model: onnx.ModelProto, feed: dict[str, np.ndarray]) -> None:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for array, other in zip(session.run(None, feed), expected, strict=True):
        np.testing.assert_allclose(array, other, atol=1e-5)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", _GATES)
def test_same_numbers(op: str, direction: str, rng: Rng) -> None:
    """As onnxruntime's; with and without states, of one step and of several, with gates of one product and apart."""
    for hidden, steps, states, linear in ((5, 3, False, 0), (64, 2, True, 0), (5, 1, True, 0), (64, 1, False, 0),
                                          (5, 2, True, 1), (64, 2, False, 1)):
        attributes = {"linear_before_reset": linear} if op == "GRU" else {}
        model = _layer(rng, op, hidden=hidden, steps=steps, states=states, direction=direction, **attributes)
        apart = _apart(model)
        assert all(node.op_type != op for node in apart.graph.node)
        feed = _numbers(rng, model)
        session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        _compare(session.run(None, feed), apart, feed)


@pytest.mark.parametrize("op", _GATES)
def test_weights_that_nodes_make(op: str, rng: Rng) -> None:
    model = _layer(rng, op, states=True, made=True)
    feed = _numbers(rng, model)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    _compare(session.run(None, feed), _apart(model), feed)


@pytest.mark.parametrize("op", _GATES)
def test_samples_first(op: str, rng: Rng) -> None:
    """Layout 1, which onnxruntime does not have: as the same layer with steps first."""
    model = _layer(rng, op, layout=1, direction="bidirectional", results=("all", "last"))
    feed = _numbers(rng, model)
    turned = _layer_of_steps(model)
    session = ort.InferenceSession(turned.SerializeToString(), providers=["CPUExecutionProvider"])
    every, last = session.run(None, {"x": feed["x"].transpose(1, 0, 2)})
    _compare([every.transpose(2, 0, 1, 3), last.transpose(1, 0, 2)], _apart(model), feed)


def _layer_of_steps(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same layer with steps first."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    (node,) = copy.graph.node
    next(attribute for attribute in node.attribute if attribute.name == "layout").i = 0
    dims = copy.graph.input[0].type.tensor_type.shape.dim
    dims[0].dim_value, dims[1].dim_value = dims[1].dim_value, dims[0].dim_value
    for value in copy.graph.output:
        value.type.ClearField("tensor_type")
        value.type.tensor_type.elem_type = TensorProto.FLOAT
    return copy


def test_multiplications_of_one_that_stays(rng: Rng) -> None:
    """Beside those of the same layer taken apart, which has no product of its first states."""
    model = _layer(rng, "GRU", direction="bidirectional")
    states = 2 * 15 * 5
    assert multiplications(model) == 3 * (2 * 15 * _CHANNELS + states)
    assert multiplications(_apart(model)) == _BATCH * (3 * 2 * 15 * _CHANNELS + 2 * states)


def test_what_stays_whole(rng: Rng) -> None:
    short = {4: np.array([3, 2], np.int32)}
    for model in (_layer(rng, "LSTM", clip=1.0), _layer(rng, "LSTM", input_forget=1),
                  _layer(rng, "LSTM", extra={7: np.ones((1, 15), np.float32)}), _layer(rng, "GRU", extra=short),
                  _layer(rng, "RNN", activations=["Softsign"]), _layer(rng, "RNN", steps=MOST_STEPS + 1)):
        assert [node.name for node in _apart(model).graph.node] == ["layer"]
    every = {4: np.array([3, 3], np.int32)}
    assert len(_apart(_layer(rng, "GRU", extra=every)).graph.node) > 1


@pytest.mark.slow
@pytest.mark.parametrize("op", [pytest.param("LSTM", marks=pytest.mark.full), "GRU"])
def test_layers_of_several_steps(op: str, rng: Rng, tmp_path: Path) -> None:
    """Two, as PyTorch writes them, with zeros of a shape that is computed, and scores of the last step."""
    b = FloatBuilder(rng, ["n", 3, 12])
    batch = b.node("Gather", b.node("Shape", "x"), b.constant(np.array([0])))
    zeros = b.node("ConstantOfShape", b.node("Concat", b.constant(np.array([1])), batch, b.constant(np.array([16])),
                                             axis=0))
    y = b.node("Transpose", "x", perm=[1, 0, 2])
    for channels in (12, 16):
        rows = _GATES[op] * 16
        more = [zeros] * (2 if op == "LSTM" else 1)
        made = helper.make_node(op, [y, b.weights(1, rows, channels), b.weights(1, rows, 16), b.weights(1, 2 * rows),
                                     "", *more], [f"all{channels}"], name=f"layer{channels}", hidden_size=16)
        b.nodes.append(made)
        y = b.node("Squeeze", f"all{channels}", b.constant(np.array([1])))
    last = b.node("Gather", b.node("Transpose", y, perm=[1, 0, 2]), b.constant(np.array(-1)), axis=1)
    found = compiled(b.model(b.node("Gemm", last, b.weights(16, 4))), tmp_path)
    assert not host(found)


@pytest.mark.slow
def test_both_directions(rng: Rng, tmp_path: Path) -> None:
    """Side by side as channels of each step, as readers of text have them: what reads them is on the accelerator."""
    b = FloatBuilder(rng, [1, 3, 12])
    y, rows = b.node("Transpose", "x", perm=[1, 0, 2]), _GATES["GRU"] * 6
    b.nodes.append(helper.make_node(
        "GRU", [y, b.weights(2, rows, 12), b.weights(2, rows, 6), b.weights(2, 2 * rows)], ["all"], name="both",
        hidden_size=6, direction="bidirectional"))
    y = b.node("Reshape", b.node("Transpose", "all", perm=[0, 2, 1, 3]), b.constant(np.array([0, 0, -1])))
    y = b.node("MatMul", b.node("Transpose", y, perm=[1, 0, 2]), b.weights(12, 5))
    assert not host(compiled(b.model(y, rank=3), tmp_path))


@pytest.mark.slow
def test_states_of_a_step(rng: Rng, tmp_path: Path) -> None:
    """An LSTM of one step whose states are inputs and outputs, as in a detector of speech: what follows its products
    stays float, as nothing after it has weights.
    """
    model = _layer(rng, "LSTM", steps=1, hidden=16, states=True, results=("last", "cell"))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[1].dim_value = 1
    found = compiled(model, tmp_path)
    assert sum(layer.macs for workload in found.workloads for layer in workload.program.layers) >= 64 * (_CHANNELS + 16)
    assert not any("product" in name for name in host(found))


@pytest.mark.parametrize("opset", [9, 17])
def test_one_that_is_kept(opset: int, rng: Rng) -> None:
    """`--keep-float` leaves it whole; of older opsets, too, which are converted first."""
    model = _layer(rng, "GRU", opset=opset)
    assert [node.op_type for node in spread_fused(model, QUANTISED_SPREADS, {"layer"}).graph.node] == ["GRU"]
    assert "GRU" in {node.op_type for node in prepare(model, {"layer"}).graph.node}
    assert "GRU" not in {node.op_type for node in prepare(model).graph.node}


def test_a_state_beside_shapes_that_are_computed(rng: Rng, tmp_path: Path) -> None:
    """(2, 1, 16) is no batch of two, though padding of a computed size hides the other shapes."""
    b = FloatBuilder(rng, [1, 4, 12])
    turned = b.node("Transpose", b.constant(np.array([[0, 0], [0, 0], [1, 1]])), perm=[1, 0])
    half = b.node("Reshape", turned, b.constant(np.array([-1])))
    y = b.node("Relu", b.node("Conv", b.node("Pad", "x", half), b.weights(8, 4, 3)))
    last = b.node("Reshape", b.node("Conv", y, b.weights(16, 8, 12)), b.constant(np.array([1, 16])))
    state = b.node("Gather", "y", b.constant(np.array(0)), axis=0)
    result = b.node("Add", last, state)
    found = compiled(beside(b, result, TensorProto.FLOAT, [2, 1, 16]), tmp_path)
    assert found.inputs["y"].shape == (1, 2, 1, 16)


def test_states_that_the_last_axis_cuts(rng: Rng, tmp_path: Path) -> None:
    """Hidden and cell state of a layer in one input, (1, layers, hidden, 2): both are channels where they are read."""
    b = FloatBuilder(rng, ["n", 12])
    hidden, cell = (b.node("Reshape", b.node("Gather", b.node("Gather", "y", b.constant(place), axis=3),
                                             b.constant(np.int64(1)), axis=1), b.constant([1, 16]))
                    for place in (np.int64(0), np.int64(1)))
    y = b.node("Add", b.node("MatMul", "x", b.weights(12, 16)), b.node("MatMul", hidden, b.weights(16, 16)))
    y = b.node("Add", b.node("Mul", b.node("Sigmoid", y), cell), b.node("Tanh", y))
    model = beside(b, b.node("MatMul", y, b.weights(16, 8)), TensorProto.FLOAT, ["n", 2, 16, 2])
    assert not host(compiled(model, tmp_path))
