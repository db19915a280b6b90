"""Block pruning of ONNX models: the same weights as the compiler's, densities from budgets, and the command."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from cores.config import NpuConfig
from gen.cli import main
from gen.ir.graph import Conv
from gen.onnx.importer import Importer
from gen.onnx.read import parse
from gen.passes.prune import prune, prune_weights, rounded_density
from gen.prune.blocks import densities, prune_below, prune_blocks, prune_magnitudes
from gen.prune.counts import Counts
from gen.prune.layers import find_layers
from gen.prune.measure import AccuracyEvaluator
from gen.prune.plan import Goal, Pruner, read_model
from gen.prune.search import Sensitivity, descent, first_that, last_that
from gen.prune.timing import QuantisedCounterpart, quantised, random_inputs
from tests.gen.float_models import FloatBuilder
from tests.gen.qdq import Builder

CONFIG = NpuConfig.preset(64)


def imported(model: onnx.ModelProto):
    return Importer(parse("test", model.SerializeToString())).run().graph


@pytest.mark.parametrize("number", [np.int8, np.uint8])
@pytest.mark.parametrize("layout", ["flatten", "transposed", "computed"])
def test_the_same_weights_as_the_compiler(number: type, layout: str, rng: np.random.Generator):
    """A pruned ONNX model, imported, is the imported model, pruned: convolutions, and products after a feature map."""
    builder = Builder(rng, number=number)
    value = builder.requantize(builder.input("N", 3, 6, 6, number=np.float32))
    for channels, outputs in ((3, 24), (24, 40)):
        value = builder.requantize(builder.node(
            "Conv", value, builder.weights(outputs, channels, 3, 3, per_channel=channels == 3, number=number),
            kernel_shape=[3, 3]))
    if layout == "transposed":
        value = builder.node("Transpose", value, perm=[0, 2, 3, 1])
    if layout == "computed":        # as a model of any number of samples has it from `x.view(len(x), -1)`
        samples = builder.node("Gather", builder.node("Shape", value), builder.constant([0]))
        value = builder.node("Reshape", value, builder.node("Concat", samples, builder.constant([-1]), axis=0))
    else:
        value = builder.node("Flatten", value)
    value = builder.requantize(builder.node("MatMul", value, builder.weights(160, 32, axis=1, number=number)))
    value = builder.requantize(builder.node("Gemm", value, builder.weights(10, 32, number=number), transB=1))
    builder.output(value, np.float32, rank=2)
    model = builder.build()
    layers = find_layers(model)
    assert [layer.left for layer in layers] == ["reads the model's input", "", "", ""]
    density = {layer.node: share for layer, share in zip(layers, (1.0, 0.25, 0.5, 0.75), strict=True)}
    graph = imported(model)
    of_layers = {layer.name: density[node] for layer in graph.layers for node in layer.onnx_nodes if node in density}
    expected = prune(graph, CONFIG, of_layers)
    found = imported(prune_blocks(model, density, CONFIG))
    assert sum(isinstance(layer, Conv) for layer in expected.layers) == 4
    for old, new in zip(expected.layers, found.layers, strict=True):
        if isinstance(old, Conv):
            np.testing.assert_array_equal(old.weights, new.weights)
            np.testing.assert_array_equal(old.requantize.bias, new.requantize.bias)


def test_constants_are_initializers(tmp_path: Path, rng: np.random.Generator):
    """Exporters write shapes, and some write weights, as nodes."""
    builder = FloatBuilder(rng, ["N", 3, 8, 8])
    value = builder.node("Relu", builder.conv("x", 3, 16))
    target = numpy_helper.from_array(np.array([0, -1]))
    value = builder.node("Reshape", value, builder.node("Constant", value=target))
    weights = numpy_helper.from_array(rng.normal(size=(16 * 36, 4)).astype(np.float32))
    model = builder.model(builder.node("MatMul", value, builder.node("Constant", value=weights)))
    onnx.save(model, tmp_path / "m.onnx")
    model = read_model(tmp_path / "m.onnx")
    assert [(layer.op, layer.left) for layer in find_layers(model)] == [("Conv", "reads the model's input"),
                                                                        ("MatMul", "")]
    assert "Constant" not in {node.op_type for node in model.graph.node}
    onnx.checker.check_model(model, full_check=True)


@pytest.mark.parametrize("shared", [False, True])
def test_weights_that_are_quantised_as_the_model_runs(shared: bool, rng: np.random.Generator):
    """Their zero is 0.0, whatever the zero point; weights that two layers read stay."""
    builder = Builder(rng, number=np.uint8)
    value = builder.requantize(builder.input("N", 16, 6, 6, number=np.float32))
    weights = builder.requantize(builder.constant(rng.normal(size=(16, 16, 1, 1)).astype(np.float32)))
    for kernel in (builder.weights(16, 16, 1, 1, number=np.uint8), *[weights] * (1 + shared)):
        value = builder.requantize(builder.node("Conv", value, kernel))
    builder.output(value, np.float32)
    model = builder.build()
    layer = find_layers(model)[1]
    pruned = prune_blocks(model, {layer.node: 0.25}, CONFIG)
    assert densities(pruned)[layer.node] == (1.0 if shared else 0.25)
    array = next(numpy_helper.to_array(t) for t in pruned.graph.initializer if t.name == layer.initializer)
    assert np.count_nonzero(array == 0) == (0 if shared else 192)


def test_what_stays(rng: np.random.Generator):
    builder = FloatBuilder(rng, ["N", 3, 12, 12])
    value = builder.node("Relu", builder.conv("x", 3, 16))
    value = builder.conv(value, 16, 16, group=16)
    value = builder.conv(builder.conv(value, 16, 16, kernel=1), 16, 16, group=4)
    value = builder.conv(builder.node("MaxPool", builder.node("Sign", value), kernel_shape=[2, 2]), 16, 16, kernel=1)
    above, one, less = (builder.constant(np.float32(number)) for number in (0.5, 1, -1))
    value = builder.node("Where", builder.node("Greater", value, above), less, one)
    model = builder.model(builder.conv(value, 16, 16, kernel=1))
    assert [layer.left for layer in find_layers(model)] == [
        "reads the model's input", "depthwise, or in groups", "", "depthwise, or in groups", "binary", "binary"]


def test_float_weights_as_integers(rng: np.random.Generator):
    """Magnitudes decide, and of equal ones the channel: floats of whole numbers are pruned as these."""
    weights = rng.integers(-5, 6, (9, 40, 3, 2)).astype(np.int16)
    for groups in (1, 2, 5):
        np.testing.assert_array_equal(
            prune_weights(weights.astype(np.float32), groups, CONFIG), prune_weights(weights, groups, CONFIG))


def test_magnitudes_keep_the_largest(rng: np.random.Generator):
    builder = FloatBuilder(rng, ["N", 3, 8, 8])
    first = builder.node("Relu", builder.conv("x", 3, 16))
    model = builder.model(builder.conv(first, 16, 16))
    old, new = (numpy_helper.to_array(m.graph.initializer[1]) for m in (model, prune_magnitudes(model, 0.3)))
    kept = round(0.3 * old.size)
    assert np.count_nonzero(new) == kept
    assert np.abs(new[new != 0]).min() == np.sort(np.abs(old), axis=None)[-kept]
    assert set(densities(prune_magnitudes(model, 0.3)).values()) == {1.0, kept / old.size}


def test_weights_below_a_threshold_go(rng: np.random.Generator):
    builder = FloatBuilder(rng, ["N", 3, 8, 8])
    value = builder.node("Relu", builder.conv("x", 3, 16, name="first"))
    value = builder.node("Relu", builder.conv(value, 16, 16, name="second"))
    model = builder.model(builder.conv(value, 16, 16, name="third"))
    old, new = (numpy_helper.to_array(m.graph.initializer[1]) for m in (model, prune_below(model, 0.1)))
    np.testing.assert_array_equal(new, np.where(np.abs(old) < np.float32(0.1), 0, old))
    assert 0 < np.count_nonzero(new) < old.size
    # Of a layer without larger ones the largest is left.
    alone = densities(prune_below(model, 100, {"second"}))
    assert alone == {"first": 1.0, "second": 1 / old.size, "third": 1.0}


@pytest.mark.parametrize("integers", [False, True])
def test_counts_of_a_model(integers: bool, rng: np.random.Generator):
    builder = FloatBuilder(rng, ["N", 3, 8, 10])
    value = builder.node("Relu", builder.same_conv("x", 3, 8, strides=[2, 2]))           # 4x5
    value = builder.node("Relu", builder.conv(value, 8, 8, group=8))                     # 2x3
    value = builder.node("Flatten", builder.conv(value, 8, 16, kernel=1))
    model = builder.model(builder.node("Gemm", value, builder.weights(96, 5), builder.weights(5)))
    macs = 8 * 27 * 20 + 8 * 9 * 6 + 128 * 6 + 96 * 5
    weights = 8 * 27 + 8 * 9 + 128 + 96 * 5
    if integers:
        found = Counts.of(quantised(model))
        assert (found.parameters, found.macs) == (weights + 8 + 5, macs) and found.useful_macs <= macs
        return
    assert Counts.of(model) == Counts(weights + 8 + 5, weights + 8 + 5, macs, macs)
    half = Counts.of(prune_magnitudes(model, 0.5, {"conv4"}))
    assert half == Counts(weights + 13, weights + 13 - 64, macs, macs - 64 * 6)


@pytest.fixture(scope="module")
def chain() -> onnx.ModelProto:
    """Four float convolutions and a classifier."""
    builder = FloatBuilder(np.random.default_rng(3), ["N", 3, 10, 10])
    value = "x"
    for channels in (3, 32, 32, 32):
        value = builder.node("Relu", builder.norm(builder.conv(value, channels, 32, pads=[1] * 4), np.ones(32)))
    value = builder.node("Flatten", builder.node("GlobalAveragePool", value))
    return builder.model(builder.node("Gemm", value, builder.weights(10, 32), transB=1))


def test_cycles_of_a_density_are_those_of_the_pruned_model(chain: onnx.ModelProto):
    nodes = [layer.node for layer in find_layers(chain) if not layer.left]
    counterpart = QuantisedCounterpart.of(chain, CONFIG, name="chain")
    density = dict(zip(nodes, (0.25, 0.5, 1.0, 0.25), strict=True))
    expected = counterpart.times(CONFIG, density)
    found = QuantisedCounterpart.of(prune_blocks(chain, density, CONFIG), CONFIG, name="chain").times(CONFIG)
    assert found == expected
    dense = counterpart.times(CONFIG)
    assert expected.nodes[nodes[0]] < 0.35 * dense.nodes[nodes[0]]
    assert expected.nodes[nodes[2]] == dense.nodes[nodes[2]]


def test_every_layer_has_cycles(tmp_path: Path, rng: np.random.Generator):
    """By its own name, also where a batch norm or a bias of its own becomes part of it; inputs may leave sizes open."""
    builder = FloatBuilder(rng, ["N", 3, "height", "width"])
    value = builder.node("Relu", builder.norm(builder.conv("x", 3, 16, pads=[1] * 4), np.ones(16)))
    value = builder.node("LeakyRelu", builder.same_conv(value, 16, 16))
    value = builder.node("Flatten", builder.node("GlobalAveragePool", value))
    value = builder.node("Add", builder.node("MatMul", value, builder.weights(16, 4)), builder.weights(4))
    onnx.save(builder.model(value), tmp_path / "m.onnx")
    argv = ["prune", str(tmp_path / "m.onnx"), "--density", "0.5", "-o", str(tmp_path / "p.onnx"), "--shape"]
    model = read_model(tmp_path / "m.onnx", {"x": (1, 3, 8, 8)})
    times = QuantisedCounterpart.of(model, CONFIG, name="m").times(CONFIG)
    assert times.nodes.keys() >= {layer.node for layer in find_layers(model)} and min(times.nodes.values()) > 0
    assert main([*argv, "x=1,3,8,8", "--shape", "y=1,2"]) == 2
    assert main([*argv, "x=1,3,8,8"]) == 0
    assert read_model(tmp_path / "p.onnx").graph.node == model.graph.node


@pytest.mark.slow
def test_a_budget_is_met(chain: onnx.ModelProto):
    pruner = Pruner(chain, CONFIG, name="chain")
    dense = QuantisedCounterpart.of(chain, CONFIG, name="chain").times(CONFIG).total
    budget = round(0.6 * dense)
    pruned = pruner.prune(Goal(kind="block", cycles=budget))
    assert 0.9 * budget < pruned.after.total <= budget
    # Density by density it is better than all layers at the same one.
    uniform = prune_blocks(chain, 0.5, CONFIG)
    evaluator = AccuracyEvaluator.of(chain, random_inputs(chain, 16))
    assert evaluator.noise(pruned.model) < evaluator.noise(uniform)
    with pytest.raises(ValueError, match="chain: pruning cannot reach 10 cycles: with all removed"):
        pruner.prune(Goal(kind="block", cycles=10))


def test_the_way_to_a_budget_takes_the_best_first():
    found = {"a": Sensitivity({1.0: 0, 0.5: 0.1, 0.25: 0.9}, {1.0: 100, 0.5: 50, 0.25: 25}),
             "b": Sensitivity({1.0: 0, 0.5: 0.4, 0.25: 0.5}, {1.0: 100, 0.5: 50, 0.25: 25}),
             "gains nothing": Sensitivity({1.0: 0, 0.5: 0.0}, {1.0: 10, 0.5: 10})}
    assert [(state["a"], state["b"]) for state in descent(found)] == [(1, 1), (0.5, 1), (0.5, 0.25), (0.25, 0.25)]
    assert all(state["gains nothing"] == 1 for state in descent(found))


@pytest.mark.parametrize("bound", range(9))
def test_first_and_last(bound: int):
    items = list(range(8))
    assert first_that(items, lambda item: item >= bound) == (bound if bound < 8 else None)
    assert last_that(items, lambda item: item <= bound) == min(bound, 7)
    assert last_that(items, lambda item: False) == 0


@pytest.mark.parametrize(("asked", "used"), [(0.3, 0.25), (0.01, 0.25), (0.4, 0.5), (0.9, 1.0), (0.75, 0.75)])
def test_densities_of_the_machine(asked: float, used: float):
    assert rounded_density(asked, NpuConfig.preset(256)) == used


@pytest.mark.slow
def test_what_a_density_is_rounded_to_is_said(digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    model, samples = str(digits / "digits_int8.onnx"), str(digits / "digits_test.npz")
    said = "--density 0.3: 0.25 is the nearest that this machine has, in steps of 0.25\n"
    for argv in (["compile", model, "--features", "none", "--no-check", "-o", str(tmp_path / "a.npu")],
                 ["prune", model, "-o", str(tmp_path / "a.onnx")]):
        assert main([*argv, "--density", "0.3", "--json"]) == 0
        captured = capsys.readouterr()
        assert captured.err == said
        assert json.loads(captured.out)["density"] == {"asked": 0.3, "used": 0.25}
        assert main([*argv, "--density", "0.25", "--json"]) == 0
        assert capsys.readouterr().err == ""
    run = ["run", model, "--features", "none", "--input", samples, "--limit", "1", "--target", "reference"]
    assert main([*run, "--density", "0.3"]) == 0
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_pruning_by_accuracy(digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    model, samples, output = digits / "digits_float.onnx", digits / "digits_test.npz", tmp_path / "p.onnx"
    assert main(["prune", str(model), "--macs", "256", "--max-loss", "1", "--calibrate", str(samples), "--limit", "200",
                 "-o", str(output), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["accuracy"]["after"] >= report["accuracy"]["before"] - 0.01
    assert report["cycles"]["after"] < report["cycles"]["before"]
    rows = {row["name"]: row for row in report["layers"]}
    assert [row["left"] for row in report["layers"]].count("") == sum(
        row["sensitivity"] is not None for row in rows.values()) == 5
    # What the file has is what was said of it.
    assert densities(read_model(output)) == {name: row["density"]["after"] for name, row in rows.items()}


@pytest.mark.parametrize(("argv", "status", "message"), [
    (["--max-loss", "1"], 2, "--max-loss needs samples to measure by: --calibrate X.npz"),
    (["--density", "0.5", "--channels", "apoz"], 2, "--density counts blocks; with --channels give --ratio"),
    (["--ratio", "0.5"], 2, "--ratio goes with --channels"),
    (["--ratio", "0.5", "--density", "0.5"], 2, "not allowed with argument"),
    (["--budget-cycles", "9", "--unstructured"], 2, "--unstructured goes with --density"),
    (["--density", "0.5", "--iterations", "2"], 2, "--iterations goes with --ratio"),
    (["--threshold", "0.5"], 2, "--threshold goes with --channels or --unstructured"),
    (["--threshold", "-1", "--unstructured"], 2, "must be above 0, not -1"),
    (["--threshold", "1", "--channels", "gamma", "--unstructured"], 2, "--unstructured removes single weights"),
    (["--density", "0.5", "--layers", "none*"], 1, "no layer has a name like 'none*'; layers: "),
    (["--density", "0.5", "--floor", "0.2"], 2, "--floor goes with --channels"),
    (["--ratio", "1.5", "--channels", "apoz"], 2, "must be above 0 and below 1, not 1.5"),
    ([], 2, "is required"),
    (["--ratio", "0.5", "--channels", "apoz"], 1, "channels are removed from float models only"),
])
def test_errors(argv: list[str], status: int, message: str, digits: Path, tmp_path: Path,
                capsys: pytest.CaptureFixture):
    output = tmp_path / "p.onnx"
    assert main(["prune", str(digits / "digits_int8.onnx"), "-o", str(output), *argv]) == status
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and message in captured.err
    assert not output.exists()


def test_labels_are_for_scores_alone(tmp_path: Path, rng: np.random.Generator, capsys: pytest.CaptureFixture):
    """Labels beside a map are left aside, and said to be: pruning goes by the classes of its places."""
    builder = FloatBuilder(rng, ["N", 3, 8, 8])
    value = builder.node("Relu", builder.same_conv("x", 3, 16))
    onnx.save(builder.model(builder.same_conv(value, 16, 4)), tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=rng.normal(size=(20, 3, 8, 8)).astype(np.float32), label=np.arange(20) % 4)
    for command in (["prune", "--max-loss", "2"], ["quantize"]):
        assert main([*command, str(tmp_path / "m.onnx"), "--calibrate", str(tmp_path / "x.npz"),
                     "-o", str(tmp_path / "p.onnx")]) == 0
        printed = capsys.readouterr()
        assert "labels are not used: output" in printed.err and "(4, 8, 8) for each sample" in printed.err
        assert "of the answers are the same" in printed.out and "accuracy" not in printed.out
    evaluator = AccuracyEvaluator.of(onnx.load(tmp_path / "m.onnx"), {"x": np.load(tmp_path / "x.npz")["x"]})
    assert evaluator.original_accuracy == 1
    changed = onnx.load(tmp_path / "m.onnx")
    weights = next(t for t in changed.graph.initializer if list(t.dims) == [4, 16, 3, 3])
    weights.CopyFrom(numpy_helper.from_array(-numpy_helper.to_array(weights), weights.name))
    assert 0 < evaluator.accuracy(changed) < 0.5
