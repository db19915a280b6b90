"""Training through streams: what is trained is what the machine computes."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from cores.config import NpuConfig
from gen.compiler import prepare
from gen.ir import reference
from gen.onnx.importer import load_model
from gen.options import CompileOptions
from gen.quantize.options import QuantizeOptions
from gen.quantize.quantize import quantize
from sim.stochastic.streams import Streams
from tests.gen.float_models import FloatBuilder
from tests.gen.qdq import Builder

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install '.[train]'")
torch.set_num_threads(1)

from gen.train.errors import TrainError  # noqa: E402
from gen.train.fit import train  # noqa: E402
from gen.train.network import Network  # noqa: E402
from gen.train.session import Data, TrainingSession, TrainingStage  # noqa: E402

CONFIG = NpuConfig.preset(64, **NpuConfig.preset(64).feature_fields(["stochastic"]))


def network(rng: np.random.Generator, form: str = "Gemm") -> onnx.ModelProto:
    """A convolution, which stays exact, and a layer of a form: strided, after a maximum, a matrix product."""
    builder = FloatBuilder(rng, ["N", 3, 9, 8])
    value = builder.node("Relu", builder.conv("x", 3, 20, pads=[1] * 4))
    if form == "Conv":
        value = builder.conv(value, 20, 12, pads=[0, 1, 1, 0], strides=[2, 1], dilations=[1, 2])
        return builder.model(value)
    value = builder.node("MaxPool", value, kernel_shape=[3, 3], strides=[3, 3])
    value = builder.node("Flatten", value)
    if form == "MatMul":
        return builder.model(builder.node("MatMul", value, builder.weights(120, 12)), rank=2)
    return builder.model(builder.node("Gemm", value, builder.weights(12, 120), builder.weights(12), transB=1), rank=2)


def quantised(model: onnx.ModelProto, samples: np.ndarray, *, symmetric: bool = True) -> onnx.ModelProto:
    return quantize(model, {"x": samples}, QuantizeOptions(symmetric=symmetric, method="mse")).model


def by_the_machine(model: onnx.ModelProto, samples: np.ndarray, bits: int | None) -> np.ndarray:
    options = CompileOptions(stochastic=None if bits is None else Streams(bits))
    graph = prepare(load_model("m", model.SerializeToString()).graph, CONFIG, options)
    (scores,) = reference.run(graph, {"x": samples})[0].values()
    return scores.reshape(len(samples), -1)


@pytest.mark.parametrize("form", ["Conv", "Gemm", "MatMul"])
@pytest.mark.parametrize("bits", [16, 64])
def test_a_layer_is_trained_as_streams_compute_it(bits: int, form: str, rng: np.random.Generator):
    samples = rng.normal(size=(40, 3, 9, 8)).astype(np.float32)
    model = quantised(network(rng, form), samples)
    trained = Network(model, streams=bits)
    with torch.no_grad():
        found = trained.values(torch.from_numpy(samples), [model.graph.output[0].name])[0].numpy().reshape(40, -1)
    wanted, exact = (by_the_machine(model, samples, some) for some in (bits, None))
    scale = model.graph.node[-1].input[1]
    step = numpy_helper.to_array(next(one for one in model.graph.initializer if one.name == scale)).item()
    # Of an input whose half is rounded up in the one and to even in the other, streams may have another bit.
    assert (np.abs(found - wanted) < 1.5 * step).mean() > 0.9
    assert np.abs(found - wanted).mean() < 0.1 * np.abs(exact - wanted).mean()


def test_streams_answer_better_where_training_went_through_them(tmp_path: Path, rng: np.random.Generator):
    samples = rng.normal(size=(192, 3, 9, 8)).astype(np.float32)
    model = quantised(network(rng), samples)
    scores = by_the_machine(model, samples, None)
    labels = ((scores - scores.mean(0)) / scores.std(0)).argmax(1)
    np.savez(tmp_path / "train.npz", x=samples, label=labels)

    def right(bits: int | None) -> float:
        """By streams of eight bits, after training through streams of ``bits``."""
        session = TrainingSession(model="", train=Data(path="train.npz"), stages=(
            TrainingStage(epochs=8, batch=16, lr=0.01, streams=bits),))
        found = by_the_machine(train(session, model, tmp_path, name="m").model, samples, 8)
        return float((found.argmax(1) == labels).mean())

    assert right(8) > right(None)


@pytest.mark.parametrize("point", [0, 128])
def test_unsigned_integers(point: int, rng: np.random.Generator):
    """128 is the machine's zero, 0 its lowest integer."""
    builder = Builder(rng, number=np.uint8)
    x = builder.requantize(builder.input("N", 3, 8, 8, number=np.float32), 0.05, 128)
    x = builder.requantize(builder.node("Relu", builder.node("Conv", x, builder.weights(8, 3, 3, 3))), 0.03, point)
    builder.output(builder.requantize(builder.node("Conv", x, builder.weights(4, 8, 3, 3)), 0.05, 128), np.float32)
    if not point:
        with pytest.raises(TrainError, match="zero point, and streams"):
            Network(builder.build(), streams=16)
        return
    samples = rng.uniform(-6, 6, (4, 3, 8, 8)).astype(np.float32)
    with torch.no_grad():
        (found,) = Network(builder.build(), streams=16).values(
            torch.from_numpy(samples), [builder.outputs[0].name])
    wanted = by_the_machine(builder.build(), samples, 16)
    assert np.abs(found.numpy().reshape(4, -1) - wanted).mean() < 0.01


def test_what_has_no_streams(rng: np.random.Generator):
    samples = rng.normal(size=(20, 3, 9, 8)).astype(np.float32)
    with pytest.raises(TrainError, match="zero point, and streams .* --symmetric"):
        Network(quantised(network(rng), samples, symmetric=False), streams=32)
    with pytest.raises(TrainError, match="no layer can be trained through streams"):
        Network(network(rng), streams=32)
