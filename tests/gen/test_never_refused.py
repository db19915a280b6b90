"""A model is not refused for one place: what is too much for the machine is left to the processor, with its reason."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from cores.config import NpuConfig
from gen.ir.errors import CompileError
from gen.onnx.read import read
from gen.run import application as applications
from gen.run.application import Application, HostOptions, open_application
from gen.run.calibration import Calibration
from gen.run.inputs import Samples, arbitrary_samples, model_specs
from gen.run.runner import run_model
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
    for output, wanted in zip(session.get_outputs(), session.run(None, samples[0]), strict=True):
        assert run.outputs[output.name].shape == wanted.shape
        assert np.square(run.outputs[output.name] - wanted).sum() <= near * np.square(wanted).sum() + 1e-12
    return application


def host(application: Application) -> dict[str, str]:
    return {} if application.partition is None else application.partition.host


def strided(rng: np.random.Generator, layers: int = 1) -> onnx.ModelProto:
    """Convolutions 8 columns apart between others."""
    b = FloatBuilder(rng, ["n", 3, 8, 8 ** layers + 64])
    y = b.same_conv("x", 3, 4)
    for number in range(layers):
        y = b.same_conv(b.conv(y, 4, 4, name=f"apart{number}", strides=[1, 8], pads=[1, 1, 1, 1]), 4, 4)
    return b.model(y)


def test_strides(rng: np.random.Generator, tmp_path: Path) -> None:
    found = compiled(strided(rng), tmp_path)
    assert host(found) == {"apart0": "horizontal strides are at most 7, not 8"}
    assert found.partition is not None and found.partition.subgraphs == 2


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
    assert len(rounds) == 1


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


def test_nothing_left(rng: np.random.Generator, tmp_path: Path) -> None:
    """The machine is too small: that is for the user to know."""
    b = FloatBuilder(rng, ["n", 16, 8, 32])
    model = b.model(b.conv(b.node("Relu", "x"), 16, 4, strides=[1, 8], name="apart"))
    with pytest.raises(CompileError, match="horizontal strides are at most 7, not 8"):
        compiled(model, tmp_path)


def test_without_a_processor(rng: np.random.Generator, tmp_path: Path) -> None:
    onnx.save(strided(rng), tmp_path / "model.onnx")
    np.savez(tmp_path / "x.npz", x=rng.random((2, 3, 8, 72)).astype(np.float32))
    with pytest.raises(CompileError, match="layer apart0: horizontal strides are at most 7, not 8"):
        open_application(tmp_path / "model.onnx", CONFIG, calibration=Calibration(tmp_path / "x.npz"),
                         host=HostOptions(allowed=False))
