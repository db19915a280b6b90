"""Models in other numbers than float32: float16, double, and those that are quantised while they run."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnxruntime.quantization import quantize_dynamic

from gen.cli import main
from gen.onnx.passes import disclose, drop_casts
from gen.quantize.dynamic import of_running, undo_running
from gen.quantize.prepare import prepare, quantised_node
from gen.quantize.single import in_single
from gen.quantize.wide import undo_wide
from tests.gen.float_models import FloatBuilder
from tests.gen.test_never_refused import compiled, host

Rng = np.random.Generator


def _network(rng: Rng) -> onnx.ModelProto:
    b = FloatBuilder(rng, ["n", 3, 12, 12])
    y = b.node("Relu", b.same_conv("x", 3, 8), name="relu")
    y = b.node("Clip", b.same_conv(y, 8, 8), b.constant(np.float32(-1)), b.constant(np.float32(3)))
    return b.model(b.node("Gemm", b.node("Flatten", b.node("GlobalAveragePool", y)), b.weights(8, 4), name="last"))


def _as(model: onnx.ModelProto, kind: int, *, ends: bool) -> onnx.ModelProto:
    """With numbers of another type; ``ends``: inputs and outputs, too, else Casts lie between."""
    number, graph = helper.tensor_dtype_to_np_dtype(kind), model.graph
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(number), tensor.name))
    del graph.value_info[:]
    if ends:
        for value in (*graph.input, *graph.output):
            value.type.tensor_type.elem_type = kind
        return model
    first, last = graph.node[0], graph.node[-1]
    first.input[0], last.output[0] = "inner", "result"
    nodes = [helper.make_node("Cast", ["x"], ["inner"], name="in", to=kind), *graph.node,
             helper.make_node("Cast", ["result"], [graph.output[0].name], name="out", to=TensorProto.FLOAT)]
    del graph.node[:]
    graph.node.extend(nodes)
    return model


@pytest.mark.parametrize("ends", [True, False])
def test_half_precision(ends: bool, rng: Rng, tmp_path: Path) -> None:
    """The processor has what converts inputs and outputs, and nothing else; between them no Cast is left."""
    model = _as(_network(rng), TensorProto.FLOAT16, ends=ends)
    found = compiled(model, tmp_path)
    assert host(found).keys() == ({"x/single", f"{model.graph.output[0].name}/single"} if ends else set())


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.DOUBLE])
def test_outputs_of_other_numbers_are_judged(kind: int, rng: Rng, tmp_path: Path) -> None:
    b = FloatBuilder(rng, ["n", 16])
    y = b.node("Relu", b.node("MatMul", "x", b.weights(16, 24)))
    onnx.save(_as(b.model(b.node("MatMul", y, b.weights(24, 4))), kind, ends=True), tmp_path / "m.onnx")
    number = helper.tensor_dtype_to_np_dtype(kind)
    np.savez(tmp_path / "x.npz", x=rng.normal(size=(8, 16)).astype(number))
    assert main(["quantize", str(tmp_path / "m.onnx"), "--calibrate", str(tmp_path / "x.npz"), "-o",
                 str(tmp_path / "q.onnx")]) == 0


def test_mixed_precision(rng: Rng, tmp_path: Path) -> None:
    """A Relu is kept in float32, between Casts."""
    model = _as(_network(rng), TensorProto.FLOAT16, ends=False)
    place, relu = next((n, node) for n, node in enumerate(model.graph.node) if node.name == "relu")
    model.graph.node.insert(place, helper.make_node("Cast", [relu.input[0]], ["wide"], name="w", to=TensorProto.FLOAT))
    model.graph.node.insert(place + 2, helper.make_node(
        "Cast", ["wide/relu"], ["relu"], name="n", to=TensorProto.FLOAT16))
    model.graph.node[place + 1].input[0], model.graph.node[place + 1].output[0] = "wide", "wide/relu"
    assert not host(compiled(model, tmp_path))


def test_double_precision(rng: Rng, tmp_path: Path) -> None:
    b = FloatBuilder(rng, ["n", 16])
    y = b.node("Relu", b.node("MatMul", "x", b.weights(16, 24)))
    found = compiled(_as(b.model(b.node("MatMul", y, b.weights(24, 4))), TensorProto.DOUBLE, ends=False), tmp_path)
    assert not host(found)


def test_numbers_beyond_float32() -> None:
    """Masks hold the least double; it stays finite. Constants in nodes and in branches change as well."""
    least = numpy_helper.from_array(np.full((1, 2), np.finfo(np.float64).min), "mask")
    branch = helper.make_graph([helper.make_node("Constant", [], ["b"], value=least)], "branch", [],
                               [helper.make_tensor_value_info("b", TensorProto.DOUBLE, [1, 2])])
    nodes = [helper.make_node("If", ["flag"], ["c"], then_branch=branch, else_branch=branch),
             helper.make_node("Add", ["x", "c"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, [1, 2]) for name in "xy"]
    flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])
    model = helper.make_model(helper.make_graph(nodes, "g", [ends[0], flag], [ends[1]]))
    found = disclose(in_single(model))
    onnx.checker.check_model(found, full_check=True)
    inner = next(a.g for node in found.graph.node if node.op_type == "If" for a in node.attribute)
    assert np.isfinite(numpy_helper.to_array(inner.node[0].attribute[0].t)).all()
    assert [node.op_type for node in found.graph.node] == ["Cast", "If", "Add", "Cast"]
    assert in_single(_network(np.random.default_rng(0))).graph.node[0].op_type == "Conv"


def _running(model: onnx.ModelProto, folder: Path, **options: Any) -> onnx.ModelProto:
    onnx.save(model, folder / "float.onnx")
    quantize_dynamic(folder / "float.onnx", folder / "running.onnx", **options)
    return onnx.load(folder / "running.onnx")


@pytest.mark.parametrize("per_channel", [False, True])
def test_quantised_while_it_runs(per_channel: bool, rng: Rng, tmp_path: Path) -> None:
    """Samples give the ranges that such a model takes from each input by itself."""
    b = FloatBuilder(rng, ["n", 3, 12, 12])
    y = b.node("Relu", b.same_conv("x", 3, 8))
    y = b.node("Relu", b.same_conv(y, 8, 8))
    y = b.node("MatMul", b.node("Flatten", b.node("GlobalAveragePool", y)), b.weights(8, 4))
    model = _running(b.model(b.node("Add", y, b.constant(rng.normal(size=4)))), tmp_path, per_channel=per_channel)
    assert {"ConvInteger", "MatMulInteger"} <= {node.op_type for node in model.graph.node}
    assert not host(compiled(model, tmp_path))


def test_products_of_two_activations(rng: Rng, tmp_path: Path) -> None:
    b = FloatBuilder(rng, ["n", 8, 16])
    query, key = (b.node("MatMul", "x", b.weights(16, 16)) for _ in range(2))
    y = b.node("MatMul", query, b.node("Transpose", key, perm=[0, 2, 1]))
    model = _running(b.model(b.node("MatMul", b.node("Softmax", y, axis=-1), query)), tmp_path,
                     extra_options={"MatMulConstBOnly": False})
    assert sum(node.op_type == "MatMulInteger" for node in model.graph.node) == 4
    compiled(model, tmp_path)


def test_recurrent_layers_quantised_while_they_run(rng: Rng, tmp_path: Path) -> None:
    b = FloatBuilder(rng, ["n", 3, 12])
    x = b.node("Transpose", "x", perm=[1, 0, 2])
    b.nodes.append(helper.make_node("LSTM", [x, b.weights(1, 64, 12), b.weights(1, 64, 16), b.weights(1, 128)],
                                    ["all", "last"], name="lstm", hidden_size=16))
    y = b.node("MatMul", b.node("Squeeze", "last", b.constant(np.array([0]))), b.weights(16, 4))
    model = _running(b.model(y), tmp_path)
    assert "DynamicQuantizeLSTM" in {node.op_type for node in model.graph.node}
    assert not {node.op_type for node in prepare(model).graph.node} & {"DynamicQuantizeLSTM", "MatMulInteger"}
    compiled(model, tmp_path)


def test_what_is_read_as_integers_stays(rng: Rng, tmp_path: Path) -> None:
    """Where an output, or another node, has the integers or their scale, they have to be made."""
    b = FloatBuilder(rng, ["n", 16])
    model = _running(b.model(b.node("MatMul", "x", b.weights(16, 4))), tmp_path)
    assert quantised_node(model) is None and len(list(of_running(model))) == 2
    scale = next(node for node in model.graph.node if node.op_type == "DynamicQuantizeLinear").output[1]
    model.graph.output.append(helper.make_tensor_value_info(scale, TensorProto.FLOAT, []))
    assert undo_running(model) is model
    assert quantised_node(model).op_type == "DynamicQuantizeLinear"


def test_zero_points_of_rows(rng: Rng) -> None:
    """A constant that comes first has one for each row."""
    numbers, points = rng.integers(0, 200, (4, 4)).astype(np.uint8), np.arange(10, 50, 10, np.uint8)
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
             helper.make_node("MatMulInteger", ["numbers", "q", "points", "z"], ["p"]),
             helper.make_node("Cast", ["p"], ["f"], to=TensorProto.FLOAT), helper.make_node("Mul", ["f", "s"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 4]) for name in "xy"]
    graph = helper.make_graph(nodes, "rows", ends[:1], ends[1:], [
        numpy_helper.from_array(numbers, "numbers"), numpy_helper.from_array(points, "points")])
    model = undo_running(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]))
    x = rng.normal(size=(4, 4)).astype(np.float32)
    (y,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(y, (numbers.astype(np.float32) - points[:, None]) @ x, rtol=1e-4)


def test_a_recurrent_layer_that_lacks_its_scales() -> None:
    """It stays what it is, for who checks the model to say so."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 4]) for name in "xy"]
    weights = [numpy_helper.from_array(np.ones((1, 4, 4), np.uint8), name) for name in "wr"]
    node = helper.make_node("DynamicQuantizeLSTM", ["x", "w", "r"], ["y"], domain="com.microsoft")
    model = helper.make_model(helper.make_graph([node], "lstm", ends[:1], ends[1:], weights))
    assert undo_running(model) is model


@pytest.mark.parametrize("same", [True, False])
def test_another_scale_behind_16_bits(same: bool) -> None:
    """Values that come back another time as large are not what they were."""
    nodes = [helper.make_node("QuantizeLinear", ["x", "a", "z"], ["q"]),
             helper.make_node("DequantizeLinear", ["q", "b", "z"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 4]) for name in "xy"]
    scales = [numpy_helper.from_array(np.float32(scale), name) for name, scale in (
        ("a", 0.001), ("b", 0.001 if same else 0.002))]
    model = helper.make_model(helper.make_graph(nodes, "wide", ends[:1], ends[1:], [
        *scales, numpy_helper.from_array(np.int16(0), "z")]))
    assert (undo_wide(model) is model) is not same


def test_casts_that_convert_nothing() -> None:
    nodes = [helper.make_node("Cast", ["x"], ["a"], name="same", to=TensorProto.FLOAT),
             helper.make_node("Cast", ["a"], ["b"], name="other", to=TensorProto.INT32),
             helper.make_node("Cast", ["b"], ["y"], name="again", to=TensorProto.INT32)]
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2]),
            helper.make_tensor_value_info("y", TensorProto.INT32, [1, 2])]
    model = helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:]))
    assert [node.op_type for node in drop_casts(model).graph.node] == ["Identity", "Cast", "Identity"]


@pytest.mark.parametrize("number", [np.int16, np.uint16])
def test_activations_of_16_bits(number: type, rng: Rng, tmp_path: Path) -> None:
    """Samples give ranges for 8; beside activations of 8 bits they stay as they are."""
    b = FloatBuilder(rng, ["n", 3, 12, 12], opset=21)

    def pair(value: str, scale: float, kind: type = number) -> str:
        parameters = b.constant(np.float32(scale)), b.constant(kind(0 if kind is not np.uint16 else 1 << 15))
        return b.node("DequantizeLinear", b.node("QuantizeLinear", value, *parameters), *parameters)

    y = pair(b.node("Relu", b.same_conv(pair("x", 4 / (1 << 15)), 3, 8)), 8 / (1 << 15))
    model = b.model(pair(b.same_conv(y, 8, 4), 16 / (1 << 15)))
    assert quantised_node(model) is None
    assert not host(compiled(model, tmp_path))
    mixed = quantised_node(b.model(pair(y, 0.05, np.int8)))
    assert mixed is not None and mixed.op_type == "QuantizeLinear"
