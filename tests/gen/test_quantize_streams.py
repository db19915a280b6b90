"""Ranges and biases for layers in streams: least errors by their definition, means that are those of exact layers."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from cores.arch.stochastic import Circuit
from cores.config import NpuConfig
from gen.bench.classifier import Classifier
from gen.bench.stochastic_ranges import measure_ranges
from gen.cli import main
from gen.compiler import prepare
from gen.onnx.importer import load_model
from gen.options import CompileOptions
from gen.quantize.options import QuantizeOptions
from gen.quantize.quantize import quantize
from gen.quantize.sessions import values_of
from gen.quantize.streams import least_stream_error
from sim.golden import conv2d_accumulate
from sim.stochastic.circuits import sums_by_bits
from sim.stochastic.layers import conv2d_streams
from sim.stochastic.streams import Streams
from tests.gen.float_models import FloatBuilder

CONFIG = NpuConfig.preset(64, **NpuConfig.preset(64).feature_fields(["stochastic"]))


def network(rng: np.random.Generator) -> onnx.ModelProto:
    """Strides, pads, dilations, automatic pads, a pool, matrix products; the first reads the input, the second is
    depthwise."""
    b = FloatBuilder(rng, ["N", 3, 13, 12])
    x = b.node("Relu", b.conv("x", 3, 8, pads=[1, 1, 1, 1], name="first"))
    x = b.node("Relu", b.conv(x, 8, 8, group=8, pads=[1, 1, 1, 1], name="depthwise"))
    x = b.node("Relu", b.conv(x, 8, 12, pads=[0, 1, 2, 0], strides=[2, 1], dilations=[1, 2], name="wide"))
    x = b.node("Relu", b.conv(x, 12, 8, kernel=2, auto_pad="SAME_UPPER", strides=[2, 2], name="same"))
    x = b.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = b.node("Gemm", b.node("Flatten", x), b.weights(32, 20), b.constant(rng.normal(size=20)), name="hidden")
    return b.model(b.node("Gemm", b.node("Relu", x), b.weights(5, 20), name="last", transB=1))


@pytest.fixture
def samples(rng: np.random.Generator) -> np.ndarray:
    return rng.uniform(0, 1, (20, 3, 13, 12)).astype(np.float32)


def test_means_are_those_of_exact_layers(rng, samples, monkeypatch: pytest.MonkeyPatch):
    """Of each layer on the inputs that exact layers give: what streams add to a channel is out of its bias."""
    model, options = network(rng), QuantizeOptions(symmetric=True, streams=32)
    corrected = load_model("m", quantize(model, {"x": samples}, options).model.SerializeToString()).graph
    monkeypatch.setattr("gen.quantize.draft.correct_for_streams", lambda model, *_: model)
    exact_model = quantize(model, {"x": samples}, options).model
    plain = load_model("m", exact_model.SerializeToString()).graph
    graph = prepare(corrected, CONFIG, CompileOptions(stochastic=Streams(32)))
    inputs = {node.name: node.input[0] for node in exact_model.graph.node}
    # As ONNX defines them; the machine rounds some halves the other way.
    values = list(values_of(exact_model, sorted({inputs[layer.onnx_nodes[0]] for layer in plain.layers}),
                            {"x": samples}))
    found = 0
    for layer, exact in zip(graph.layers, plain.layers, strict=True):
        if layer.op == "pool" or layer.stochastic is None:
            if layer.op != "pool":
                np.testing.assert_array_equal(layer.requantize.bias, exact.requantize.bias)
            continue
        source, form = plain.tensors[exact.input], layer.stochastic
        x = np.stack([one[inputs[exact.onnx_nodes[0]]].reshape(source.shape) for one in values]) / source.scale
        x = np.rint(x).astype(np.int8)
        excess = (conv2d_streams(x, layer.weights, layer.stride, layer.pads, form.circuit, form.streams, form.fan_in)
                  - conv2d_accumulate(x, layer.weights, False, layer.stride, layer.pads, 0)).mean(axis=(0, 2, 3))
        moved = exact.requantize.bias - layer.requantize.bias
        assert np.abs(moved - excess).max() <= 0.5 and np.abs(excess).max() > 500
        found += 1
    assert found == 4


@pytest.mark.parametrize("bits", [16, 128])
def test_the_least_error_by_its_definition(bits, rng):
    """Of each share of the range: values and weights, bit by bit."""
    counts = np.sort(rng.integers(0, 1000, 12))[::-1] * (rng.uniform(size=12) < 0.8)
    weights = np.arange(-127, 128, 2)
    likely = np.exp(-0.5 * (weights / (127 / 3)) ** 2)
    values = (np.arange(12) + 0.5) / 12

    def error(share: float) -> float:
        q = np.minimum(np.rint(values / share * 127), 127).astype(np.int8)
        sums = sums_by_bits(Circuit.AND_LOOP, *np.broadcast_arrays(q[:, None, None], weights[:, None]), Streams(bits))
        return float(counts @ ((share / 127 * sums - values[:, None] * weights) ** 2 @ likely))

    best = least_stream_error(counts, bits)
    assert error(best) < 1.02 * min(error(share) for share in np.linspace(0.1, 1, 46))


def test_short_streams_want_small_ranges(rng):
    """With long ones clipping is what is left of the error."""
    counts = np.histogram(np.abs(rng.normal(size=100_000)), 2048)[0]
    shares = [least_stream_error(counts, bits) for bits in (8, 16, 64, 1024)]
    assert shares == sorted(shares) and shares[0] < 0.6 < 0.8 < shares[-1]


@pytest.mark.slow
def test_rows_of_ways():
    """All ways are measured, with the answers of the model itself as labels.

    The samples differ in brightness, and no class is the usual one: else all answers would be the same. Of one network:
    there are random ones that neither eight bits nor streams do justice to.
    """
    rng = np.random.default_rng(9)
    model = network(rng)
    samples = (rng.uniform(0, 1, (100, 3, 1, 1)) * rng.uniform(0, 1, (100, 3, 13, 12))).astype(np.float32)
    scores = np.concatenate([values["last"] for values in values_of(model, ["last"], {"x": samples})])
    model.graph.initializer.append(numpy_helper.from_array(-scores.mean(axis=0), "usual"))
    model.graph.node[-1].input.append("usual")
    labels = (scores - scores.mean(axis=0)).argmax(axis=1)
    rows = list(measure_ranges(Classifier(model, samples, samples, labels, labels)))
    assert [row.way for row in rows] == ["mse", "percentile 99", "percentile 97", "streams 64", "streams 32"]
    assert all(list(row.right) == [128, 64, 32, 16] for row in rows)
    assert rows[0].exact > 0.8 and np.mean([row.right[128] for row in rows]) > np.mean([row.right[16] for row in rows])


@pytest.mark.slow
def test_on_the_command_line(digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    """Another model than without, of the same form; what does not go together is one line."""
    with np.load(digits / "digits_test.npz") as arrays:
        np.savez(tmp_path / "few.npz", image=arrays["image"][:20])
    line = ["quantize", str(digits / "digits_float.onnx"), "--calibrate", str(tmp_path / "few.npz"), "--json"]
    for more, name in (([], "plain"), (["--streams", "64"], "streams")):
        assert main([*line, "--symmetric", *more, "-o", str(tmp_path / name)]) == 0
        assert json.loads(capsys.readouterr().out)["calibrated_on"] == 16
    plain, streams = (load_model(tmp_path / name).graph for name in ("plain", "streams"))
    assert [layer.name for layer in plain.layers] == [layer.name for layer in streams.layers]
    for more, words in ((["--streams", "64"], "--streams goes with --symmetric"),
                        (["--symmetric", "--streams", "65"], "power of two from 8 to 1024, not 65")):
        try:
            status = main([*line, *more, "-o", str(tmp_path / "no")])
        except SystemExit as stopped:
            status = stopped.code
        captured = capsys.readouterr()
        assert status == 2 and words in captured.err and not (tmp_path / "no").exists()


def test_options_that_are_none():
    with pytest.raises(ValueError, match="streams must be symmetric"):
        QuantizeOptions(streams=64)
    with pytest.raises(ValueError, match="power of two"):
        QuantizeOptions(symmetric=True, streams=12)
