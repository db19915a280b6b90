"""Channel pruning: what goes changes nothing where it did nothing, and the model is really smaller."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cores.config import NpuConfig
from gen.cli import main
from gen.prune.channels import ChannelMap
from gen.prune.errors import PruneError
from gen.prune.measure import run_model
from gen.prune.plan import Goal, Pruner, read_model
from gen.prune.scores import apoz_scores, gamma_scores, removals
from gen.prune.shrink import shrink
from gen.prune.timing import random_inputs
from tests.gen.float_models import FloatBuilder

CONFIG = NpuConfig.preset(64)   # 16 input lanes


def gamma(rng: np.random.Generator, channels: int, dead: int) -> np.ndarray:
    values = rng.uniform(0.5, 2, channels) * rng.choice([-1, 1], channels)
    values[rng.permutation(channels)[:dead]] = 0
    return values.astype(np.float32)


def shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Of the weights, by node."""
    dims = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    return {node.name: dims[node.input[1]] for node in model.graph.node if node.op_type in ("Conv", "Gemm", "MatMul")}


def without_dead(model: onnx.ModelProto) -> onnx.ModelProto:
    """Without the channels of gamma 0, after checking that this changes no output."""
    channels = ChannelMap.of(model)
    scores = gamma_scores(channels)
    dead = frozenset(root for coupled in channels.coupled() for root in coupled.tolist() if scores[root] == 0)
    assert dead
    inputs = random_inputs(model, 3)
    smaller = shrink(model, channels, dead, inputs, by_gamma=True)
    onnx.checker.check_model(smaller, full_check=True)
    for old, new in zip(run_model(model, inputs), run_model(smaller, inputs), strict=True):
        np.testing.assert_allclose(new, old, atol=2e-4, rtol=1e-4)
    assert len(smaller.SerializeToString()) < len(model.SerializeToString())
    return smaller


@pytest.mark.parametrize("end", ["gemm", "transposed gemm", "matmul", "reshape", "fixed reshape", "matmul and bias"])
def test_dead_channels_go_unnoticed(end: str, rng: np.random.Generator):
    """Their constant act(beta) is in the next layer's bias, after depthwise layers, pools and flattening too."""
    builder = FloatBuilder(rng, [1, 3, 16, 16])
    value = builder.node("LeakyRelu", builder.norm(builder.conv("x", 3, 24), gamma(rng, 24, 7)))
    value = builder.conv(value, 24, 24, group=24)
    value = builder.node("Mul", value, builder.constant(rng.normal(size=(24, 1, 1)).astype(np.float32)))
    value = builder.node("MaxPool", value, kernel_shape=[2, 2], strides=[2, 2])
    value = builder.node("Relu", builder.norm(builder.conv(value, 24, 20), gamma(rng, 20, 11)))
    features = 20 * 4 * 4
    if "reshape" in end:
        target = [1, features] if end == "fixed reshape" else [1, -1]
        value = builder.node("Reshape", value, builder.constant(np.array(target)))
    else:
        value = builder.node("Flatten", value)
    if "matmul" in end:
        value = builder.node("MatMul", value, builder.weights(features, 10))
        if "bias" in end:
            value = builder.node("Add", value, builder.weights(10))
    elif end == "transposed gemm":
        value = builder.node("Gemm", value, builder.weights(10, features), builder.weights(10), transB=1, alpha=0.5,
                             beta=2.0)
    else:
        value = builder.node("Gemm", value, builder.weights(features, 10))
    smaller = without_dead(builder.model(value))
    found = list(shapes(smaller).values())
    assert found[:3] == [(17, 3, 3, 3), (17, 1, 3, 3), (9, 17, 3, 3)]
    assert sorted(found[3]) == [10, 9 * 16]


def test_a_residual_chain_has_one_mask(rng: np.random.Generator):
    """A channel goes only where it is dead in every tensor that is added."""
    builder = FloatBuilder(rng, ["N", 3, 6, 6])
    first, second = (np.ones(8, np.float32) for _ in range(2))
    first[[1, 2, 5]], second[[2, 3, 5]] = 0, 0
    start = builder.node("Relu", builder.norm(builder.conv("x", 3, 8, kernel=1), first))
    inner = builder.node("Relu", builder.norm(builder.conv(start, 8, 12, kernel=1), gamma(rng, 12, 4)))
    added = builder.node("Add", builder.norm(builder.conv(inner, 12, 8, kernel=1), second), start)
    model = builder.model(builder.conv(builder.node("Relu", added), 8, 6))
    found = list(shapes(without_dead(model)).values())
    assert found == [(6, 3, 1, 1), (8, 6, 1, 1), (6, 8, 1, 1), (6, 6, 3, 3)]
    # The mean over the chain's writers is what counts.
    channels = ChannelMap.of(model)
    scores = gamma_scores(channels)
    chain = channels.roots(channels.atoms[added])
    np.testing.assert_array_equal([scores[root] for root in chain.tolist()], (first + second) / 2)


def test_concatenated_channels_keep_their_places(rng: np.random.Generator):
    builder = FloatBuilder(rng, ["N", 3, 8, 8])
    parts = [builder.node("Relu", builder.norm(builder.conv("x", 3, n), gamma(rng, n, dead)))
             for n, dead in ((10, 3), (6, 2), (9, 0))]
    value = builder.norm(builder.node("Concat", *parts, axis=1), np.ones(25, np.float32))
    model = builder.model(builder.conv(builder.node("Relu", value), 25, 4))
    # The BatchNormalization after the Concat makes something of dead channels again.
    channels = ChannelMap.of(model)
    assert [len(coupled) for coupled in channels.coupled()] == [10, 6, 9]
    inputs = random_inputs(model, 2)
    for root in (0, 4):
        dead = frozenset(channels.coupled()[1].tolist()[root:root + 2])
        smaller = shrink(model, channels, dead, inputs, by_gamma=False)
        onnx.checker.check_model(smaller, full_check=True)
        assert shapes(smaller)[model.graph.node[-1].name] == (4, 23, 3, 3)
        # As if those channels had been their mean.
        middle = model.graph.node[-1].input[0]
        values, = run_model(model, inputs, [middle])
        places = np.flatnonzero(np.isin(channels.roots(channels.atoms[middle]), list(dead)))
        values[:, places] = values[:, places].mean((0, 2, 3))[:, None, None]
        last = onnx.ModelProto()
        last.CopyFrom(model)
        del last.graph.node[:-1], last.graph.input[:]
        last.graph.input.append(helper.make_tensor_value_info(middle, TensorProto.FLOAT, list(values.shape)))
        np.testing.assert_allclose(run_model(smaller, inputs)[0], run_model(last, {middle: values})[0], atol=1e-4)


@pytest.mark.parametrize("op", ["grouped", "split", "softmax", "shared", "bias"])
def test_what_is_not_understood_stays(op: str, rng: np.random.Generator):
    builder = FloatBuilder(rng, ["N", 8, 4, 4])
    value = builder.node("Relu", builder.norm(builder.conv("x", 8, 8, kernel=1), gamma(rng, 8, 4)))
    weights = builder.weights(8, 8, 1, 1)
    if op == "grouped":
        value = builder.conv(value, 8, 8, group=2)
    elif op == "split":
        builder.nodes.append(helper.make_node("Split", [value], ["half", "other"], name="split", axis=1))
        value = builder.node("Concat", "other", "half", axis=1)
    elif op == "softmax":
        value = builder.node("Softmax", value, axis=1)
    elif op == "bias":
        value = builder.node("Conv", value, weights, builder.node("Neg", builder.weights(8)))
    else:
        value = builder.node("Conv", builder.node("Conv", value, weights), weights)
    model = builder.model(builder.conv(value, 8, 5, kernel=1))
    channels = ChannelMap.of(model)
    made = channels.atoms[model.graph.node[2].output[0]]
    assert not any(np.isin(coupled, made).any() for coupled in channels.coupled())
    smaller = shrink(model, channels, frozenset(root for coupled in channels.coupled() for root in coupled.tolist()),
                     random_inputs(model, 2), by_gamma=False)
    onnx.checker.check_model(smaller, full_check=True)


def test_whole_blocks_go_first_to_last(rng: np.random.Generator):
    builder = FloatBuilder(rng, ["N", 3, 12, 12])
    wide, narrow = np.linspace(1, 2, 40).astype(np.float32), np.full(16, 0.1, np.float32)
    value = builder.node("Relu", builder.norm(builder.conv("x", 3, 40), wide))
    value = builder.node("Relu", builder.norm(builder.conv(value, 40, 16), narrow))
    model = builder.model(builder.conv(value, 16, 5))
    channels = ChannelMap.of(model)
    states = removals(channels, gamma_scores(channels), CONFIG.ic_lanes)
    # 40 -> 32 -> 16, the smallest first; a layer of one block stays.
    assert [sorted(state) for state in states] == [[], list(range(3, 11)), list(range(3, 27))]


def residual(rng: np.random.Generator, *, writers: int) -> onnx.ModelProto:
    """A layer of 64 channels, then a chain of 64 to which ``writers`` layers are added; gammas are alike in all."""
    def norm(value: str) -> str:
        return builder.norm(value, np.linspace(0.1, 1, 64).astype(np.float32))

    builder = FloatBuilder(rng, ["N", 3, 6, 6])
    alone = builder.node("Relu", norm(builder.conv("x", 3, 64, kernel=1)))
    chain = norm(builder.conv(alone, 64, 64, kernel=1))
    for _ in range(writers - 1):
        chain = builder.node("Add", norm(builder.conv(alone, 64, 64, kernel=1)), chain)
    return builder.model(builder.conv(builder.node("Relu", chain), 64, 6, kernel=1))


def left(model: onnx.ModelProto, *, share: float, least: int = 0) -> list[int]:
    """Channels left of the layer and of the chain at the first state without ``share`` of both."""
    channels = ChannelMap.of(model)
    states = removals(channels, gamma_scores(channels), CONFIG.ic_lanes, least=[least] * 2)
    state = next((state for state in states if len(state) >= share * 128), states[-1])
    return [len(set(coupled.tolist()) - state) for coupled in channels.coupled()]


@pytest.mark.parametrize("writers", [1, 8])
def test_a_chain_thins_out_as_a_layer_does(writers: int, rng: np.random.Generator):
    """However many layers write to it."""
    assert left(residual(rng, writers=writers), share=0.5) == [32, 32]


def test_a_floor_keeps_a_share_of_each_layer_and_chain(rng: np.random.Generator):
    model = residual(rng, writers=3)
    assert left(model, share=1) == [16, 16]
    assert left(model, share=1, least=32) == [32, 32]
    assert left(model, share=1, least=33) == [48, 48]
    # All rounds together: each by itself would take its share of what the last one left.
    pruned = Pruner(model, CONFIG, name="model").prune(Goal(kind="gamma", share=0.9, rounds=2, floor=0.5))
    assert [shape[0] for shape in list(shapes(pruned.model).values())[:2]] == [32, 32]


@pytest.mark.parametrize(("layers", "share", "expected"), [
    ("conv0", 0.9, [16, 64]), ("conv[123]*", 0.9, [64, 16]), ("conv2", 0.9, [64, 64]), ("*", 0.5, [32, 32])])
def test_a_group_of_layers_is_pruned_alone(layers: str, share: float, expected: list[int], rng: np.random.Generator):
    """A residual chain, of which some layers are not chosen, stays."""
    model = residual(rng, writers=2)
    convs = [node for node in model.graph.node if node.op_type == "Conv"]
    names = {node.name: f"conv{number}" for number, node in enumerate(convs)}
    for node in model.graph.node:
        node.name = names.get(node.name, node.name)
    pruned = Pruner(model, CONFIG, name="model").prune(Goal(kind="gamma", share=share, layers=(layers,)))
    assert [shape[0] for shape in list(shapes(pruned.model).values())[:2]] == expected
    if expected != [64, 64]:
        assert pruned.gone == pytest.approx(0.5 if layers == "*" else 0.75)
    with pytest.raises(PruneError, match=r"model: no layer has a name like 'pool\*'; layers: conv0, conv1"):
        Pruner(model, CONFIG, name="model").prune(Goal(kind="gamma", share=share, layers=(layers, "pool*")))


def test_channels_below_a_threshold_go(rng: np.random.Generator):
    """In runs of whole blocks, whose mean is below it: of gammas from 0.1 to 1 the first 16 have a mean of 0.21."""
    model = residual(rng, writers=1)
    for threshold, expected in ((0.2, [64, 64]), (0.3, [48, 48]), (0.5, [32, 32]), (9, [16, 16])):
        pruned = Pruner(model, CONFIG, name="model").prune(Goal(kind="gamma", threshold=threshold))
        assert [shape[0] for shape in list(shapes(pruned.model).values())[:2]] == expected


def test_apoz_takes_what_never_fires(rng: np.random.Generator):
    builder = FloatBuilder(rng, ["N", 3, 12, 12])
    value = builder.conv("x", 3, 32)
    bias = np.where(rng.permutation(32) < 16, 100, -100).astype(np.float32)
    value = builder.node("Relu", builder.node("Add", value, builder.constant(bias[:, None, None])))
    model = builder.model(builder.conv(value, 32, 5))
    inputs = random_inputs(model, 4)
    channels = ChannelMap.of(model)
    scores = apoz_scores(model, channels, inputs)
    states = removals(channels, scores, CONFIG.ic_lanes)
    assert [len(state) for state in states] == [0, 16] and {scores[root] for root in states[1]} == {0.0}
    smaller = shrink(model, channels, states[1], inputs, by_gamma=False)
    np.testing.assert_allclose(run_model(smaller, inputs)[0], run_model(model, inputs)[0], atol=1e-3)
    left, = (numpy_helper.to_array(t).reshape(-1) for t in smaller.graph.initializer if list(t.dims) == [16, 1, 1])
    assert (left == 100).all()
    with pytest.raises(PruneError, match="no BatchNormalization, whose gammas are asked for"):
        gamma_scores(channels)


@pytest.mark.slow
def test_steps_and_budgets(rng: np.random.Generator):
    builder = FloatBuilder(rng, ["N", 3, 8, 8])
    value = "x"
    for channels in (3, 64, 64):
        value = builder.node("Relu", builder.norm(builder.conv(value, channels, 64, pads=[1] * 4), gamma(rng, 64, 0)))
    model = builder.model(builder.conv(value, 64, 8, kernel=1))
    pruner = Pruner(model, CONFIG, name="model")
    for rounds in (1, 3):
        pruned = pruner.prune(Goal(kind="apoz", share=0.5, rounds=rounds))
        kept = [shape[0] for shape in list(shapes(pruned.model).values())[:3]]
        assert sum(kept) == 96 and all(count % 16 == 0 for count in kept)
    half = pruned.before.total // 2
    pruned = pruner.prune(Goal(kind="gamma", cycles=half))
    assert pruned.after.total <= half
    with pytest.raises(PruneError, match="pruning cannot reach"):
        pruner.prune(Goal(kind="gamma", cycles=10))


@pytest.mark.slow
def test_the_command(digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    output = tmp_path / "p.onnx"
    model = str(digits / "digits_float.onnx")
    argv = ["prune", model, "--macs", "64", "--ratio", "0.4", "-o", str(output), "--channels"]
    assert main([*argv, "apoz", "--calibrate", str(digits / "digits_test.npz"), "--limit", "50"]) == 0
    out = capsys.readouterr().out
    assert "cycles an inference" in out and "accuracy" in out
    before, after = shapes(read_model(Path(model))), shapes(read_model(output))
    assert sum(shape[0] for shape in after.values()) < sum(shape[0] for shape in before.values())
    kept = [*argv, "apoz", "--calibrate", str(digits / "digits_test.npz"), "--limit", "50", "--floor", "0.9"]
    assert main([*kept, "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["channels_gone"] < 0.1
    assert "of the channels are gone, where 40.0% were to go" in said.err and "--floor" in said.err
    output.unlink()
    assert main([*argv, "gamma"]) == 1
    assert "the model has no BatchNormalization" in capsys.readouterr().err and not output.exists()
