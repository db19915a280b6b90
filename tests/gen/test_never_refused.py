"""A model is not refused for one place: what is too much for the machine is left to the processor, with its reason."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from cores.config import NpuConfig
from cores.errors import Reason
from gen.ir.errors import CompileError, UnfitError
from gen.onnx.importer import load_model
from gen.onnx.read import read
from gen.partition.unfit import UnfitNodesError
from gen.run import application as applications
from gen.run.application import Application, HostOptions, open_application
from gen.run.calibration import Calibration
from gen.run.inputs import Samples, arbitrary_samples, model_specs
from gen.run.runner import run_model
from tests.errors import is_about
from tests.gen.float_models import FloatBuilder
from tests.gen.qdq import Builder

CONFIG = NpuConfig.preset(16, table=1, product=1)


def compiled(model: onnx.ModelProto, folder: Path, *, config: NpuConfig = CONFIG, near: float = 0.01) -> Application:
    """A float model with samples, compiled and run on one: no value differs from the golden model's, and the outputs
    are those of onnxruntime but for ``near`` of their energy.
    """
    path = folder / "model.onnx"
    onnx.save(model, path)
    specs = model_specs(read(path).inputs)
    samples = [arbitrary_samples(specs, number).inputs for number in range(4)]
    np.savez(folder / "x.npz", **{name: np.concatenate([one[name] for one in samples]) for name in specs})
    application = open_application(path, config, calibration=Calibration(folder / "x.npz"))
    run = run_model(application, Samples(samples[0], None), "functional")
    assert run.mismatches == 0 and run.compared
    for node in model.graph.node:   # of which onnxruntime wants no two alike
        node.name = ""
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    # Of inputs that are taken whole, and of batches of samples.
    feed = {i.name: samples[0][i.name].repeat(i.shape[0] if len(i.shape) == samples[0][i.name].ndim and isinstance(
        i.shape[0], int) else 1, 0).reshape([size if isinstance(size, int) else 1 for size in i.shape])
            for i in session.get_inputs()}
    for output, wanted in zip(session.get_outputs(), session.run(None, feed), strict=True):
        made = run.outputs[output.name]
        assert made.shape == wanted.shape or made.shape[1:] == wanted.shape[1:] or made.shape[1:] == wanted.shape
        assert np.square(made - wanted).sum() <= near * np.square(made - 0 * wanted).sum() + 1e-12
    return application


def host(application: Application) -> dict[str, str]:
    return {} if application.partition is None else application.partition.host


def strided(rng: np.random.Generator, layers: int = 1) -> onnx.ModelProto:
    """Convolutions 11 columns apart between others."""
    b = FloatBuilder(rng, ["n", 3, 8, 11 ** layers + 64])
    y = b.same_conv("x", 3, 4)
    for number in range(layers):
        y = b.same_conv(b.conv(y, 4, 4, name=f"apart{number}", strides=[1, 11], pads=[1, 1, 1, 1]), 4, 4)
    return b.model(y)


def test_strides(rng: np.random.Generator, tmp_path: Path) -> None:
    found = compiled(strided(rng), tmp_path)
    assert host(found) == {"apart0": "horizontal strides are at most 7, or products of such, not 11"}
    assert found.partition is not None and found.partition.subgraphs == 2


@pytest.mark.parametrize("quantised", [False, True])
def test_vectors(quantised: bool, rng: np.random.Generator, tmp_path: Path) -> None:
    """An input and an output without an axis of samples, which have nothing but channels."""
    b = Builder(rng)
    x = b.node("Unsqueeze", b.input(20, number=np.float32), b.constant([0])) if not quantised else b.node(
        "Reshape", b.requantize(b.input(20, number=np.float32), 0.02, 0), b.constant([1, 20]))
    x = x if quantised else b.requantize(x, 0.02, 0)
    y = b.requantize(b.node("Relu", b.node("MatMul", x, b.weights(20, 16, axis=1))), 0.03, -128)
    y = b.requantize(b.node("MatMul", y, b.weights(16, 10, axis=1)), 0.03, 0)
    b.output(b.node("Squeeze", y, b.constant([0])), np.float32, rank=1)
    path, values = b.save(tmp_path), rng.random((3, 20)).astype(np.float32)
    application = open_application(path, CONFIG)
    assert not host(application)
    found = run_model(application, Samples({"x": values}, None), "functional")
    session = ort.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    wanted = np.stack([session.run(None, {"x": value})[0] for value in values])
    (made,) = found.outputs.values()
    assert found.mismatches == 0 and made.shape == wanted.shape == (3, 10)
    assert np.abs(made - wanted).max() < 0.031


def test_all_of_a_kind_are_left_at_once(rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                        ) -> None:
    """Each round partitions the model anew: one for each layer would take quadratic time."""
    rounds: list[int] = []
    real = applications.partition

    def counted(*args: object, **options: object) -> object:
        rounds.append(1)
        return real(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(applications, "partition", counted)
    found = compiled(strided(rng, 3), tmp_path, near=0.05)
    assert sum(reason.startswith("horizontal strides") for reason in host(found).values()) == 3
    assert len(rounds) == 2, "once with all nodes, once without those that are too much"


def test_sums(rng: np.random.Generator, tmp_path: Path) -> None:
    """The products of the second layer alone are more than 24 bits hold."""
    b = FloatBuilder(rng, ["n", 3, 8, 8])
    y = b.same_conv(b.same_conv("x", 3, 64), 64, 64, kernel=7, name="large")
    found = compiled(b.model(b.same_conv(y, 64, 4)), tmp_path, config=NpuConfig.preset(16, acc_width=24))
    assert list(host(found)) == ["large"]
    assert "beyond acc_width=24; build and compile with --acc-width 25" in host(found)["large"]


def test_a_concat_with_copies_that_the_processor_reads(rng: np.random.Generator, tmp_path: Path) -> None:
    """The parts have other scales than the whole: what leaves is the whole as it is quantised."""
    b = Builder(rng)
    x = b.requantize(b.input(1, 4, 6, 6, number=np.float32))
    parts = [b.requantize(b.node("Conv", x, b.weights(4, 4, 3, 3), b.bias(4)), scale) for scale in (0.04, 0.03)]
    whole = b.requantize(b.node("Concat", *parts, axis=1), 0.05)
    b.output(b.node("InstanceNormalization", whole, b.constant(np.ones(8, np.float32)),
                    b.constant(np.zeros(8, np.float32))), np.float32)
    path = b.save(tmp_path)
    application = open_application(path, CONFIG)
    samples = arbitrary_samples(application.inputs, 0)
    run = run_model(application, samples, "functional")
    assert run.mismatches == 0 and [reason.split()[0] for reason in host(application).values()] == [
        "InstanceNormalization"]
    (wanted,) = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, samples.inputs)
    (made,) = run.outputs.values()
    assert np.square(made - wanted).sum() < 0.01 * np.square(wanted).sum()


def test_what_helps_a_concat(rng: np.random.Generator, tmp_path: Path) -> None:
    """One scale for boxes and scores would leave nothing of the scores: it is not what a Concat is told to have."""
    b = Builder(rng)
    x = b.dequantize(b.input(1, 4, 6, 6))
    parts = [b.requantize(b.node("Conv", x, b.weights(4, 4, 3, 3), b.bias(4)), scale) for scale in (2.0, 0.004)]
    b.output(b.node("Concat", *parts, axis=1), np.float32)
    (reason,) = host(open_application(b.save(tmp_path), CONFIG)).values()
    assert reason == ("its result is not quantised, and an output of the model; its inputs are quantised each by "
                      "itself, as they should be; put QuantizeLinear and DequantizeLinear after it only where their "
                      "ranges are alike")


def test_a_bias_of_several_layers(rng: np.random.Generator, tmp_path: Path) -> None:
    """A copy of it must not be called as something that is there: here the values that onnxruntime would choose."""
    b = FloatBuilder(rng, ["n", 3, 12, 12])
    bias = b.constant(rng.normal(size=8) / 4)
    y = "x"
    for channels, name in ((3, f"{bias}0"), (8, f"{bias}1"), (8, f"{bias}2")):
        y = b.node("Relu", b.conv(y, channels, 8, name=name))
        b.nodes[-2].input.append(bias)
    assert not host(compiled(b.model(y), tmp_path))


def test_names_like_those_of_the_quantiser(rng: np.random.Generator, tmp_path: Path) -> None:
    b = FloatBuilder(rng, ["n", 3, 12, 12])
    y = b.node("Relu", b.same_conv("x", 3, 4), name="x_scale")
    y = b.node("Relu", b.same_conv(y, 4, 4), name="x_scale_QuantizeLinear_Output")
    assert not host(compiled(b.model(b.node("Relu", b.same_conv(y, 4, 4), name="x_QuantizeLinear_Input")), tmp_path))


def test_two_nodes_of_one_name(rng: np.random.Generator, tmp_path: Path) -> None:
    b = FloatBuilder(rng, ["n", 3, 12, 12])
    y = b.same_conv(b.same_conv(b.same_conv("x", 3, 4), 4, 4), 4, 4)
    model = b.model(y)
    for node in model.graph.node:
        node.name = "layer"
    assert [w.graph.layers[0].name for w in compiled(model, tmp_path).workloads] == ["layer"]


def test_nameless_dimensions(rng: np.random.Generator, tmp_path: Path) -> None:
    """What exporters that know no names write: two unknown sizes need not be one."""
    b = FloatBuilder(rng, ["n", 3, "?", "?"])
    model = b.model(b.same_conv("x", 3, 4), rank=4)
    for dim in model.graph.output[0].type.tensor_type.shape.dim:
        dim.dim_param = "?"
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    np.savez(tmp_path / "x.npz", x=rng.random((2, 3, 8, 12)).astype(np.float32))
    found = open_application(path, CONFIG, calibration=Calibration(tmp_path / "x.npz"))
    assert found.inputs["x"].shape == (1, 3, 8, 12)


def position(b: FloatBuilder, op: str) -> str:
    """What position embeddings are computed by, of one row of 12."""
    row = b.constant(np.linspace(0.1, 0.9, 12)[None, None, None])
    if op == "MatMul":
        return b.node("MatMul", b.node("MatMul", row, b.weights(12, 12)), b.weights(12, 12))
    if op == "Resize":
        return b.node("Resize", b.constant(b.rng.normal(size=(1, 4, 3, 4))), "", b.constant([1.0, 1.0, 4.0, 3.0]),
                      mode="linear")
    if op == "Conv":
        return b.conv(b.constant(b.rng.normal(size=(1, 2, 14, 14))), 2, 4)
    return b.node(op, row)


@pytest.mark.parametrize("op", ["Sin", "Cos", "Atan", "Erf", "Softplus", "ReduceL2", "MatMul", "Resize", "Conv"])
def test_functions_of_constants(op: str, rng: np.random.Generator, tmp_path: Path) -> None:
    b = FloatBuilder(rng, ["n", 3, 12, 12])
    y = b.node("Add", b.same_conv("x", 3, 4), position(b, op))
    found = compiled(b.model(b.same_conv(y, 4, 4)), tmp_path)
    assert [layer.op for workload in found.workloads for layer in workload.program.layers].count("conv") == 2


def test_constants_that_are_not_folded(rng: np.random.Generator, tmp_path: Path) -> None:
    """The processor makes them: here numbers at random, of hardly any width."""
    b = FloatBuilder(rng, ["n", 3, 12, 12])
    noise = b.node("RandomUniform", shape=[1, 4, 1, 1], low=0.5, high=0.5 + 1e-7, name="noise")
    y = b.node("Add", b.same_conv("x", 3, 4), noise)
    found = compiled(b.model(b.same_conv(y, 4, 4)), tmp_path)
    assert "is not evaluated on constants" in host(found)["noise"]


INT64, BOOL = TensorProto.INT64, TensorProto.BOOL


def beside(b: FloatBuilder, output: str, number: int, shape: Sequence[int | str], *more: str) -> onnx.ModelProto:
    """A model with a second input ``y``, and with further outputs."""
    graph = helper.make_graph(
        b.nodes, "two", [helper.make_tensor_value_info("x", TensorProto.FLOAT, b.shape),
                         helper.make_tensor_value_info("y", number, shape)],
        [onnx.ValueInfoProto(name=name) for name in (output, *more)], b.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", b.opset)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


def test_token_ids(rng: np.random.Generator, tmp_path: Path) -> None:
    """Of a table of two entries: random samples have no others."""
    b = FloatBuilder(rng, ["n", 8, 16])
    y = b.node("Add", b.node("Gather", b.constant(rng.normal(size=(2, 16))), "y"), "x")
    y = b.node("Relu", b.node("MatMul", y, b.weights(16, 32)))
    found = compiled(beside(b, b.node("MatMul", y, b.weights(32, 4)), INT64, ["n", 8]), tmp_path)
    assert sum(workload.program.layers[0].macs > 0 for workload in found.workloads)


def test_masks(rng: np.random.Generator, tmp_path: Path) -> None:
    b = FloatBuilder(rng, ["n", 3, 12, 12])
    y = b.node("Where", "y", b.node("Relu", b.same_conv("x", 3, 4)), b.constant(np.float32(0)))
    found = compiled(beside(b, b.same_conv(y, 4, 4), BOOL, ["n", 1, 12, 12]), tmp_path)
    assert [reason for name, reason in host(found).items() if name.startswith("where")] == [
        "its input y is bool: the processor has it"]


@pytest.mark.parametrize("directions, samples", [(1, 1), (2, 1), (2, "n")])
def test_states(directions: int, samples: int | str, rng: np.random.Generator, tmp_path: Path) -> None:
    """(directions, samples, hidden): the first axis is none of samples."""
    b = FloatBuilder(rng, [samples, 10, 12])
    turned = b.node("Transpose", "x", perm=[1, 0, 2])
    gru = helper.make_node("GRU", [turned, b.weights(directions, 48, 12), b.weights(directions, 48, 16), "", "", "y"],
                           ["all", "last"], name="gru", hidden_size=16,
                           direction="bidirectional" if directions == 2 else "forward", clip=9.0)      # not taken apart
    b.nodes.append(gru)
    y = b.node("Reshape", b.node("Transpose", "all", perm=[2, 0, 1, 3]), b.constant(np.array([0, 10, 16 * directions])))
    y = b.node("MatMul", b.node("Relu", b.node("MatMul", y, b.weights(16 * directions, 32))), b.weights(32, 8))
    found = compiled(beside(b, y, TensorProto.FLOAT, [directions, samples, 16], "last"), tmp_path)
    assert found.inputs["y"].shape == ((1, 2, 1, 16) if directions == 2 else (1, 1, 16))
    assert sum(layer.macs for workload in found.workloads for layer in workload.program.layers) == 10 * (
        16 * directions * 32 + 32 * 8)


@pytest.mark.parametrize("shape", [[3, 12, 12], [12, 12], [144], []])
def test_inputs_without_samples(shape: list[int], rng: np.random.Generator, tmp_path: Path) -> None:
    """All of such an input is of one sample."""
    b = FloatBuilder(rng, shape)
    if shape:
        y = b.node("Reshape", "x", b.constant(np.array([1, 3 if len(shape) == 3 else 1, 12, 12])))
        y = b.same_conv(y, 3 if len(shape) == 3 else 1, 4)
    else:
        y = b.node("Mul", b.constant(rng.normal(size=(1, 4, 12, 12))), "x")
    found = compiled(b.model(b.same_conv(b.node("Relu", y), 4, 4)), tmp_path)
    assert found.inputs["x"].shape == (1, *shape)


@pytest.mark.parametrize("batches", [(1, 4), (2, 4), (4, 1), (3, 3)])
def test_inputs_of_several_batches(batches: tuple[int, int], rng: np.random.Generator, tmp_path: Path) -> None:
    """Each sample is computed by itself, whatever their number was."""
    b = FloatBuilder(rng, [batches[0], 3, 12, 12])
    x = b.same_conv(b.node("Relu", b.same_conv("x", 3, 4)), 4, 4)
    y = b.node("MatMul", b.node("Relu", b.node("MatMul", "y", b.weights(9, 16))), b.weights(16, 4))
    found = compiled(beside(b, x, TensorProto.FLOAT, [batches[1], 9], y), tmp_path)
    assert not host(found) and [spec.shape for spec in found.inputs.values()] == [(1, 3, 12, 12), (1, 9)]


@pytest.mark.parametrize("batch", [1, 2, "n"])
def test_queries_keys_and_values(batch: int | str, rng: np.random.Generator, tmp_path: Path) -> None:
    """As exporters write them: in front of the samples."""
    b = FloatBuilder(rng, [batch, 16, 32])
    rows = batch if isinstance(batch, int) else 0
    y = b.node("Reshape", b.node("MatMul", "x", b.weights(32, 96)), b.constant(np.array([rows, 16, 3, 4, 8])))
    y = b.node("Transpose", y, perm=[2, 0, 3, 1, 4])
    q, k, v = (b.node("Gather", y, b.constant(np.array(number)), axis=0) for number in range(3))
    scores = b.node("Softmax", b.node("MatMul", q, b.node("Transpose", k, perm=[0, 1, 3, 2])), axis=-1)
    y = b.node("Transpose", b.node("MatMul", scores, v), perm=[0, 2, 1, 3])
    y = b.node("Reshape", y, b.constant(np.array([rows, 16, 32])))
    found = compiled(b.model(b.node("MatMul", y, b.weights(32, 32))), tmp_path)
    assert sum(layer.macs for workload in found.workloads for layer in workload.program.layers) == 16 * 32 * (96 + 32)


@pytest.mark.parametrize("tokens, channels", [(49, 64), (64, 49), (197, 12)])
def test_a_mean_over_tokens(tokens: int, channels: int, rng: np.random.Generator, tmp_path: Path) -> None:
    """Its result lies as pixels in memory, of which a matrix product may read any number; so do tokens all together."""
    b = FloatBuilder(rng, ["n", tokens, 16])
    y = b.node("Relu", b.node("MatMul", "x", b.weights(16, channels)))
    mean = b.node("ReduceMean", y, axes=[1], keepdims=0)
    mean = b.node("Gemm", mean, b.weights(channels, 4))
    flat = b.node("Gemm", b.node("Flatten", y), b.weights(tokens * channels, 4))
    found = compiled(b.model(b.node("Add", mean, flat)), tmp_path)
    assert not host(found)


def test_weights_alone_are_quantised(rng: np.random.Generator, tmp_path: Path) -> None:
    """To integers, one scale for each channel, or by a QuantizeLinear of float ones: activations need samples all the
    same.
    """
    b = FloatBuilder(rng, ["n", 3, 12, 12])
    integers = b.constant(rng.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8))
    scales, points = b.constant(rng.uniform(0.005, 0.02, 4)), b.constant(np.zeros(4, np.int8))
    first = b.node("DequantizeLinear", integers, scales, points, axis=0)
    scale, point = b.constant(np.float32(0.01)), b.constant(np.int8(3))
    second = b.node("QuantizeLinear", b.weights(4, 4, 3, 3), scale, point)
    y = b.node("Conv", b.node("Relu", b.node("Conv", "x", first)), b.node("DequantizeLinear", second, scale, point))
    assert not host(compiled(b.model(y), tmp_path))


def test_large_weights_alone_are_quantised(rng: np.random.Generator, tmp_path: Path) -> None:
    """In blocks of an axis; onnxruntime has the arrays of what is large, where a node reads that."""
    b = FloatBuilder(rng, ["n", 64], opset=21)
    integers = b.constant(rng.integers(-127, 128, (64, 32)).astype(np.int8))
    weights = b.node("DequantizeLinear", integers, b.constant(rng.uniform(0.005, 0.02, (4, 32))), axis=0, block_size=16)
    y = b.node("Relu", b.node("MatMul", "x", weights))
    assert not host(compiled(b.model(b.node("MatMul", y, b.weights(32, 8))), tmp_path))


def joining(rng: np.random.Generator, *, cut: bool) -> onnx.ModelProto:
    """A Concat whose second part begins within a block; or, with ``cut``, a Slice that does so."""
    b = FloatBuilder(rng, ["n", 3, 8, 8])
    if cut:
        y = b.same_conv("x", 3, 40)
        ends = [b.constant(np.array([number])) for number in (5, 38, 1)]
        y = b.node("Add", b.node("Slice", y, *ends, name="apart"), b.same_conv("x", 3, 33))
        return b.model(b.same_conv(y, 33, 4, name="last"))
    parts = [b.same_conv("x", 3, 17), b.same_conv("x", 3, 20)]
    return b.model(b.same_conv(b.node("Concat", *parts, axis=1, name="joined"), 37, 4, name="last"))


def test_too_many_channels_to_be_joined(rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                        ) -> None:
    monkeypatch.setattr("gen.passes.align_parts._MAX_WEIGHTS", 400)
    monkeypatch.setattr("gen.passes.space_parts._MOST", 0)
    found = compiled(joining(rng, cut=False), tmp_path)
    assert list(host(found)) == ["joined"]
    is_about(host(found)["joined"], "too-large")
    assert found.partition is not None and not found.partition.host_products


def test_too_many_channels_to_be_taken(rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                       ) -> None:
    monkeypatch.setattr("gen.passes.align_parts._MAX_WEIGHTS", 400)
    monkeypatch.setattr("gen.passes.space_parts._MOST", 0)
    found = compiled(joining(rng, cut=True), tmp_path)
    (reason,) = set(host(found).values())
    is_about(reason, "too-large")
    assert len(found.workloads) == 2 and found.partition is not None and not found.partition.host_products


def test_an_input_that_is_an_output(rng: np.random.Generator, tmp_path: Path) -> None:
    """As it is, beside what is computed of it; and nothing but a copy of it."""
    b = FloatBuilder(rng, ["n", 3, 12, 12])
    y = b.same_conv(b.node("Relu", b.same_conv("x", 3, 4)), 4, 4)
    model = b.model(y)
    model.graph.output.append(model.graph.input[0])
    found = compiled(model, tmp_path)
    assert list(found.outputs) == [y, "x"] and not host(found)
    found.save(tmp_path / "model.npu")
    again, samples = open_application(tmp_path / "model.npu", None), arbitrary_samples(found.inputs, 0)
    made = run_model(again, samples, "functional").outputs
    np.testing.assert_array_equal(made["x"], samples.inputs["x"])
    np.testing.assert_array_equal(made[y], run_model(found, samples, "functional").outputs[y])
    copy = b.node("Identity", "x", name="copy")
    model = b.model(y)
    model.graph.output.append(helper.make_tensor_value_info(copy, TensorProto.FLOAT, ["n", 3, 12, 12]))
    assert list(compiled(model, tmp_path).outputs) == [y, copy]


def test_memory(rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer whose weights are more than instructions reach."""
    b = FloatBuilder(rng, ["n", 3, 8, 8])
    y = b.same_conv(b.same_conv(b.same_conv("x", 3, 64), 64, 64, name="large"), 64, 4)
    monkeypatch.setattr("gen.lowering.placed.MAX_BEATS", 5000)
    found = compiled(b.model(y), tmp_path)
    assert list(host(found)) == ["large"] and found.partition is not None and found.partition.subgraphs == 2
    assert host(found)["large"].startswith("its weights and its result take ")
    assert host(found)["large"].endswith(" bytes, and instructions reach 40,000")


def test_padding_of_a_layer_that_was_added(rng: np.random.Generator, tmp_path: Path) -> None:
    """Of what makes channels of columns; more than a layer has room for is copied around its input."""
    b = FloatBuilder(rng, ["n", 3, 8, 64])
    y = b.conv(b.same_conv("x", 3, 4), 4, 4, kernel=5, name="apart", strides=[1, 8], pads=[2, 16, 2, 0])
    found = compiled(b.model(b.same_conv(y, 4, 4)), tmp_path)
    assert not host(found)


def test_nodes_of_layers_that_have_none(rng: np.random.Generator, tmp_path: Path) -> None:
    """Those after it, in whichever part of a tensor; at the end of a model those in front of it."""
    b = Builder(rng)
    x = b.dequantize(b.input(1, 4, 6, 6))
    parts = [b.requantize(b.node("Conv", x, b.weights(4, 4, 3, 3), b.bias(4)), 0.04, 2) for _ in range(2)]
    whole = b.requantize(b.node("Concat", *parts, axis=1), 0.04, 2)
    b.output(b.quantize(b.node("Conv", whole, b.weights(4, 8, 2, 2), b.bias(4)), 0.05))
    part0, part1, joined, last = (node.name for node in b.nodes if node.op_type in ("Conv", "Concat"))
    model = load_model(b.save(tmp_path))

    def at_fault(named: str, *without: str) -> list[str]:
        layers = [replace(layer, onnx_nodes=()) if layer.name in without else layer for layer in model.graph.layers]
        error = UnfitError({named: Reason("it does not fit", code="no-tile")})
        return list(UnfitNodesError(error, replace(model.graph, layers=layers), model.model).reasons)

    assert at_fault(part0) == [part0] and at_fault(part0, part0) == [last]
    assert at_fault(last, last) == [part0] and at_fault(last, last, part0) == [part1]
    assert at_fault(part1, part0, part1, last) == []
    (tensor,) = (name for name, tensor in model.graph.tensors.items() if tensor.shape[0] == 8)
    assert at_fault(tensor) == [joined]


def test_nothing_left(rng: np.random.Generator, tmp_path: Path) -> None:
    """The machine is too small: that is for the user to know."""
    b = FloatBuilder(rng, ["n", 16, 8, 40])
    model = b.model(b.conv(b.node("Relu", "x"), 16, 4, strides=[1, 11], name="apart"))
    with pytest.raises(CompileError, match="horizontal strides are at most 7, or products of such, not 11"):
        compiled(model, tmp_path)


def test_without_a_processor(rng: np.random.Generator, tmp_path: Path) -> None:
    onnx.save(strided(rng), tmp_path / "model.onnx")
    np.savez(tmp_path / "x.npz", x=rng.random((2, 3, 8, 75)).astype(np.float32))
    with pytest.raises(CompileError, match="layer apart0: horizontal strides are at most 7, or products of such"):
        open_application(tmp_path / "model.onnx", CONFIG, calibration=Calibration(tmp_path / "x.npz"),
                         host=HostOptions(allowed=False))


def test_functions_that_compare(rng: np.random.Generator, tmp_path: Path) -> None:
    """Of a float model: neither what is compared nor what that gives is quantised, nor a Cast to integers that finds
    places in a table, which the processor has. There are no leaps, or small ones: a rounding may come out on their
    other side.
    """
    b = FloatBuilder(rng, ["n", 3, 8, 8], opset=18)
    y = b.same_conv("x", 3, 4)
    size = b.node("Abs", y)
    y = b.node("Where", b.node("Greater", size, b.constant(np.float32(0.5))), y,
               b.node("Mul", y, b.node("Mul", size, b.constant(np.float32(2)))))
    assert not host(compiled(b.model(b.same_conv(y, 4, 4)), tmp_path))
    places = b.node("Cast", b.node("Clip", y, b.constant(np.float32(0)), b.constant(np.float32(3))),
                    to=TensorProto.INT64)
    table = b.constant(rng.normal(size=(4, 1)) / 4)
    found = b.node("Squeeze", b.node("Gather", table, places), b.constant(np.array([4])))
    made = compiled(b.model(b.same_conv(b.node("Add", y, found), 4, 4), rank=4), tmp_path)
    assert {node.op for node in made.partition.model.nodes if node.name in host(made)} >= {"Cast", "Gather"}
