"""Passes over ONNX models: each runs alone, changes no result, and leaves alone what it has nothing to do with."""

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from gen.onnx import passes
from gen.onnx.fold import budget
from gen.onnx.model import Model, Node
from tests.gen.qdq import Builder

Rng = np.random.Generator
Pass = Callable[[onnx.ModelProto], onnx.ModelProto]

#: What is no longer there after a pass that changes models; the others only refuse some.
GONE: dict[Pass, Callable[[onnx.ModelProto], bool]] = {
    passes.inline_functions: lambda m: bool(m.functions),
    passes.name_nodes: lambda m: any(not node.name for node in m.graph.node),
    passes.make_dense: lambda m: bool(m.graph.sparse_initializer),
    passes.drop_unused: lambda m: any(node.op_type == "Sigmoid" for node in m.graph.node),
}


def everything(rng: Rng) -> onnx.ModelProto:
    """A function, a node without a name, a sparse bias, a node without a reader."""
    b = Builder(rng)
    x = b.dequantize(b.input(1, 3, 6, 6))
    y = b.node("rectified", b.node("Conv", x, b.weights(4, 3, 3, 3), "sparse"), domain="mine")
    b.node("Sigmoid", y)
    b.output(b.quantize(y))
    model = b.build()
    model.graph.node[-1].name = ""
    opsets = [helper.make_opsetid("", b.opset), helper.make_opsetid("mine", 1)]
    model.opset_import.append(opsets[1])
    model.functions.append(helper.make_function(
        "mine", "rectified", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], opsets))
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(
        numpy_helper.from_array(np.float32([0.5]), "sparse"), numpy_helper.from_array(np.array([2])), [4]))
    return model


def outputs(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def copied(model: onnx.ModelProto) -> onnx.ModelProto:
    result = onnx.ModelProto()
    result.CopyFrom(model)
    return result


@pytest.mark.parametrize("apply", passes.PASSES, ids=lambda p: p.__name__)
def test_alone(apply: Pass, rng: Rng) -> None:
    model = everything(rng)
    after = apply(copied(model))
    if apply in GONE:
        assert GONE[apply](model) and not GONE[apply](after)
    x = rng.integers(-128, 128, (1, 3, 6, 6)).astype(np.int8)
    assert all(np.array_equal(a, b) for a, b in zip(
        outputs(after, {"x": x}), outputs(model, {"x": x}), strict=True))


@pytest.mark.parametrize("apply", passes.PASSES, ids=lambda p: p.__name__)
def test_nothing_to_do_is_the_same_model(apply: Pass, rng: Rng) -> None:
    plain = passes.run_passes(everything(rng), folder=None)
    before = plain.SerializeToString(deterministic=True)
    assert apply(plain).SerializeToString(deterministic=True) == before


POOL = dict(kernel_shape=[2, 2], strides=[2, 2])


def pooled(b: Builder, x: str) -> str:
    return b.quantize(b.node("MaxPool", b.node("Conv", x, b.weights(4, 3, 3, 3)), **POOL))


def pooled_twice(b: Builder, x: str) -> str:
    """And activation functions after each."""
    y = b.node("MaxPool", b.node("Relu", b.node("Conv", x, b.weights(4, 3, 3, 3))), **POOL)
    y = b.node("Clip", y, b.constant(np.float32(0.3)), b.constant(np.float32(2)))
    return b.quantize(b.node("Reshape", b.node("MaxPool", y, kernel_shape=[2, 2]), b.constant([1, 4, 9, 1])))


def pooled_globally(b: Builder, x: str) -> str:
    return b.quantize(b.node("GlobalMaxPool", b.node("Conv", x, b.weights(4, 3, 3, 3))))


def concatenated(b: Builder, x: str) -> str:
    """One part is quantised already."""
    parts = [b.requantize(b.node("Conv", x, b.weights(2, 3, 3, 3)), 0.03), b.node("Conv", x, b.weights(3, 3, 3, 3))]
    return b.quantize(b.node("Concat", *parts, axis=1))


def scale_behind(b: Builder, x: str) -> str:
    """Parameters from nodes that stand after the pool."""
    y = b.node("MaxPool", b.node("Conv", x, b.weights(4, 3, 3, 3)), **POOL)
    numbers = (np.float32(0.05), b.number(3))
    return b.node("QuantizeLinear", y, *(
        b.node("Constant", value=numpy_helper.from_array(np.asarray(number))) for number in numbers))


def quantised_twice(b: Builder, x: str) -> str:
    """In different ways."""
    y = b.node("MaxPool", b.node("Conv", x, b.weights(4, 3, 3, 3)), **POOL)
    return b.quantize(b.node("Add", b.requantize(y, 0.04), b.requantize(y, 0.06)))


@pytest.mark.parametrize("number", [np.int8, np.uint8])
@pytest.mark.parametrize(("make", "pairs"), [
    (pooled, 1), (pooled_twice, 2), (pooled_globally, 1), (concatenated, 1), (scale_behind, 1), (quantised_twice, 0)])
def test_hoist_quantisation(make: Callable[[Builder, str], str], pairs: int, number: type, rng: Rng) -> None:
    """The results are the same bits, and there is nothing left to hoist."""
    b = Builder(rng, number=number)
    b.output(make(b, b.dequantize(b.input(1, 3, 10, 10))))
    before = b.build()
    after = passes.hoist_quantisation(copied(before))
    onnx.checker.check_model(after)
    assert len(after.graph.node) == len(before.graph.node) + 2 * pairs
    for node in after.graph.node:
        if pairs and node.op_type in ("MaxPool", "GlobalMaxPool", "Concat"):
            makers = {name: maker.op_type for maker in after.graph.node for name in maker.output}
            assert {makers[name] for name in node.input} == {"DequantizeLinear"}
    for _ in range(5):
        x = b.samples(1)
        assert np.array_equal(outputs(after, x)[0], outputs(before, x)[0])
    again = passes.hoist_quantisation(copied(after))
    assert again.SerializeToString(deterministic=True) == after.SerializeToString(deterministic=True)


def _model(nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray]) -> Model:
    proto = helper.make_model(helper.make_graph(nodes, "test", [], []), opset_imports=[helper.make_opsetid("", 13)])
    taken = tuple(Node(n.domain, n.op_type, n.name, tuple(n.input), tuple(n.output), {}, n) for n in nodes)
    return Model("test.onnx", proto, 13, taken, constants, (), ("y",), budget(constants))


def test_fold_constants(rng: Rng) -> None:
    a, b = rng.normal(size=(2, 5)).astype(np.float32)
    model = _model([
        helper.make_node("Add", ["a", "b"], ["sum"], name="sum"),
        helper.make_node("Neg", ["sum"], ["bias"], name="bias"),
        helper.make_node("DequantizeLinear", ["q", "scale"], ["w"], name="w"),
        helper.make_node("Add", ["x", "bias"], ["z"], name="z"),
        helper.make_node("Mul", ["z", "w"], ["y"], name="y"),
    ], {"a": a, "b": b, "q": np.int8([3]), "scale": np.float32(0.5)})
    folded = passes.fold_constants(model)
    assert [node.name for node in folded.nodes] == ["w", "z", "y"]
    assert set(folded.constants) == {"q", "scale", "bias"} and np.array_equal(folded.constants["bias"], -(a + b))
    assert model.budget.results - folded.budget.results == 2 * a.nbytes     # the sum, and its opposite
    assert model.budget.reads - folded.budget.reads == 3 * a.nbytes
    assert passes.fold_constants(folded) is folded
