"""Branches: those by shapes are taken when a model is read, those by values stay."""

import numpy as np
import onnx
import onnxruntime as ort
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from gen.onnx.passes.take_branches import take_branches

Rng = np.random.Generator


def branch(name: str, *nodes: NodeProto, output: str, constants: tuple[TensorProto, ...] = ()) -> GraphProto:
    return helper.make_graph(list(nodes), name, [], [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
                             list(constants))


def squeezed(condition: list[NodeProto], *, last: int = 1) -> onnx.ModelProto:
    """``x`` (1, 3, last), as PyTorch exports a squeeze of the last axis; a branch in a branch in the other one."""
    inner = branch("inner", helper.make_node("Add", ["x", "two"], ["added"]), output="added",
                   constants=(numpy_helper.from_array(np.array(2, np.float32), "two"),))
    same = branch("same", helper.make_node("Identity", ["x"], ["identity"]), output="identity")
    number = numpy_helper.from_array
    nested = helper.make_node("If", ["true"], ["chosen"], then_branch=inner, else_branch=same)
    graph = helper.make_graph(
        [*condition, helper.make_node("If", ["condition"], ["y"], name="choice", then_branch=branch(
            "then", helper.make_node("Squeeze", ["x", "axes"], ["squeezed"]), output="squeezed"), else_branch=branch(
                "else", nested, output="chosen")), helper.make_node("Neg", ["y"], ["z"])],
        "squeeze", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, last])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
        [number(np.array([2]), "axes"), number(np.array(2), "index"), number(np.array(1), "one"),
         number(np.array(True), "true")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def by_shape() -> list[NodeProto]:
    return [helper.make_node("Shape", ["x"], ["shape"]), helper.make_node("Gather", ["shape", "index"], ["size"]),
            helper.make_node("Equal", ["size", "one"], ["condition"])]


def test_by_shapes(rng: Rng) -> None:
    """Either branch, with the branch and the constants in it, and the same numbers."""
    for last, ops in ((1, ["Squeeze"]), (4, ["Add"])):
        model = squeezed(by_shape(), last=last)
        x = {"x": rng.normal(size=(1, 3, last)).astype(np.float32)}
        expected = ReferenceEvaluator(model).run(None, x)     # onnxruntime takes no branch that cannot be
        taken = take_branches(model)
        assert [node.op_type for node in taken.graph.node if node.op_type in ("Squeeze", "Add", "If")] == ops
        np.testing.assert_array_equal(ort.InferenceSession(taken.SerializeToString()).run(None, x)[0], expected[0])


def test_by_values() -> None:
    """The branch that is in the one that may be taken stays with it."""
    condition = [helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
                 helper.make_node("Greater", ["most", "zero"], ["condition"])]
    model = squeezed(condition)
    model.graph.initializer.append(numpy_helper.from_array(np.array(0, np.float32), "zero"))
    assert [node.name for node in take_branches(model).graph.node if node.op_type == "If"] == ["choice"]
