"""Commands about a model of which the processor runs a part: what they cover, and that they say it."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from cores.config import NpuConfig
from gen.check.segments import compare_segments
from gen.cli import main
from gen.onnx.read import read
from gen.partition.partition import partition
from gen.prune.blocks import prune_blocks
from gen.prune.timing import QuantisedCounterpart
from gen.quantize.options import QuantizeOptions
from gen.quantize.quantize import quantize
from gen.run.application import open_application
from gen.run.host_time import host_seconds
from gen.run.workload import Workload
from tests.gen.float_models import FloatBuilder

Rng = np.random.Generator
CONFIG = NpuConfig.preset(16)


def normalised(rng: Rng) -> onnx.ModelProto:
    """Two convolutions, and between them cubes and their roots, which are the processor's."""
    b = FloatBuilder(rng, ["N", 3, 12, 12])
    y = b.node("Relu", b.same_conv("x", 3, 16), name="first")
    y = b.node("LpPool", y, name="norm", kernel_shape=[1, 1], p=3)
    y = b.node("GlobalAveragePool", b.same_conv(y, 16, 16))
    return b.model(b.node("Gemm", b.node("Flatten", y), b.weights(16, 5), b.constant(rng.normal(size=5))))


@pytest.fixture
def model(rng: Rng, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> onnx.ModelProto:
    """In float.onnx and, quantised, in q.onnx, with samples in x.npz."""
    monkeypatch.chdir(tmp_path)
    found = normalised(rng)
    samples = rng.normal(size=(16, 3, 12, 12)).astype(np.float32)
    onnx.save(found, "float.onnx")
    onnx.save(quantize(found, {"x": samples}, QuantizeOptions(method="mse")).model, "q.onnx")
    np.savez("x.npz", x=samples)
    return found


def test_compare(model: onnx.ModelProto, capsys: pytest.CaptureFixture) -> None:
    """Layers of both segments, and the output as the reference and the processor together make it."""
    assert main(["compare", "q.onnx", "--input", "x.npz", "--limit", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["layers"]) >= 3 and list(found["host"]) == ["norm"]
    (end,) = found["outputs"]
    assert end["agreement"] == 1 and end["values"] == 4 * 5 and end["largest"] < 0.1
    assert main(["compare", "float.onnx", "--calibrate", "x.npz", "--input", "x.npz", "--limit", "4", "--json"]) == 0
    quantised = json.loads(capsys.readouterr().out)     # on the way, by other samples: some are held out
    assert quantised["host"] == found["host"] and len(quantised["layers"]) == len(found["layers"])
    assert main(["compare", "q.onnx", "--input", "x.npz", "--limit", "4"]) == 0
    assert "1 node runs on the processor" in capsys.readouterr().out


def test_compare_sees_a_segment_that_is_wrong(model: onnx.ModelProto) -> None:
    """Weights of the second segment that are not the model's."""
    inputs = {"x": np.load("x.npz")["x"][:2]}
    whole = read("q.onnx")
    cut = partition(whole)
    assert compare_segments(cut, inputs, whole).outputs[0].largest < 0.1
    cut = partition(whole)
    last = cut.segments[-1].model
    weights = next(tensor for tensor in last.graph.initializer if len(tensor.dims) == 4)
    weights.CopyFrom(onnx.numpy_helper.from_array(-onnx.numpy_helper.to_array(weights), weights.name))
    found = compare_segments(cut, inputs, whole)
    assert found.largest <= 1 and found.outputs[0].largest > 0.1, "its layers are what that segment says"


def test_profile(model: onnx.ModelProto) -> None:
    application = open_application(Path("q.onnx"), CONFIG)
    (seconds,) = host_seconds(application)
    assert seconds > 0


@pytest.mark.slow
def test_prune(model: onnx.ModelProto, rng: Rng, capsys: pytest.CaptureFixture) -> None:
    """Cycles are those of both segments."""
    counterpart = QuantisedCounterpart.of(model, CONFIG, name="float.onnx")
    dense = counterpart.times(CONFIG)
    assert counterpart.on_host == 1 and len(counterpart.imported) == 2
    convs = [node.name for node in model.graph.node if node.op_type == "Conv"]
    assert set(convs) <= set(dense.nodes) and dense.total > sum(dense.nodes[name] for name in convs)
    density = dict.fromkeys(convs, 0.5)
    pruned = QuantisedCounterpart.of(prune_blocks(model, density, CONFIG), CONFIG, name="float.onnx").times(CONFIG)
    assert counterpart.times(CONFIG, density).total == pruned.total < dense.total
    assert main(["prune", "float.onnx", "--budget-cycles", str(pruned.total + 100), "--macs", "16", "-o", "p.onnx",
                 "--json"]) == 0
    out, said = capsys.readouterr()
    found = json.loads(out)
    assert found["on_host"] == 1 and found["cycles"]["after"] <= pruned.total + 100
    assert "1 node runs on the processor" in said


@pytest.mark.slow
def test_prune_without_what_does_not_fit(rng: Rng, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """A layer whose sums turn out to be wider than the accumulators when it is mapped; `compile` leaves it, too."""
    b = FloatBuilder(rng, ["N", 3, 8, 8])
    y = b.node("Relu", b.same_conv(b.same_conv("x", 3, 64), 64, 64, kernel=7, name="large"))
    model = b.model(b.same_conv(y, 64, 16, name="last"))
    onnx.save(model, tmp_path / "wide.onnx")
    config = NpuConfig.preset(16, acc_width=24)
    counterpart = QuantisedCounterpart.of(model, config, name="wide.onnx")
    found = counterpart.times(config)
    assert counterpart.on_host == 2 and "last" in found.nodes and "large" not in found.nodes
    assert main(["prune", str(tmp_path / "wide.onnx"), "--budget-cycles", str(found.total - 1), "--macs", "16",
                 "--acc-width", "24", "-o", str(tmp_path / "p.onnx"), "--json"]) == 0
    out, said = capsys.readouterr()
    assert json.loads(out)["cycles"]["after"] < found.total and "on the processor" in said


@pytest.mark.slow
def test_streams(model: onnx.ModelProto, capsys: pytest.CaptureFixture) -> None:
    """Layers of any segment: all that can be, or those named; none of them has to be in every segment."""
    assert main(["quantize", "float.onnx", "--symmetric", "--calibrate", "x.npz", "-o", "s.onnx"]) == 0
    machine = ["--macs", "16", "--features", "stochastic"]
    for choice, streams in (("64", [set(), {"gemm6"}]), ("conv0=64,conv3=32:8", [{"conv0"}, {"conv3"}]),
                            ("conv3=64", [set(), {"conv3"}])):
        assert main(["compile", "s.onnx", "-o", "p.npu", "--stochastic", choice, *machine]) == 0
        application = open_application(Path("p.npu"), None)
        workloads = [segment for segment in application.segments if isinstance(segment, Workload)]
        assert [set(workload.program.streams) for workload in workloads] == streams
        assert main(["run", "p.npu", "--input", "x.npz", "--limit", "2", "--target", "functional",
                     "--stream-shift", "0,1"]) == 0
    capsys.readouterr()
    assert main(["compile", "s.onnx", "-o", "p.npu", "--stochastic", "conv0=64,none=64", *machine]) == 1
    assert "model s: has no layer 'none' for streams" in capsys.readouterr().err
    assert main(["compile", "q.onnx", "-o", "p.npu", "--stochastic", "64", *machine]) == 1
    assert "model q: no layer can be computed by streams" in capsys.readouterr().err
