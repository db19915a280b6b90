"""Training in PyTorch: the module computes what onnxruntime does, and what it learns is in the file."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from cores.config import NpuConfig
from gen.cli import main
from gen.prune.blocks import densities, prune_blocks
from gen.prune.counts import Counts
from gen.prune.measure import run_model
from gen.prune.plan import read_model
from gen.prune.timing import quantised, random_inputs
from gen.quantize.quantize import quantize
from tests.gen.float_models import FloatBuilder

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install '.[train]'")
torch.set_num_threads(1)

from gen.train.classes import accuracy  # noqa: E402
from gen.train.data import Dataset  # noqa: E402
from gen.train.errors import TrainError  # noqa: E402
from gen.train.fit import train  # noqa: E402
from gen.train.network import Network  # noqa: E402
from gen.train.session import Data, Prune, TrainingSession, TrainingStage  # noqa: E402


def everything(rng: np.random.Generator) -> onnx.ModelProto:
    """Operators in all their forms, float."""
    builder = FloatBuilder(rng, [1, 3, 12, 10])

    value = builder.norm(builder.conv("x", 3, 8, pads=[0, 1, 2, 1], strides=[2, 1]), np.ones(8))
    value = builder.node("Clip", value, builder.constant(np.float32(-0.5)), builder.constant(np.float32(1.5)))
    value = builder.node("AveragePool", value, kernel_shape=[3, 2], pads=[1, 0, 1, 1], strides=[1, 2])
    value = builder.node("LeakyRelu", builder.conv(value, 8, 8, group=8, dilations=[1, 2]), alpha=0.2)
    value = builder.node("MaxPool", value, kernel_shape=[2, 2], pads=[1, 0, 0, 1])
    pads = builder.constant(np.array([0, 0, 1, 0, 0, 0, 0, 2]))
    value = builder.node("Pad", value, pads, builder.constant(np.float32(0.5)))
    value = builder.node("Concat", builder.node("PRelu", value, builder.weights(8, 1, 1)),
                         builder.node("Sigmoid", value), axis=1)
    value = builder.node("Add", builder.node("Sub", value, builder.weights(16, 1, 1)), builder.node("Tanh", value))
    value = builder.node("AveragePool", value, kernel_shape=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1)
    value = builder.node("Transpose", value, perm=[0, 2, 3, 1])
    value = builder.node("ReduceMean", builder.node("Transpose", value, perm=[0, 3, 1, 2]), axes=[2, 3], keepdims=1)
    value = builder.node("Squeeze", value, builder.constant(np.array([2, 3])))
    value = builder.node("Reshape", value, builder.constant(np.array([1, 16])))
    value = builder.node("Gemm", value, builder.weights(16, 12), builder.weights(12), alpha=0.5, beta=2.0)
    value = builder.node("MatMul", value, builder.weights(12, 5))
    return builder.model(builder.node("Softmax", value, axis=1))


def scores(network: Network, inputs: dict[str, np.ndarray]) -> np.ndarray:
    with torch.no_grad():
        return network(torch.from_numpy(inputs[network.input])).numpy()


def test_the_operators_are_onnxruntimes(rng: np.random.Generator):
    model = everything(rng)
    inputs, network = random_inputs(model, 5), Network(model)
    assert network.scores == model.graph.node[-1].input[0]      # in front of the Softmax
    np.testing.assert_allclose(scores(network, inputs), run_model(model, inputs, [network.scores])[0], atol=1e-5)
    assert network.exported() == model


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("opset", [18, 20])
def test_operators_of_larger_models(auto_pad: str, opset: int, rng: np.random.Generator):
    """Parts of channels, sizes computed of shapes, padding that is not written out, functions of newer networks."""
    builder = FloatBuilder(rng, ["N", 3, 11, 10], opset=opset)
    value = builder.conv("x", 3, 8, auto_pad=auto_pad, strides=[2, 3])
    value = builder.node("MaxPool", value, kernel_shape=[3, 2], auto_pad=auto_pad, strides=[1, 1])
    shape = builder.node("Shape", value)
    half = builder.node("Div", builder.node("Gather", shape, builder.constant([1])), builder.constant([2]))
    zero, one = builder.constant([0]), builder.constant([1])
    value = builder.node("Concat", builder.node("Slice", value, zero, half, one),
                         builder.node("Abs", builder.node("Slice", value, half, builder.constant([99]), one)), axis=1)
    builder.nodes.append(
        onnx.helper.make_node("Split", [value], ["left", "right"], name="split", axis=1, num_outputs=2))
    value = builder.node("Add", builder.node("Elu", "left", alpha=0.7), builder.node("Softplus", "right"))
    if opset >= 20:
        value = builder.node("Gelu", builder.node("Mish", value), approximate="tanh")
    erf = builder.node("Erf", builder.node("Div", value, builder.constant(np.float32(1.4))))
    value = builder.node("Mul", value, builder.node("Exp", builder.node("Neg", erf)))
    value = builder.node("Sqrt", builder.node("Pow", value, builder.constant(np.float32(2))))
    value = builder.node("Resize", value, "", builder.constant(np.float32([1, 1, 2, 2])), mode="nearest",
                         coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    value = builder.node("Gather", value, builder.constant([3, 0, -1]), axis=1)
    value = builder.node("ReduceMax", value, builder.constant([2, 3]), keepdims=1)
    samples = builder.node("Gather", builder.node("Shape", value), zero)
    target = builder.node("Concat", samples, builder.constant([-1]), axis=0)
    value = builder.node("MatMul", builder.node("Reshape", value, target), builder.weights(3, 5))
    model = builder.model(value)
    inputs, network = random_inputs(model, 5), Network(model)
    np.testing.assert_allclose(scores(network, inputs), run_model(model, inputs)[0], atol=1e-5)
    assert network.exported() == model


def transformer(rng: np.random.Generator, mask: np.ndarray) -> onnx.ModelProto:
    """A learnt token and positions; attention of one head, whose scores have ``mask`` added; all normalisations."""
    builder = FloatBuilder(rng, ["N", 6, 3, 4], opset=23)
    value = builder.node("InstanceNormalization", "x", builder.weights(6), builder.weights(6), epsilon=1e-3)
    value = builder.node("GroupNormalization", value, builder.weights(6), builder.weights(6), num_groups=2)
    value = builder.node("Reshape", value, builder.constant(np.array([-1, 6, 12])))
    value = builder.node("Concat", builder.weights(1, 1, 6), builder.node("Transpose", value, perm=[0, 2, 1]), axis=1)
    value = builder.node("Add", value, builder.weights(1, 13, 6))
    value = builder.node("LayerNormalization", value, builder.weights(6), builder.weights(6), epsilon=1e-4)
    query, key, values = (builder.node("MatMul", value, builder.weights(6, 6)) for _ in range(3))
    scores = builder.node("MatMul", query, builder.node("Transpose", key, perm=[0, 2, 1]))
    shares = builder.node("Softmax", builder.node("Add", scores, builder.constant(mask.astype(np.float32))), axis=-1)
    value = builder.node("RMSNormalization", builder.node("MatMul", shares, values), builder.weights(6))
    value = builder.node("Reshape", value, builder.constant(np.array([-1, 13, 2, 3])))
    value = builder.node("Transpose", value, perm=[0, 1, 3, 2])
    value = builder.node("MatMul", builder.node("Reshape", value, builder.constant(np.array([-1, 13, 6]))),
                         builder.weights(6, 6))
    value = builder.node("Gather", value, builder.constant(np.array(0)), axis=1)
    return builder.model(builder.node("MatMul", value, builder.weights(6, 4)), rank=2)


@pytest.mark.parametrize("hides", [True, False])
def test_a_transformer_is_trained(hides: bool, rng: np.random.Generator):
    """Its operators are onnxruntime's; all is learnt but for a mask."""
    model = transformer(rng, np.where(np.tri(13).T, 0, -1e4) if hides else rng.normal(size=(13, 13)))
    inputs, network = random_inputs(model, 1), Network(model)      # the model has a token for one sample
    np.testing.assert_allclose(scores(network, inputs), run_model(model, inputs)[0], atol=1e-4)
    assert network.exported() == model
    losses = steps(network, random_inputs(model, 5), np.arange(5) % 4)
    assert losses[-1] < losses[0]
    before, after = (({t.name: onnx.numpy_helper.to_array(t) for t in m.graph.initializer if t.data_type == 1})
                     for m in (model, network.exported()))
    same = [name for name, array in before.items() if np.array_equal(array, after[name])]
    assert [before[name].shape for name in same] == [(13, 13)] * hides
    assert Counts.of(model).nonzero == sum(np.count_nonzero(array) for array in before.values())
    np.testing.assert_allclose(scores(network, inputs), run_model(network.exported(), inputs)[0], atol=1e-4)


def small(rng: np.random.Generator) -> onnx.ModelProto:
    builder = FloatBuilder(rng, ["N", 2, 8, 8])
    value = builder.node("Relu", builder.conv("x", 2, 16, pads=[1] * 4))
    value = builder.node("Relu", builder.node("Conv", value, builder.weights(16, 16, 3, 3), builder.weights(16)))
    value = builder.node("Flatten", builder.node("GlobalAveragePool", value))
    return builder.model(builder.node("Gemm", value, builder.weights(4, 16), builder.weights(4), transB=1))


def steps(network: Network, inputs: dict[str, np.ndarray], labels: np.ndarray) -> list[float]:
    """Losses of some steps."""
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    losses = []
    for _ in range(8):
        found = network(torch.from_numpy(inputs["x"]), norms=True)
        loss = torch.nn.functional.cross_entropy(found, torch.from_numpy(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_quantised_model_is_trained_as_it_will_run(rng: np.random.Generator):
    """On its own grid: the exported file gives the trained numbers, and only integers of learnt tensors differ."""
    model = quantised(small(rng))
    inputs, network = random_inputs(model, 24), Network(model)
    inputs["x"] = np.round(inputs["x"] * 20) / np.float32(20)
    labels = rng.integers(0, 4, 24)
    losses = steps(network, inputs, labels)
    assert losses[-1] < losses[0]
    exported = network.exported()
    np.testing.assert_allclose(run_model(exported, inputs, [network.scores])[0], scores(network, inputs), atol=1e-5)
    old, new = ({tensor.name: numpy_helper.to_array(tensor) for tensor in m.graph.initializer}
                for m in (model, exported))
    changed = {name for name in old if not np.array_equal(old[name], new[name])}
    assert {old[name].dtype.name for name in changed} == {"int8", "int32"} and len(changed) > 4
    assert all(old[name].dtype == new[name].dtype and old[name].shape == new[name].shape for name in old)
    # And what is exported is where it stands: once more through the module it is the same file.
    assert Network(exported).exported() == exported


@pytest.mark.slow
def test_scales_are_learnt(tmp_path: Path, rng: np.random.Generator):
    """From ranges that clip nearly all, which weights alone cannot make up for; and what is written was trained."""
    start = small(rng)
    label = np.arange(96) % 4
    brighter = 4 * np.stack([label & 1, label >> 1], 1)[:, :, None, None]
    np.savez(tmp_path / "d.npz", x=(rng.normal(size=(96, 2, 8, 8)) + brighter).astype(np.float32), label=label)
    learn = TrainingStage(epochs=6, batch=16, lr=0.1)
    good = train(TrainingSession(model="", train=Data(path="d.npz"), stages=(learn,)), start, tmp_path, name="m").model
    model = quantize(good, {"x": np.load(tmp_path / "d.npz")["x"]}).model
    for tensor in model.graph.initializer:
        if tensor.name == "x_scale":        # what is beyond a 40th of the input's range is clipped
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) / 40, tensor.name))
    losses, found = {}, {}
    for scales in (False, True):
        stage = TrainingStage(epochs=8, batch=16, lr=0.02, optimizer="adam", scales=scales)
        session = TrainingSession(model="", train=Data(path="d.npz"), stages=(stage,))
        trained = train(session, model, tmp_path, name="m")
        losses[scales], found[scales] = trained.epochs[-1].loss, trained.model
    assert losses[True] < 0.7 * losses[False]
    old, kept, new = ({tensor.name: numpy_helper.to_array(tensor) for tensor in one.graph.initializer}
                      for one in (model, found[False], found[True]))
    moved = {name for name in old if not np.array_equal(old[name], new[name])}
    assert "x_scale" in moved and new["x_scale"] > old["x_scale"] > 0
    assert not any(name.endswith("_scale") for name in old if not np.array_equal(old[name], kept[name]))
    assert not any(name.endswith("zero_point") for name in moved)
    makers = {node.output[0]: node for node in model.graph.node}
    layers = [node for node in model.graph.node if node.op_type in ("Conv", "Gemm") and len(node.input) == 3 and all(
        name in makers and makers[name].op_type == "DequantizeLinear" for name in node.input)]
    assert layers
    for node in layers:
        of_input, of_weights, of_bias = (new[makers[name].input[1]] for name in node.input)
        np.testing.assert_allclose(of_bias, of_input * of_weights, rtol=1e-6)
    inputs = {"x": np.load(tmp_path / "d.npz")["x"]}
    network = Network(found[True])
    np.testing.assert_allclose(run_model(found[True], inputs, [network.scores])[0], scores(network, inputs), atol=1e-3)


@pytest.mark.parametrize("integers", [False, True])
def test_pruned_weights_stay_zero(integers: bool, rng: np.random.Generator):
    model = small(rng)
    if integers:
        model = quantised(model)
    model = prune_blocks(model, 0.25, NpuConfig.preset(64))
    before = densities(model)
    for keep in (True, False):
        network = Network(model)
        network.keep_zeros(keep)
        steps(network, random_inputs(model, 8), rng.integers(0, 4, 8))
        after = densities(network.exported())
        assert before != after if not keep else all(after[node] <= before[node] for node in before)


@pytest.mark.parametrize("extra", [{}, {"optimizer": "adam", "distill": 0.5, "lr": 0.01}])
def test_a_session_is_repeatable(extra: dict, tmp_path: Path, rng: np.random.Generator, capsys: pytest.CaptureFixture):
    onnx.save(small(rng), tmp_path / "m.onnx")
    images = rng.normal(size=(64, 2, 8, 8)).astype(np.float32)
    labels = (images.mean((2, 3)) > 0).astype(int) @ [1, 2]
    np.savez(tmp_path / "d.npz", x=images, label=labels)
    session = {"model": "m.onnx", "train": {"path": "d.npz"}, "test": {"path": "d.npz"}, "mirror": True,
               "shift": 1, "stages": [{"epochs": 2, "batch": 16, **extra},
                                      {"epochs": 1, "batch": 16, **extra, "prune": {"density": 0.25, "macs": 64}}]}
    (tmp_path / "s.json").write_text(json.dumps(session))
    files = []
    for name in ("a.onnx", "b.onnx"):
        assert main(["train", str(tmp_path / "s.json"), "-o", str(tmp_path / name), "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert [(epoch["stage"], epoch["number"]) for epoch in report["epochs"]] == [(1, 1), (1, 2), (2, 1)]
        assert report["epochs"][1]["loss"] < report["epochs"][0]["loss"]
        files.append((tmp_path / name).read_bytes())
    assert files[0] == files[1]
    assert sorted(densities(read_model(tmp_path / "a.onnx")).values())[:2] == [0.25, 0.25]


def test_a_model_pruned_before_is_taught_as_one_that_a_stage_prunes(tmp_path: Path, rng: np.random.Generator):
    model = small(rng)
    np.savez(tmp_path / "d.npz", x=rng.normal(size=(32, 2, 8, 8)).astype(np.float32), label=rng.integers(0, 4, 32))

    def trained(start: onnx.ModelProto, prune: Prune | None, teacher: onnx.ModelProto | None) -> bytes:
        stage = TrainingStage(epochs=1, batch=8, lr=0.1, distill=0.7, prune=prune)
        session = TrainingSession(model="", train=Data(path="d.npz"), stages=(stage,))
        return train(session, start, tmp_path, name="m", teacher=teacher).model.SerializeToString()

    expected = trained(model, Prune(density=0.25, macs=64), None)
    pruned = prune_blocks(model, 0.25, NpuConfig.preset(64))
    assert trained(pruned, None, model) == expected
    assert trained(pruned, None, None) != expected


def test_gammas_get_smaller(tmp_path: Path, rng: np.random.Generator):
    """What --channels gamma needs is had by a penalty on them."""
    builder = FloatBuilder(rng, ["N", 2, 8, 8])
    value = builder.node("Relu", builder.norm(builder.conv("x", 2, 16), np.ones(16)))
    value = builder.node("Flatten", builder.node("GlobalAveragePool", value))
    model = builder.model(builder.node("Gemm", value, builder.weights(16, 4)))
    np.savez(tmp_path / "d.npz", x=rng.normal(size=(32, 2, 8, 8)).astype(np.float32), label=rng.integers(0, 4, 32))
    sums = []
    for penalty in (0.0, 0.1):
        session = TrainingSession(model="", train=Data(path="d.npz"),
                          stages=(TrainingStage(epochs=4, batch=8, lr=0.1, gamma_penalty=penalty),))
        trained = Network(train(session, model, tmp_path, name="m").model)
        sums.append(sum(float(gamma.detach().abs().sum()) for gamma in trained.gammas))
    assert sums[1] < 0.9 * sums[0]


def test_what_cannot_be_trained(rng: np.random.Generator):
    builder = FloatBuilder(rng, ["N", 4])
    model = builder.model(builder.node("Hardmax", "x"))
    with pytest.raises(TrainError, match=r"node hardmax0 \(Hardmax\) cannot be trained"):
        Network(model)


def test_a_map_is_no_score_of_classes(rng: np.random.Generator):
    builder = FloatBuilder(rng, ["N", 2, 6, 6])
    network = Network(builder.model(builder.same_conv("x", 2, 3)))
    with pytest.raises(TrainError, match=r"shape \(3, 6, 6\) for each sample, and only scores of classes"):
        accuracy(network, Dataset(rng.normal(size=(4, 2, 6, 6)).astype(np.float32), np.arange(4) % 3))
