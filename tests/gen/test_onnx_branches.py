"""Branches: those by shapes are taken when a model is read, those by values stay."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from gen.cli import main
from gen.onnx.passes.take_branches import take_branches
from gen.onnx.read import read
from tests.gen.cli.calls import error_line
from tests.gen.qdq import Builder

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


def test_by_an_input(rng: Rng, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A whole model within a branch, as speech detectors are for each sample rate: a number makes it known."""
    b = Builder(rng)
    y = b.requantize(b.node("Conv", b.requantize("x", 0.02, 0), b.weights(4, 3, 3, 3)), 0.05, 0)
    graph = helper.make_graph(
        [helper.make_node("Equal", ["rate", "known"], ["condition"]), helper.make_node(
            "If", ["condition"], ["y"], name="choice", then_branch=branch(
                "then", *b.nodes, output=y, constants=tuple(b.initializers)), else_branch=branch(
                    "else", helper.make_node("Identity", ["x"], ["same"]), output="same"))],
        "rates", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 8, 8]),
                  helper.make_tensor_value_info("rate", TensorProto.INT64, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(16000), "known")])
    path, argv = tmp_path / "m.onnx", ["compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.npu"), "--json"]
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    argv += ["--macs", "16", "--no-check"]
    assert "make that a constant: --shape INPUT=NUMBER" in error_line(capsys, 1, *argv)
    assert "--shape speed: the inputs of the model are x" in error_line(capsys, 2, *argv, "--shape", "rate=16000",
                                                                        "--shape", "speed=16000")
    assert main([*argv, "--shape", "rate=16000"]) == 0
    assert json.loads(capsys.readouterr().out)["partition"] is None
    assert [value.name for value in read(path, {"rate": [8000]}).inputs] == ["x"]
