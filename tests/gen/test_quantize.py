"""Float models quantised: what is quantised where, and that the result is taken by the machine."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from gen.check.compare import compare, compare_layers
from gen.ir import reference
from gen.ir.epilogue.table import Table
from gen.onnx.importer import load_model
from gen.onnx.machine import Machine
from gen.onnx.read import read
from gen.partition.partition import partition
from gen.prune.measure import run_model
from gen.quantize.options import METHODS, QuantizeError, QuantizeOptions
from gen.quantize.plan import plan_quantisation
from gen.quantize.prepare import initializers, prepare
from gen.quantize.quantize import quantize
from gen.quantize.report import measure
from tests.epilogues import operation
from tests.errors import raises
from tests.gen.float_models import FloatBuilder, residual_network, yolo_network
from tests.gen.quantizing import outputs_of, quantized

Rng = np.random.Generator


@pytest.fixture
def samples(rng: Rng) -> np.ndarray:
    return rng.normal(size=(24, 3, 12, 12)).astype(np.float32)


# -- whole models ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [
    *({"method": method} for method in METHODS), {"symmetric": True}, {"per_channel": False},
    {"bias_correction": True, "equalize": True}], ids=lambda options: "-".join(map(str, options.values())))
def test_the_machine_takes_it(options: dict, rng: Rng, samples: np.ndarray, tmp_path: Path):
    """Its layers are those of onnxruntime, and no layer stands for a clip, a batch norm or a Flatten alone."""
    model = residual_network(rng)
    before = model.SerializeToString()
    found = quantized(model, samples, **options)
    assert model.SerializeToString() == before
    onnx.save(found.model, tmp_path / "q.onnx")
    assert compare(tmp_path / "q.onnx", {"x": samples[:4]}).largest <= 1
    imported = load_model(tmp_path / "q.onnx")
    assert [layer.op for layer in imported.graph.layers].count("conv") == 5     # two of them are the Concat's
    theirs = outputs_of(found.model, samples)
    ours, _ = reference.run(imported.graph, {"x": samples})
    assert (ours["y"].argmax(axis=1) == theirs.argmax(axis=1)).mean() > 0.9
    exact = outputs_of(model, samples)
    assert 10 * np.log10((exact ** 2).mean() / ((exact - theirs) ** 2).mean()) > 20


def test_report(rng: Rng, samples: np.ndarray):
    model = residual_network(rng)
    found = quantized(model, samples)
    labels = outputs_of(model, samples).argmax(axis=1)
    labels[:4] = -1
    report = measure(found, {"x": samples}, labels)
    assert (report.samples, report.accuracy_float) == (24, 1.0)
    assert report.accuracy_quantized is not None and 0.8 < report.accuracy_quantized <= 1
    assert {row.layer: row.tensor for row in report.layers}["stem"] == "stem_relu"
    assert all(row.sqnr_db is None or 20 < row.sqnr_db < 60 for row in report.layers)
    worse = measure(quantized(model, samples * 0.2), {"x": samples}, labels)
    assert sum(row.sqnr_db or 0 for row in worse.layers) < sum(row.sqnr_db or 0 for row in report.layers) - 50
    assert measure(found, {"x": samples}).accuracy_float is None


def test_products_of_activations_stay_float(rng: Rng, samples: np.ndarray):
    """SiLU: what it reads and what it makes are quantised, and nothing in between."""
    b = FloatBuilder(rng, ["N", 3, 12, 12])
    first = b.conv("x", 3, 4, name="first")
    product = b.node("Mul", first, b.node("Sigmoid", first, name="sigmoid"), name="product")
    found = quantized(b.model(b.conv(product, 4, 4, name="last")), samples)
    assert set(found.plan.tensors) == {"x", "first", "product", "last"}


@pytest.mark.parametrize("name", ["SiLU", "HardSwish", "HardSigmoid", "composed", "Mish"])
def test_functions_become_one_table(name: str, rng: Rng, samples: np.ndarray, tmp_path: Path):
    """As exporters write them, also where a pool and a Concat follow; the last one, at an output, stays float."""
    def function(b: FloatBuilder, x: str) -> str:
        match name:
            case "SiLU":
                return b.node("Mul", x, b.node("Sigmoid", x))
            case "HardSigmoid":
                return b.node("Mul", x, b.node("HardSigmoid", x, alpha=1 / 6, beta=0.5))
            case "composed":
                gate = b.node("Clip", b.node("Add", x, b.constant(3.0)), b.constant(0.0), b.constant(6.0))
                return b.node("Div", b.node("Mul", x, gate), b.constant(6.0))
        return b.node(name, x)

    b = FloatBuilder(rng, ["N", 3, 12, 12], opset=18)
    y = function(b, b.same_conv("x", 3, 8, name="first"))
    pooled = b.node("MaxPool", y, kernel_shape=[5, 5], pads=[2, 2, 2, 2], strides=[1, 1])
    z = function(b, b.same_conv(b.node("Concat", y, pooled, axis=1), 16, 8, name="second"))
    end = b.node("Sigmoid", b.same_conv(b.node("Add", y, z), 8, 4, name="last"), name="end")
    found = quantized(b.model(end), samples)
    assert len([tensor for tensor in found.plan.tensors if tensor not in ("x", "last")]) == 6
    assert "end" not in found.plan.tensors
    onnx.save(found.model, tmp_path / "q.onnx")
    cut = partition(read(tmp_path / "q.onnx"), machine=Machine.having("table"))
    assert [*cut.host] == ["end"] and (cut.subgraphs, cut.switches) == (1, 1)
    graph = load_model(tmp_path / "q.onnx", cut.segments[0].model.SerializeToString(), machine=Machine.having("table"))
    tables = [operation(layer, Table) is not None for layer in graph.graph.layers if layer.op == "conv"]
    assert sorted(tables) == [False, True, True]
    assert all(row.differing == 0 for row in compare_layers(graph, {"x": samples[:2]}) if row.op == "table")


def test_outputs_that_are_no_floats(rng: Rng, samples: np.ndarray):
    """Indices of which there are more or fewer from sample to sample and from model to model."""
    model = residual_network(rng)
    model.graph.node.append(onnx.helper.make_node("NonZero", ["stem_relu"], ["where"], name="where"))
    model.graph.output.append(onnx.helper.make_tensor_value_info("where", onnx.TensorProto.INT64, None))
    found = quantized(model, samples)
    assert {*measure(found, {"x": samples}).outputs} == {"y"}
    assert len(run_model(model, {"x": samples})) == 1
    del model.graph.output[0]
    with raises(QuantizeError, "no-float-output"):
        measure(quantized(model, samples), {"x": samples})


def test_an_old_opset_and_initializers_that_are_inputs(rng: Rng, samples: np.ndarray):
    model = residual_network(rng, opset=11)
    model.graph.input.extend(onnx.helper.make_tensor_value_info(c.name, c.data_type, c.dims)
                             for c in model.graph.initializer)
    found = prepare(model)
    assert not any(node.op_type == "BatchNormalization" for node in found.graph.node)
    assert [value.name for value in found.graph.input] == ["x"]
    del model.graph.input[1:]
    np.testing.assert_allclose(outputs_of(found, samples), outputs_of(model, samples), rtol=1e-4, atol=1e-5)


# -- where quantisation stands -----------------------------------------------------------------------------------------


def test_plan_of_a_residual_network(rng: Rng):
    """Nothing between a layer and what goes into it; what picks or moves values keeps the grid."""
    plan = plan_quantisation(prepare(residual_network(rng)))
    (branch,) = (layer.output for layer in plan.layers if layer.node == "branch")     # named by its batch norm
    assert plan.tensors == {
        "x": "", "stem_relu": "stem", branch: "branch", "sum_relu": "sum", "relu6": "clipped", "bent": "bent",
        "leaky": "leaky", "both": "both", "mean": "mean", "scores": "scores"}
    assert plan.like == {"pool": ("sum_relu", "pool")}
    assert {layer.node: layer.source for layer in plan.layers}["scores"] == "mean"


def test_a_node_that_stays_float(rng: Rng, samples: np.ndarray):
    """Its weights stay, and what only float values reach stays float after it."""
    model = residual_network(rng)
    found = quantized(model, samples, keep_float=frozenset({"clipped"}))
    assert {"clipped", "relu6"}.isdisjoint(layer.node for layer in found.plan.layers)
    node = next(node for node in found.model.graph.node if node.name == "clipped")
    assert numpy_helper.to_array(initializers(found.model)[node.input[1]]).dtype == np.float32
    assert "relu6" in found.plan.tensors        # the Concat is the machine's, and reads it
    with raises(QuantizeError, "no-such-layer"):
        quantized(model, samples, keep_float=frozenset({"nonsense"}))


def test_signs(rng: Rng) -> None:
    """Layers of signs stay as they are; what a Sign reads has zero point 0, unless it is a threshold."""
    b = FloatBuilder(rng, [1, 8, 8, 8])
    x, weights = "x", np.copysign(rng.uniform(0.5, 1, (8, 1, 1, 1)), rng.normal(size=(8, 8, 3, 3)))
    for stage in "ab":
        signs = b.node("MaxPool", b.node("Sign", x), kernel_shape=[1, 1])
        y = b.norm(b.node("Conv", signs, b.constant(weights), pads=[1] * 4, name=f"{stage}/conv"), np.ones(8))
        x = b.node("Add", y, x, name=f"{stage}/sum")
    second = b.node("Conv", b.node("Sign", b.conv(x, 8, 8, name="first")), b.constant(weights), name="second")
    third = b.node("Conv", b.node("Sign", second), b.weights(4, 8, 3, 3), name="third")
    model = b.model(third)
    samples = {"x": rng.normal(size=(20, 8, 8, 8)).astype(np.float32) + 1}
    found = quantize(model, samples)
    assert [layer.node for layer in found.plan.layers] == ["first", "third"]
    assert found.plan.centred == {"x", "a/sum"}
    constants = {name: numpy_helper.to_array(tensor) for name, tensor in initializers(found.model).items()}
    points = {node.input[0]: int(constants[node.input[2]]) for node in found.model.graph.node
              if node.op_type == "QuantizeLinear"}
    assert [points[name] for name in found.plan.centred] == [0, 0] and points["b/sum"] != 0


def test_a_result_with_two_readers_is_quantised_itself(rng: Rng):
    """A Relu that cannot go into its layer is a layer of its own."""
    b = FloatBuilder(rng, [1, 3, 8, 8])
    x = b.same_conv("x", 3, 8, name="first")
    y = b.node("Add", b.same_conv(b.node("Relu", x, name="relu"), 8, 8, name="second"), x, name="y")
    plan = plan_quantisation(prepare(b.model(y)))
    assert plan.tensors == {"x": "", "first": "first", "relu": "relu", "second": "second", "y": "y"}


def test_float_tails_stay_float(rng: Rng, samples: np.ndarray):
    """After an operator that is not the machine's, what has no weights gains nothing by being quantised."""
    b = FloatBuilder(rng, [1, 3, 12, 12])
    tail = b.node("Erf", b.same_conv("x", 3, 4, name="conv"), name="erf")
    y = b.node("Relu", b.node("Add", tail, tail, name="twice"), name="y")
    plan = plan_quantisation(prepare(b.model(y)))
    assert set(plan.tensors) == {"x", "conv"}


def test_an_input_that_is_moved_first(rng: Rng):
    """Channels last, as Keras exports: quantised after the Transpose, once."""
    b = FloatBuilder(rng, [1, 8, 8, 3])
    y = b.same_conv(b.node("Transpose", "x", name="moved", perm=[0, 3, 1, 2]), 3, 4, name="y")
    assert list(plan_quantisation(prepare(b.model(y))).tensors) == ["moved", "y"]


def test_what_reads_the_input_is_the_machines(rng: Rng):
    """Also where it has no weights, and after a move."""
    b = FloatBuilder(rng, [1, 8, 8, 3])
    moved = b.node("Transpose", "x", name="moved", perm=[0, 3, 1, 2])
    y = b.same_conv(b.node("MaxPool", moved, name="pool", kernel_shape=[2, 2], strides=[2, 2]), 3, 4, name="y")
    plan = plan_quantisation(prepare(b.model(y)))
    assert list(plan.tensors) == ["moved", "y"] and plan.like == {"pool": ("moved", "pool")}


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_refusals(rng: Rng, samples: np.ndarray, digits: Path):
    model = residual_network(rng)
    with raises(QuantizeError, "quantised-already"):
        quantize(read(digits / "digits_int8.onnx").proto, {"image": np.zeros((1, 1, 16, 16), np.float32)})
    with raises(QuantizeError, "bad-samples", input="x"):
        quantize(model, {"other": samples})
    with raises(QuantizeError, "bad-samples"):
        quantize(model, {"x": samples[:0]})
    with raises(QuantizeError, "not-finite", input="x"):
        quantize(model, {"x": np.full_like(samples, np.inf)})
    with raises(QuantizeError, "nothing-to-quantise"):
        b = FloatBuilder(rng, [1, 3])
        quantize(b.model(b.node("Relu", "x", name="y")), {"x": np.ones((1, 3), np.float32)})
    with pytest.raises(ValueError, match="method must be one of auto, .*, not 'kl'"):
        QuantizeOptions(method="kl")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="percentile must be above 50"):
        QuantizeOptions(percentile=10)


def test_activations_that_are_not_finite(rng: Rng):
    b = FloatBuilder(rng, [1, 3, 4, 4])
    y = b.node("Conv", b.same_conv("x", 3, 4, name="first"), b.constant(np.full((2, 4, 1, 1), 3e38)), name="second")
    with raises(QuantizeError, "not-finite", node="second"):
        quantize(b.model(y), {"x": 1e3 * np.ones((1, 3, 4, 4), np.float32)})


@pytest.mark.parametrize("make", [residual_network, yolo_network])
def test_who_reads_a_value(make: Callable[[Rng], onnx.ModelProto], rng: Rng, monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime's quantiser makes the same model when it need not look for that."""
    model = make(rng)
    x = rng.normal(size=(2, 3, *(dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim[2:])))
    found = quantized(model, x.astype(np.float32)).model
    monkeypatch.setattr("gen.quantize.insert._Readers.install", lambda self: None)
    assert found.SerializeToString() == quantized(model, x.astype(np.float32)).model.SerializeToString()
