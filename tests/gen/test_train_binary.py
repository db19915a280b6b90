"""Training through signs: estimators as published, weights that stay binary, and what PyTorch exports of both."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from gen.cli import main
from gen.onnx.weights import why_no_signs
from gen.prune.measure import run_model
from gen.prune.plan import read_model
from tests.gen.float_models import FloatBuilder

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install '.[train]'")
torch.set_num_threads(1)

from gen.prune.errors import PruneError  # noqa: E402
from gen.train.binary import binary_weights, sign  # noqa: E402
from gen.train.fit import train  # noqa: E402
from gen.train.network import Network  # noqa: E402
from gen.train.session import Data, TrainingSession, TrainingStage  # noqa: E402

Rng = np.random.Generator


@pytest.mark.parametrize(("estimator", "slopes"), [("clipped", [0, 1, 1, 1, 1, 0]),
                                                   ("polynomial", [0, 0.5, 2, 1, 0, 0])])
def test_a_sign_and_its_slope(estimator: str, slopes: list[float]):
    x = torch.tensor([-1.5, -0.75, 0.0, 0.5, 1.0, 1.5], requires_grad=True)
    found = sign(x, estimator)
    found.sum().backward()
    assert found.tolist() == [-1, -1, 1, 1, 1, 1] and x.grad.tolist() == slopes


def test_binary_weights_have_one_size_in_each_channel():
    w = torch.tensor([[0.5, -1.5], [3.0, 1.0]], requires_grad=True)
    found = binary_weights(w, 1)
    found.sum().backward()
    assert found.tolist() == [[1.75, -1.25], [1.75, 1.25]]
    assert w.grad.tolist() == [[1.75, 0], [0, 1.25]]


def network(rng: Rng, weights: str) -> onnx.ModelProto:
    """A stem, a layer that reads signs, scores. ``weights`` of the layer: signs, float, or computed of float ones."""
    b = FloatBuilder(rng, ["N", 2, 6, 6])
    value = b.norm(b.same_conv("x", 2, 32, name="stem"), rng.uniform(0.5, 2, 32))
    latent = rng.normal(0, 0.3, (32, 32, 3, 3)).astype(np.float32)
    if weights == "graph":
        w = b.constant(latent)
        mean = b.node("ReduceMean", b.node("Abs", w), axes=[1, 2, 3], keepdims=1)
        made = b.node("Mul", mean, b.node("Sign", w))
    elif weights == "signs":
        made = b.constant(np.where(latent < 0, -1, 1) * rng.uniform(0.1, 0.2, (32, 1, 1, 1)).astype(np.float32))
    else:
        made = b.constant(latent)
    value = b.node("Conv", b.node("Sign", value), made, pads=[1] * 4, name="binary")
    value = b.node("Relu", b.norm(value, rng.uniform(0.05, 0.1, 32)))
    value = b.node("Flatten", b.node("GlobalAveragePool", value))
    return b.model(b.node("Gemm", value, b.weights(4, 32), b.weights(4), transB=1, name="scores"))


@pytest.fixture
def data(tmp_path: Path, rng: Rng) -> Path:
    label = np.arange(128) % 4
    brighter = np.stack([label & 1, label >> 1], 1)[:, :, None, None] - 0.5
    np.savez(tmp_path / "d.npz", x=(rng.normal(size=(128, 2, 6, 6)) + brighter).astype(np.float32), label=label)
    return tmp_path


def weights_of(model: onnx.ModelProto, node: str = "binary") -> np.ndarray:
    """Those that a node computes with, constants computed by onnxruntime."""
    conv = next(one for one in model.graph.node if one.name == node)
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    if conv.input[1] in arrays:
        return arrays[conv.input[1]]
    return run_model(model, {"x": np.zeros((1, 2, 6, 6), np.float32)}, [conv.input[1]])[0]


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["clipped", "polynomial"])
@pytest.mark.parametrize("weights", ["signs", "float", "graph"])
def test_a_binary_layer_is_trained_and_stays_binary(weights: str, estimator: str, data: Path, rng: Rng,
                                                    capsys: pytest.CaptureFixture):
    onnx.save(network(rng, weights), data / "m.onnx")
    model = read_model(data / "m.onnx")
    stage = TrainingStage(epochs=6, batch=16, lr=0.02, optimizer="adam", estimator=estimator,
                          binary=("binary",) if weights == "float" else ())
    session = TrainingSession(model="m.onnx", train=Data(path="d.npz"), test=Data(path="d.npz"), stages=(stage,))
    found = train(session, model, data, name="m.onnx")
    assert found.epochs[-1].loss < 0.7 * found.epochs[0].loss and found.epochs[-1].accuracy > 0.8
    old, new = weights_of(model), weights_of(found.model)
    assert why_no_signs(new, 0) == ""
    flipped = ((old < 0) != (new < 0)).mean()
    assert 0.002 < flipped < 0.5
    # What was trained is what onnxruntime has, and the machine: no sum of floats is zero at a Sign here.
    x = np.load(data / "d.npz")["x"]
    with torch.no_grad():
        scores = Network(found.model)(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(run_model(found.model, {"x": x})[0], scores, atol=1e-4)
    onnx.save(found.model, data / "t.onnx")
    assert main(["quantize", str(data / "t.onnx"), "--calibrate", str(data / "d.npz"), "-o", str(data / "q.onnx")]) == 0
    assert "reads signs, but" not in capsys.readouterr().err


def test_integers_of_a_quantised_model_stay_signs(data: Path, rng: Rng):
    onnx.save(network(rng, "signs"), data / "m.onnx")
    assert main(["quantize", str(data / "m.onnx"), "--calibrate", str(data / "d.npz"), "-o", str(data / "q.onnx")]) == 0
    model = read_model(data / "q.onnx")
    stage = TrainingStage(epochs=1, batch=16, lr=0.05, optimizer="adam")
    session = TrainingSession(model="", train=Data(path="d.npz"), stages=(stage,))
    found = train(session, model, data, name="q.onnx").model
    old, new = weights_of(model), weights_of(found)
    assert why_no_signs(new, 0) == "" and ((old < 0) != (new < 0)).any()


def test_a_pattern_like_which_no_layer_of_signs_is_called(rng: Rng):
    model = network(rng, "float")
    with pytest.raises(PruneError, match=r"no layer has a name like 'scores'; layers: binary"):
        Network(model, binary=["scores"])
    assert why_no_signs(weights_of(Network(model, binary=["bin*"]).exported()), 0) == ""
    assert Network(model).exported() == model


def exported_sign(b: FloatBuilder, x: str) -> str:
    """BiRealNet's BinaryActivation as PyTorch exports it: a sign, and a polynomial for the gradient that adds up to 0.
    """
    def number(value: float) -> str:
        return b.constant(np.float32(value))

    def mask(bound: float) -> str:
        return b.node("Cast", b.node("Less", x, number(bound)), to=TensorProto.FLOAT)

    def mixed(one: str, other: str, where: str) -> str:
        return b.node("Add", b.node("Mul", one, where), b.node("Mul", other, b.node("Sub", number(1), where)))

    square, double = b.node("Mul", x, x), b.node("Mul", x, number(2))
    first = mixed(number(-1), b.node("Add", square, double), mask(-1))
    second = mixed(first, b.node("Add", b.node("Neg", square), double), mask(0))
    third = mixed(second, number(1), mask(1))
    return b.node("Add", b.node("Sub", b.node("Sign", x), third), third)


def test_the_chain_of_an_exported_estimator_is_its_sign(data: Path, rng: Rng):
    b = FloatBuilder(rng, ["N", 2, 6, 6])
    value = exported_sign(b, b.norm(b.same_conv("x", 2, 16), np.ones(16)))
    weights = np.where(rng.random((8, 16, 3, 3)) < 0.5, -0.25, 0.25)
    value = b.node("Conv", value, b.constant(weights), pads=[1] * 4, name="binary")
    model = b.model(b.node("Flatten", b.node("GlobalAveragePool", value)))
    onnx.save(model, data / "m.onnx")
    read = read_model(data / "m.onnx")
    assert not {"Less", "Cast", "Neg"} & {node.op_type for node in read.graph.node}
    x = np.load(data / "d.npz")["x"]
    np.testing.assert_allclose(run_model(read, {"x": x})[0], run_model(model, {"x": x})[0], atol=1e-4)
    # Without that pass, too, it can be computed, and has the estimator's gradient.
    found = []
    for one in (model, read):
        trained = Network(one, estimator="polynomial")
        trained(torch.from_numpy(x[:8])).square().sum().backward()
        found.append({tuple(p.shape): p.grad.numpy() for p in trained.parameters() if p.grad is not None})
    del found[0][8, 16, 3, 3]       # only after the pass are these weights binary: they have another gradient
    for shape, gradient in found[0].items():
        np.testing.assert_allclose(gradient, found[1][shape], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("zero", [0.5, -0.1])
@pytest.mark.parametrize("estimator", ["clipped", "polynomial"])
def test_a_sign_that_says_what_zero_is_has_one_slope(zero: float, estimator: str, rng: Rng):
    """As `quantize` and Larq write it."""
    x, found = torch.from_numpy(rng.normal(0, 0.5, (6, 4, 3, 3)).astype(np.float32)), []
    x[0] = 0
    for moved in (True, False):
        b = FloatBuilder(np.random.default_rng(5), ["N", 4, 3, 3])
        value = b.node("Sign", b.conv("x", 4, 8, kernel=1))
        if moved:
            value = b.node("Sign", b.node("Add", value, b.constant(np.float32(zero))))
        network = Network(b.model(b.node("Flatten", b.node("GlobalAveragePool", value))), estimator=estimator)
        scores = network(x)
        (scores * torch.arange(8.0)).sum().backward()
        found.append((scores.detach().numpy(), next(iter(network.parameters())).grad.numpy()))
    (moved_scores, moved_slope), (scores, slope) = found
    np.testing.assert_array_equal(moved_scores[1:], scores[1:])
    np.testing.assert_array_equal(moved_scores[0], np.full(8, np.sign(zero)))
    np.testing.assert_allclose(moved_slope, slope, rtol=1e-5)
    assert np.abs(slope).max() > 0.1


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("operator", ["GreaterOrEqual", "Greater", "LessOrEqual", "Less"])
def test_a_sign_by_comparison(operator: str, first: int, swapped: bool, rng: Rng):
    """Where with 1 and -1: onnxruntime's values, at the threshold too, and the slope of a sign."""
    b = FloatBuilder(rng, ["N", 4, 3, 3])
    value = b.conv("x", 4, 4, kernel=1)
    compared = [value, b.constant(np.float32([0.25, -0.5, 0, 1]).reshape(4, 1, 1))]
    chosen = [b.constant(np.float32(1)), b.constant(np.float32(-1))]
    condition = b.node(operator, *(compared[::-1] if first else compared))
    value = b.node("Where", condition, *(chosen[::-1] if swapped else chosen))
    model = b.model(b.node("Flatten", value))
    identity = np.eye(4, dtype=np.float32)[:, :, None, None]
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(identity, model.graph.initializer[0].name))
    x = rng.choice(np.float32([0.25, -0.5, 0, 1, 3, -3]), (6, 4, 3, 3))
    network, leaf = Network(model), torch.from_numpy(x).requires_grad_()
    scores = network(leaf)
    np.testing.assert_array_equal(scores.detach().numpy(), run_model(model, {"x": x})[0])
    scores.sum().backward()
    rising = (operator.startswith("Greater") == (not first)) != swapped
    near = np.abs(x - np.float32([0.25, -0.5, 0, 1]).reshape(4, 1, 1)) <= 1
    np.testing.assert_array_equal(leaf.grad.numpy(), np.where(near, 1.0 if rising else -1.0, 0.0))
