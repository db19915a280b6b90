"""Float models quantised: what is quantised where, the ranges, and that the result is taken by the machine."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from gen.check.compare import compare, compare_layers
from gen.ir import reference
from gen.onnx.importer import load_model
from gen.onnx.machine import Machine
from gen.onnx.read import read
from gen.partition.partition import partition
from gen.prune.measure import run_model
from gen.quantize.bias import with_biases
from gen.quantize.calibrate import distributions
from gen.quantize.equalize import equalize
from gen.quantize.options import METHODS, QuantizeError, QuantizeOptions
from gen.quantize.plan import plan_quantisation
from gen.quantize.prepare import initializers, prepare
from gen.quantize.quantize import Quantized, quantize
from gen.quantize.ranges import BINS, Distribution, entropy_threshold, range_of
from gen.quantize.report import measure
from gen.quantize.sessions import values_of
from tests.gen.float_models import FloatBuilder, depthwise_network, residual_network

Rng = np.random.Generator


def outputs_of(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """By onnxruntime as a user runs it."""
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, {"x": sample[None]})[0] for sample in x])


@pytest.fixture
def samples(rng: Rng) -> np.ndarray:
    return rng.normal(size=(24, 3, 12, 12)).astype(np.float32)


def quantized(model: onnx.ModelProto, x: np.ndarray, **options: object) -> Quantized:
    return quantize(model, {"x": x}, QuantizeOptions(**options))  # type: ignore[arg-type]


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
    cut = partition(tmp_path / "q.onnx", machine=Machine(tables=True))
    assert [*cut.host] == ["end"] and (cut.subgraphs, cut.switches) == (1, 1)
    graph = load_model(tmp_path / "q.onnx", cut.segments[0].model.SerializeToString(), machine=Machine(tables=True))
    assert sorted(layer.table is not None for layer in graph.graph.layers if layer.op == "conv") == [False, True, True]
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
    with pytest.raises(QuantizeError, match="no output of the model is float"):
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
    """Its weights stay, and what only float values reach stays float behind it."""
    model = residual_network(rng)
    found = quantized(model, samples, keep_float=frozenset({"clipped"}))
    assert {"clipped", "relu6"}.isdisjoint(layer.node for layer in found.plan.layers)
    node = next(node for node in found.model.graph.node if node.name == "clipped")
    assert numpy_helper.to_array(initializers(found.model)[node.input[1]]).dtype == np.float32
    assert "relu6" in found.plan.tensors        # the Concat is the machine's, and reads it
    with pytest.raises(QuantizeError, match="no node nonsense that could stay float"):
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
    """Behind an operator that is not the machine's, what has no weights gains nothing by being quantised."""
    b = FloatBuilder(rng, [1, 3, 12, 12])
    tail = b.node("Erf", b.same_conv("x", 3, 4, name="conv"), name="erf")
    y = b.node("Relu", b.node("Add", tail, tail, name="twice"), name="y")
    plan = plan_quantisation(prepare(b.model(y)))
    assert set(plan.tensors) == {"x", "conv"}


def test_an_input_that_is_moved_first(rng: Rng):
    """Channels last, as Keras exports: quantised behind the Transpose, once."""
    b = FloatBuilder(rng, [1, 8, 8, 3])
    y = b.same_conv(b.node("Transpose", "x", name="moved", perm=[0, 3, 1, 2]), 3, 4, name="y")
    assert list(plan_quantisation(prepare(b.model(y))).tensors) == ["moved", "y"]


def test_what_reads_the_input_is_the_machines(rng: Rng):
    """Also where it has no weights, and behind a move."""
    b = FloatBuilder(rng, [1, 8, 8, 3])
    moved = b.node("Transpose", "x", name="moved", perm=[0, 3, 1, 2])
    y = b.same_conv(b.node("MaxPool", moved, name="pool", kernel_shape=[2, 2], strides=[2, 2]), 3, 4, name="y")
    plan = plan_quantisation(prepare(b.model(y)))
    assert list(plan.tensors) == ["moved", "y"] and plan.like == {"pool": ("moved", "pool")}


# -- ranges ------------------------------------------------------------------------------------------------------------


def test_values_are_counted(rng: Rng):
    """Over all samples, in bins up to the largest, but for zeros."""
    b = FloatBuilder(rng, [1, 3, 8, 8])
    model = b.model(b.node("Relu", "x", name="y"))
    x = rng.normal(size=(5, 3, 8, 8)).astype(np.float32) * np.arange(1, 6, dtype=np.float32)[:, None, None, None]
    found = distributions(model, {"x": "", "y": "y"}, {"x": x}, lambda done, total, what: None)
    for name, values in (("x", x), ("y", np.maximum(x, 0))):
        assert (found[name].low, found[name].high) == (values.min(), values.max())
        assert found[name].counts.sum() == np.count_nonzero(values)
        expected, _ = np.histogram(values[values != 0], 2 * BINS, (-found[name].largest, found[name].largest))
        assert np.abs(found[name].counts - expected).sum() <= 4     # at edges


def test_symmetric_ranges_have_as_many_steps_on_both_sides(rng: Rng, samples: np.ndarray):
    b = FloatBuilder(rng, [1, 3, 12, 12])
    model = b.model(b.node("Relu", b.same_conv("x", 3, 4, name="conv"), name="y"))
    for symmetric, steps in ((True, 127), (False, 255)):
        report = measure(quantized(model, samples, method="minmax", symmetric=symmetric), {"x": samples})
        largest = np.maximum(outputs_of(prepare(model), samples), 0).max()
        assert report.layers[-1].scale == pytest.approx(largest / steps)
        assert report.layers[-1].zero_point == (0 if symmetric else -128)


def distribution(values: np.ndarray) -> Distribution:
    low, high = float(values.min()), float(values.max())
    largest = max(-low, high)
    counts, _ = np.histogram(values[values != 0], 2 * BINS, (-largest, largest))
    return Distribution(counts, low, high)


def entropy_by_the_definition(counts: np.ndarray) -> int:
    best, kept = np.inf, 0
    for j in range(128, len(counts) + 1):
        p = counts[:j].astype(np.float64)
        p[-1] += counts[j:].sum()
        q = np.zeros(j)
        ends = j * np.arange(129) // 128
        for first, last in zip(ends, ends[1:], strict=False):
            filled = p[first:last] > 0
            if filled.any():
                q[first:last][filled] = counts[first:last].sum() / filled.sum()
        used = p > 0
        if not q[used].all():
            continue
        p, q = p / p.sum(), q / q.sum()
        if (found := float((p[used] * np.log(p[used] / q[used])).sum())) < best - 1e-12:
            best, kept = found, j
    return kept


@pytest.mark.parametrize("kind", ["normal", "sparse", "spikes"])
def test_entropy_is_the_divergence(kind: str, rng: Rng):
    values = np.abs(rng.standard_t(3, 40_000))
    counts, _ = np.histogram(values, 300, (0, values.max()))
    if kind == "sparse":
        counts[rng.random(300) < 0.6] = 0
    if kind == "spikes":
        counts[rng.integers(300, size=4)] += 5000
    assert entropy_threshold(counts) == entropy_by_the_definition(counts)


def noise(values: np.ndarray, low: float, high: float) -> float:
    step = (high - low) / 255
    least = np.rint(low / step)
    return float(((values - np.clip(np.rint(values / step), least, least + 255) * step) ** 2).mean())


@pytest.mark.parametrize("kind", ["relu", "both signs"])
def test_least_error_is_less_than_of_any_other_method(kind: str, rng: Rng):
    values = np.concatenate([rng.normal(size=100_000), [14.0, -12.0]])
    values = np.maximum(values, 0) if kind == "relu" else values - 0.3
    found = distribution(values)
    errors = {method: noise(values, *range_of(found, QuantizeOptions(method=method))) for method in METHODS}
    assert errors["mse"] <= 1.01 * min(errors.values()) and errors["mse"] < 0.97 * errors["minmax"]
    tried = min(noise(values, share * found.low, share * found.high) for share in np.linspace(0.1, 1, 91))
    assert errors["mse"] <= 1.02 * tried


def test_percentile_keeps_that_share(rng: Rng):
    values = rng.standard_t(3, 100_000)
    low, high = range_of(distribution(values), QuantizeOptions(method="percentile", percentile=99.0))
    assert ((values >= low) & (values <= high)).mean() == pytest.approx(0.99, abs=2e-3)
    one_sided = range_of(distribution(np.abs(values)), QuantizeOptions(method="percentile", percentile=99.0))
    assert one_sided[0] == 0


@pytest.mark.parametrize("method", METHODS)
def test_ranges_hold_zero(method: str, rng: Rng):
    options = QuantizeOptions(method=method)  # type: ignore[arg-type]
    for values in (rng.uniform(2, 3, 50_000), rng.uniform(-3, -2, 50_000), np.zeros(10), np.full(10, 4.0)):
        low, high = range_of(distribution(values), options)
        assert low <= 0 <= high
    low, high = range_of(distribution(rng.uniform(-1, 3, 50_000)), QuantizeOptions(
        method=method, symmetric=True))  # type: ignore[arg-type]
    assert low == -high


def test_zeros_do_not_weigh(rng: Rng):
    """A Relu's many zeros are exact in any range: they do not pull it together."""
    values = np.abs(rng.normal(size=50_000))
    for method in METHODS:
        options = QuantizeOptions(method=method)
        assert range_of(distribution(np.concatenate([values, np.zeros(500_000)])), options) == range_of(
            distribution(np.concatenate([values, np.zeros(1)])), options)


# -- bias correction and equalisation ----------------------------------------------------------------------------------


def channel_means(model: onnx.ModelProto, name: str, x: np.ndarray) -> np.ndarray:
    return np.mean([values[name].mean(axis=(0, 2, 3)) for values in values_of(model, [name], {"x": x})], axis=0)


def test_biases_are_corrected(rng: Rng):
    """Means of channels are the float model's, far nearer than before, at a layer in the middle and at the end."""
    x = rng.normal(size=(32, 4, 8, 8)).astype(np.float32)
    model = depthwise_network(rng, 30)
    plain, corrected = (quantized(model, x, per_channel=False, bias_correction=on) for on in (False, True))
    for layer in (plain.plan.layers[2], plain.plan.layers[-1]):
        errors = []
        for found in (plain, corrected):
            output = next(node for node in found.model.graph.node if node.name == layer.node).output[0]
            errors.append(np.abs(channel_means(found.model, output, x)
                                 - channel_means(found.reference, layer.output, x)).max())
        assert errors[1] < errors[0] / 10


def test_a_bias_for_each_layer(rng: Rng, samples: np.ndarray):
    model = prepare(residual_network(rng))
    with_all = with_biases(model)
    assert all(len(node.input) == 3 for node in with_all.graph.node if node.op_type in ("Conv", "Gemm"))
    b = FloatBuilder(rng, [1, 3, 12, 12])
    without = b.model(b.conv("x", 3, 4, pads=[1] * 4, name="y"))
    np.testing.assert_array_equal(outputs_of(with_biases(without), samples), outputs_of(without, samples))


@pytest.mark.parametrize("per_channel", [True, False])
def test_equalised_channels(per_channel: bool, rng: Rng):
    """The function stays; what is quantised is nearer to it, of one network more than of another."""
    x = rng.normal(size=(32, 4, 8, 8)).astype(np.float32)
    options = QuantizeOptions(per_channel=per_channel)
    gains = []
    for _ in range(16):
        model = prepare(depthwise_network(rng, 1000))
        expected = outputs_of(model, x)
        # Rounding of single precision is of the largest summands, not of a result in which they cancel out.
        np.testing.assert_allclose(outputs_of(equalize(model, {"x": x}, options), x), expected, rtol=0,
                                   atol=1e-5 * np.abs(expected).max())
        without, equalised = (measure(quantized(model, x, per_channel=per_channel, equalize=on), {"x": x}).outputs["y"]
                              for on in (False, True))
        assert without is not None and equalised is not None
        gains.append(equalised - without)
    assert np.mean(gains) > 3


def test_clips_are_not_equalised_across(rng: Rng):
    """A bound is one for all channels, so a Relu6 does not commute with factors."""
    b = FloatBuilder(rng, [1, 3, 8, 8])
    clipped = b.node("Clip", b.same_conv("x", 3, 8, name="first"), b.constant(np.float32(0)), b.constant(np.float32(1)))
    model = b.model(b.same_conv(clipped, 8, 4, name="y"))
    x = rng.normal(size=(8, 3, 8, 8)).astype(np.float32)
    assert equalize(model, {"x": x}, QuantizeOptions()).SerializeToString() == model.SerializeToString()


def test_equalised_along_one_axis(rng: Rng):
    b = FloatBuilder(rng, [1, 3, 9])
    first, second = b.rng.normal(size=(8, 3, 3)), b.rng.normal(size=(4, 8, 3))
    hidden = b.node("Relu", b.node("Conv", "x", b.constant(first), pads=[1, 1], name="first"))
    model = b.model(b.node("Conv", hidden, b.constant(second), pads=[1, 1], name="y"))
    x = rng.normal(size=(8, 3, 9)).astype(np.float32)
    changed = equalize(model, {"x": x}, QuantizeOptions())
    assert changed.SerializeToString() != model.SerializeToString()
    np.testing.assert_allclose(*(np.concatenate([v["y"] for v in values_of(m, ["y"], {"x": x})])
                                 for m in (model, changed)), atol=1e-5)


def test_biases_of_a_model_that_has_none(rng: Rng):
    b = FloatBuilder(rng, [1, 8])
    model = b.model(b.node("MatMul", "x", b.constant(rng.normal(size=(8, 4))), name="y"))
    x = {"x": rng.normal(size=(20, 8)).astype(np.float32)}
    plain, corrected = (quantize(model, x, QuantizeOptions(bias_correction=on)).model for on in (False, True))
    assert plain.SerializeToString(deterministic=True) == corrected.SerializeToString(deterministic=True)


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_refusals(rng: Rng, samples: np.ndarray, digits: Path):
    model = residual_network(rng)
    with pytest.raises(QuantizeError, match="image.q.QuantizeLinear .* is quantised already, or a part of it"):
        quantize(read(digits / "digits_int8.onnx").proto, {"image": np.zeros((1, 1, 16, 16), np.float32)})
    with pytest.raises(QuantizeError, match="^input x has no samples"):
        quantize(model, {"other": samples})
    with pytest.raises(QuantizeError, match="same number of samples to calibrate with, at least one"):
        quantize(model, {"x": samples[:0]})
    with pytest.raises(QuantizeError, match="^input x has samples that are infinite or no numbers"):
        quantize(model, {"x": np.full_like(samples, np.inf)})
    with pytest.raises(QuantizeError, match="there is nothing to quantise"):
        b = FloatBuilder(rng, [1, 3])
        quantize(b.model(b.node("Relu", "x", name="y")), {"x": np.ones((1, 3), np.float32)})
    with pytest.raises(ValueError, match="method must be one of minmax, .*, not 'kl'"):
        QuantizeOptions(method="kl")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="percentile must be above 50"):
        QuantizeOptions(percentile=10)


def test_activations_that_are_not_finite(rng: Rng):
    b = FloatBuilder(rng, [1, 3, 4, 4])
    y = b.node("Conv", b.same_conv("x", 3, 4, name="first"), b.constant(np.full((2, 4, 1, 1), 3e38)), name="second")
    with pytest.raises(QuantizeError, match="the result of node second has values that are infinite or no numbers"):
        quantize(b.model(y), {"x": 1e3 * np.ones((1, 3, 4, 4), np.float32)})
