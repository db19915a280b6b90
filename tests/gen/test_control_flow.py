"""If, Loop and Scan: the processor has them, and what is around them is the accelerator's."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import GraphProto, TensorProto, helper

from gen.cli import main
from gen.ir.errors import GraphError
from gen.onnx.passes import disclose, enclose
from gen.onnx.passes.enclose import ENCLOSED
from gen.partition.limits import require_bounded
from gen.run.application import open_application
from tests.errors import raises
from tests.gen.float_models import FloatBuilder
from tests.gen.qdq import Builder
from tests.gen.test_never_refused import compiled, host
from tests.gen.test_partition import CONFIG, check, convolved, cut

Rng = np.random.Generator


def _branch(op: str, *sources: str) -> GraphProto:
    """One node of values that are made outside."""
    return helper.make_graph([helper.make_node(op, sources, [f"{op}/made"], name="inner")], op, [],
                             [helper.make_tensor_value_info(f"{op}/made", TensorProto.FLOAT, None)])


def test_branches(rng: Rng, tmp_path: Path) -> None:
    """They read what the layer in front of them makes, which is no input of the node; a layer follows."""
    builder = Builder(rng)
    real = builder.requantize(builder.input(1, 4, 6, 6, number=np.float32), zero_point=0)
    real = builder.requantize(convolved(builder, real), zero_point=0)
    flag = builder.node("Greater", builder.node("ReduceMax", real, keepdims=0), builder.constant(np.float32(4)))
    chosen = builder.node("If", flag, then_branch=_branch("Abs", real), else_branch=_branch("Neg", real))
    builder.output(builder.requantize(convolved(builder, builder.requantize(chosen, zero_point=0)), zero_point=0),
                   np.float32)
    found = cut(check(builder, tmp_path))
    assert [segment.place for segment in found.segments] == ["accelerator", "host", "accelerator"]
    assert {node.op for node in found.model.nodes if node.name in found.host} == {"ReduceMax", "Greater", "If"}
    assert not any(segment.model.functions for segment in found.segments)


@pytest.mark.parametrize("opset", [11, 17])
def test_float_branches(opset: int, rng: Rng, tmp_path: Path) -> None:
    """In a model that is quantised, also of an opset that is converted first."""
    b = FloatBuilder(rng, ["n", 3, 8, 8], opset=opset)
    y = b.node("Relu", b.same_conv("x", 3, 4))
    flag = b.node("Greater", b.node("ReduceMax", y, keepdims=0), b.constant(np.float32(1)))
    chosen = b.node("If", flag, then_branch=_branch("Sqrt", y), else_branch=_branch("Exp", y))
    found = compiled(b.model(b.same_conv(chosen, 4, 4), rank=4), tmp_path)
    assert sum(segment.place == "accelerator" for segment in cut(found).segments) == 2
    assert {"If"} <= {node.op for node in cut(found).model.nodes if node.name in host(found)}


def _loop(b: FloatBuilder, count: str, state: str, name: str = "loop") -> str:
    """A state to which a constant of the model is added at each step."""
    step = b.constant(np.full((1, 4, 8, 8), 0.25))
    scalars = [helper.make_tensor_value_info(name, kind, []) for name, kind in (
        ("number", TensorProto.INT64), ("go", TensorProto.BOOL))]
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["before", step], ["after"])], "body",
        [*scalars, helper.make_tensor_value_info("before", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, []),
         helper.make_tensor_value_info("after", TensorProto.FLOAT, None)])
    return b.node("Loop", count, b.constant(np.array(True)), state, name=name, body=body)


def test_a_loop_that_ends(rng: Rng, tmp_path: Path) -> None:
    b = FloatBuilder(rng, ["n", 3, 8, 8])
    y = _loop(b, b.constant(np.array(3)), b.same_conv("x", 3, 4))
    found = compiled(b.model(y, rank=4), tmp_path)
    assert host(found).keys() == {"loop"}


@pytest.mark.parametrize(("count", "code"), [
    pytest.param(1 << 17, "model-too-large", marks=pytest.mark.slow), (None, "control-flow")])
def test_a_loop_that_may_not_end(count: int | None, code: str, rng: Rng, tmp_path: Path) -> None:
    b = FloatBuilder(rng, [1, 3, 8, 8])
    y = b.same_conv("x", 3, 4)
    many = b.constant(np.array(count)) if count else b.node("Cast", b.node("ReduceMax", y, keepdims=0),
                                                            to=TensorProto.INT64)
    with raises(GraphError, code):
        compiled(b.model(_loop(b, many, y), rank=4), tmp_path)


def test_a_loop_without_a_number(rng: Rng) -> None:
    b = FloatBuilder(rng, [1, 4, 8, 8])
    with raises(GraphError, "control-flow"):
        require_bounded(b.model(_loop(b, b.constant(np.zeros(0, np.int64)), "x"), rank=4))


def test_a_loop_that_hides_a_constant(rng: Rng) -> None:
    """What a body takes may have the name of a constant outside, and then is none."""
    b = FloatBuilder(rng, [1, 4, 8, 8])
    y = _loop(b, b.constant(np.array(3)), _loop(b, b.constant(np.array(2)), "x", "inner"))
    model = b.model(y, rank=4)
    inner, outer = (node for node in model.graph.node if node.op_type == "Loop")
    require_bounded(model)
    number, moved = outer.input[0], onnx.NodeProto()
    moved.CopyFrom(inner)
    model.graph.node.remove(inner)
    body = outer.attribute[0].g
    body.input[0].name, moved.input[0], moved.input[2] = number, number, "before"
    moved.output[0] = "later"
    body.node.append(moved)
    with raises(GraphError, "control-flow"):
        require_bounded(model)


def test_what_branches_read() -> None:
    """Each value once, also in branches within branches, but for what is made in them; and back again."""
    inner = helper.make_graph(
        [helper.make_node("Add", ["a", "made"], ["b"]), helper.make_node("Mul", ["b", "c"], ["d"])], "inner", [],
        [helper.make_tensor_value_info("d", TensorProto.FLOAT, None)])
    outer = helper.make_graph(
        [helper.make_node("Neg", ["a"], ["made"]), helper.make_node("If", ["flag"], ["e"], then_branch=inner,
                                                                    else_branch=inner)],
        "outer", [], [helper.make_tensor_value_info("e", TensorProto.FLOAT, None)])
    same = _branch("Identity", "c")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "acy"]
    flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])
    node = helper.make_node("If", ["flag"], ["y"], name="if", then_branch=outer, else_branch=same)
    model = helper.make_model(helper.make_graph([node], "g", [*ends[:2], flag], ends[2:]),
                              opset_imports=[helper.make_opsetid("", 17)])
    before = model.SerializeToString(deterministic=True)
    made = enclose(model)
    onnx.checker.check_model(made, full_check=True)
    assert list(made.graph.node[0].input) == ["flag", "c", "a"] and made.graph.node[0].name == "if"
    made.graph.node[0].input[2] = made.graph.input[0].name = "other"
    back = disclose(made)
    onnx.checker.check_model(back, full_check=True)
    assert back.graph.node[0].attribute[1].g.node[0].input[0] == "other"
    back = disclose(enclose(onnx.load_model_from_string(before)))
    back.ir_version = onnx.load_model_from_string(before).ir_version
    assert back.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("inner", [[], ["Abs"], ["Abs", "Neg"]])
def test_functions_of_a_file_in_that_domain(inner: list[str]) -> None:
    """They are functions like any."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy"]
    nodes = [helper.make_node(op, [f"v{place}"], [f"v{place + 1}"]) for place, op in enumerate(inner)]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ENCLOSED, 1)]
    function = helper.make_function(ENCLOSED, "If_0", ["v0"], [f"v{len(inner)}"], nodes, opsets[:1])
    call = helper.make_node("If_0", ["x"], ["y"], domain=ENCLOSED)
    model = helper.make_model(helper.make_graph([call], "g", ends[:1], ends[1:]), functions=[function],
                              opset_imports=opsets)
    before = model.SerializeToString(deterministic=True)
    assert disclose(model).SerializeToString(deterministic=True) == before


def test_what_is_written_has_it_as_it_was(rng: Rng, tmp_path: Path) -> None:
    """What `quantize` and `prune` write is plain ONNX; reading it encloses it again."""
    b = FloatBuilder(rng, ["n", 3, 8, 8])
    y = b.node("Relu", b.same_conv("x", 3, 4))
    flag = b.node("Greater", b.node("ReduceMax", y, keepdims=0), b.constant(np.float32(1)))
    chosen = b.node("If", flag, then_branch=_branch("Mul", y, b.constant(np.float32(2))), else_branch=_branch("Exp", y))
    model = b.model(b.same_conv(chosen, 4, 4), rank=4)
    onnx.save(model, tmp_path / "m.onnx")
    x = rng.normal(size=(4, 3, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    assert main(["quantize", str(tmp_path / "m.onnx"), "--calibrate", str(tmp_path / "x.npz"), "-o",
                 str(tmp_path / "q.onnx")]) == 0
    found = onnx.load(tmp_path / "q.onnx")
    assert not found.functions and "If" in {node.op_type for node in found.graph.node}
    open_application(tmp_path / "q.onnx", CONFIG)
    assert main(["prune", str(tmp_path / "m.onnx"), "--density", "0.5", "-o", str(tmp_path / "p.onnx")]) == 0
    assert not onnx.load(tmp_path / "p.onnx").functions
