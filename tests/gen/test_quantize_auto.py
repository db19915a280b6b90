"""The method auto: what it takes is at least as good as each method alone, and what is left is said."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from gen.quantize import auto
from gen.quantize.auto import choose
from gen.quantize.left import what_is_left
from gen.quantize.options import SINGLE_METHODS, QuantizeOptions
from gen.quantize.plan import plan_quantisation
from gen.quantize.prepare import prepare
from gen.quantize.quantize import Quantized, quantize
from gen.quantize.report import measure
from gen.quantize.sessions import values_of
from gen.quantize.trial import Judges, Trial, _grid, _steps, decibels
from tests.gen.float_models import FloatBuilder, depthwise_network, residual_network
from tests.gen.quantizing import quantized

Rng = np.random.Generator


@pytest.fixture
def given(digits: Path) -> tuple[onnx.ModelProto, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The digits: the trained float model, samples to quantise with, and others."""
    with np.load(digits / "digits_test.npz") as arrays:
        images = arrays["image"]
    model = onnx.load(digits / "digits_float.onnx")
    return model, {"image": images[:80]}, {"image": images[80:180]}


def loss(found: Quantized, samples: dict[str, np.ndarray]) -> float:
    (sqnr,) = measure(found, samples).outputs.values()
    assert sqnr is not None
    return 10 ** (-sqnr / 10)


@pytest.mark.slow
def test_as_good_as_each_method(given):
    """On samples that it has not seen: the shares of noise are apart by what is chance, at most."""
    model, samples, others = given
    found = quantize(model, samples)
    alone = [loss(quantize(model, samples, QuantizeOptions(method=method)), others) for method in SINGLE_METHODS]
    assert loss(found, others) < 1.1 * min(alone)
    assert found.chosen.startswith("auto: ranges by ") and "by one method alone: mse " in found.chosen
    assert found.model.SerializeToString() == quantize(model, samples).model.SerializeToString()
    assert not measure(found, others).clipped


def test_what_gains_unasked(rng: Rng):
    """Channels that differ are equalised, and what rounding adds to means goes out of biases."""
    x, other = rng.uniform(0, 1, size=(2, 40, 4, 8, 8)).astype(np.float32)
    found = quantized(depthwise_network(rng, 30), x, method="auto", per_channel=False)
    assert "channels equalised" in found.chosen
    b = FloatBuilder(rng, ["N", 4, 8, 8])
    model = b.model(b.same_conv(b.node("Clip", b.same_conv("x", 4, 32), b.constant(np.float32(0)),
                                       b.constant(np.float32(6))), 32, 8, kernel=1))
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(
        numpy_helper.to_array(model.graph.initializer[0]) * np.float32(30) ** rng.uniform(-1, 1, (32, 1, 1, 1)
                                                                                          ).astype(np.float32), "c0"))
    found = quantized(model, x, method="auto", per_channel=False)
    assert "biases corrected" in found.chosen and "equalised" not in found.chosen
    plain, asked = (quantized(model, x, method="mse", per_channel=False, bias_correction=on) for on in (False, True))
    assert loss(found, {"x": other}) < 1.1 * loss(asked, {"x": other}) < loss(plain, {"x": other})


@pytest.mark.parametrize("options", [{}, {"symmetric": True}, {"per_channel": False}])
def test_a_trial_is_the_model(options: dict[str, bool], rng: Rng):
    """By its own scales, and by those of ranges, which are those of the quantiser."""
    x = {"x": rng.normal(size=(6, 3, 12, 12)).astype(np.float32)}
    model = residual_network(rng)
    found, other = (quantized(model, x["x"], method=method, **options) for method in ("mse", "minmax"))
    (output,) = (value.name for value in found.reference.graph.output)
    for made, ranges in ((found, None), (other, other.whole)):
        trial = Trial(made.model, made.plan, [output], ["x"], symmetric=options.get("symmetric", False))
        for mine, theirs in zip(trial.run(x, ranges), values_of(made.model, [output], x), strict=True):
            np.testing.assert_allclose(mine[0], theirs[output], rtol=0, atol=1e-5)
    trial = Trial(found.model, found.plan, [output], ["x"], symmetric=options.get("symmetric", False))
    assert max(np.abs(one[0] - two[0]).max() for one, two in zip(trial.run(x), trial.run(x, other.whole), strict=True))


def test_exact_constants_and_bits(rng: Rng):
    """With everything exact, and 24 bits for all tensors, the trial is the float model."""
    x = {"x": rng.normal(size=(4, 3, 12, 12)).astype(np.float32)}
    found = quantized(residual_network(rng), x["x"], method="minmax")
    (output,) = (value.name for value in found.reference.graph.output)
    trial = Trial(found.model, found.plan, [output], ["x"], reference=found.reference)
    names = [trial.constant(name) for layer in found.plan.layers for name in (layer.weights, layer.bias) if name]
    assert all(names) and trial.constant("none of it") == ""
    results = trial.run(x, bits=dict.fromkeys(found.plan.tensors, 24), exact=names)
    for mine, theirs in zip(results, values_of(found.reference, [output], x), strict=True):
        np.testing.assert_allclose(mine[0], theirs[output], rtol=0, atol=1e-5 * np.abs(theirs[output]).max())


@pytest.mark.parametrize("bits", [8, 9, 16, 24])
def test_finer_steps_reach_the_ends_of_a_range(bits: int, rng: Rng):
    """A zero point is between two of 8 bits: the ends are up to half a step of these beyond the last ones."""
    for low, high in zip(*rng.uniform([[-3], [0]], [[0], [3]], (2, 200)), strict=True):
        scale, point = _grid((low, high), symmetric=False)
        step, least, most = _steps(scale, point, bits)
        assert most - least == 2 ** bits - 1
        assert least - 0.501 < low / step and high / step < most + (0.501 if bits == 8 else 1.001)


@pytest.mark.slow
def test_a_choice_that_is_worse(given, monkeypatch: pytest.MonkeyPatch):
    """What tensors have gained by chance does not stand: further samples say so, and the best method is taken."""
    model, samples, others = given

    def spoiled(self: object, state: auto._State) -> auto._State:
        ranges = {method: {name: (low / 4, high / 4) for name, (low, high) in ends.items()}
                  for method, ends in state.way.ranges.items()}
        return replace(state, way=replace(state.way, ranges=ranges))

    monkeypatch.setattr(auto._Search, "_by_tensor", spoiled)
    found = quantize(model, samples)
    line = found.chosen.partition("; on further samples this is worse than one method alone, so all is by ")[2]
    assert line in SINGLE_METHODS
    plain = quantize(model, samples, QuantizeOptions(method=line))
    assert loss(found, others) < 1.2 * loss(plain, others)


def test_labels_have_a_say() -> None:
    """Of two states of equal noise the one with more right answers is taken, if that is more than chance."""
    search = auto._Search.__new__(auto._Search)
    answers = [np.array([number % 2]) for number in range(40)]
    search._labels = np.arange(40) % 2
    wrong = [np.array([1 - number % 2]) if number < 10 else np.array([number % 2]) for number in range(40)]
    assert search._lead(answers, wrong) == 10 and search._lead(wrong, answers) == 0
    assert search._lead(answers, [*wrong[9:10], *answers[1:]]) == 0
    search._labels = np.full(40, -1)
    assert search._lead(answers, wrong) == 0


def test_nothing_to_judge_by(rng: Rng):
    """Of a single sample the ranges are those of mse."""
    x = rng.normal(size=(1, 3, 12, 12)).astype(np.float32)
    model = residual_network(rng)
    found, plain = (quantized(model, x, method=method) for method in ("auto", "mse"))
    assert not found.chosen and found.model.SerializeToString() == plain.model.SerializeToString()
    assert choose(prepare(model), {"x": x}, QuantizeOptions()) is None


@pytest.mark.slow
def test_a_range_that_clips_is_not_tried(given):
    """Of a percentile of 60 nothing is left but what minmax has."""
    model, samples, others = given
    found = quantize(model, samples, QuantizeOptions(percentile=60))
    assert not measure(found, others).clipped


@pytest.mark.slow
@pytest.mark.parametrize("layers", [40, 80])
def test_trials_of_small_layers_are_bounded(layers: int, rng: Rng, monkeypatch: pytest.MonkeyPatch):
    """Twice the nodes: each run takes twice as long, and there are half as many, of the single tensors, too."""
    b = FloatBuilder(rng, ["N", 2, 2, 2])
    y = "x"
    for _ in range(layers):
        y = b.node("Relu", b.same_conv(y, 2, 2, kernel=1))
    model, runs = b.model(y), list[int]()
    run = Trial.run

    def counted(self: Trial, samples: dict[str, np.ndarray], *given: object, **more: object) -> list[list[np.ndarray]]:
        runs.append(len(samples["x"]))
        return list(run(self, samples, *given, **more))

    monkeypatch.setattr(Trial, "run", counted)
    monkeypatch.setattr(auto, "_SAME", -1)      # each tensor has all methods to try
    monkeypatch.setattr(auto, "_WORK", 400 * auto._NODE * 80)
    quantized(model, rng.normal(size=(40, 2, 2, 2)).astype(np.float32), method="auto")
    assert 0.8 < sum(runs) * len(model.graph.node) / (400 * 80) < 1.3


def test_noise_is_said_with_its_unit() -> None:
    assert [decibels(loss, " dB") for loss in (0.001, 0.0, np.inf)] == ["30.0 dB", "no noise", "nothing but noise"]


def test_softmax_is_looked_through(rng: Rng):
    b = FloatBuilder(rng, ["N", 3, 4, 4])
    scores = b.node("Flatten", b.node("GlobalAveragePool", b.same_conv("x", 3, 5)))
    model = prepare(b.model(b.node("Softmax", scores, name="y"), rank=2))
    judges = Judges(model, {"x": rng.normal(size=(3, 3, 4, 4)).astype(np.float32)})
    assert judges.names == (scores,) and len(judges) == len(judges.answers) == 3
    assert judges.wanted == [scores, "y"]


def test_what_is_left(rng: Rng):
    """A layer of one scale whose weights are all small but one: its noise is named, with what 16 bits bring."""
    b = FloatBuilder(rng, ["N", 3, 8, 8])
    y = b.node("Relu", b.same_conv("x", 3, 8, name="first"))
    weights = rng.normal(size=(8, 8, 3, 3))
    weights[0, 0, 0, 0] = 2000
    y = b.node("Relu", b.node("Conv", y, b.constant(weights.astype(np.float32)), pads=[1] * 4, name="coarse"))
    y = b.node("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    model = b.model(b.same_conv(b.node("Slice", y, b.constant([1]), b.constant([8]), b.constant([1])), 7, 4, name="y"))
    x = rng.normal(size=(8, 3, 8, 8)).astype(np.float32)
    found = quantized(model, x, method="minmax", per_channel=False)
    line = what_is_left(found, {"x": x})
    first = line.partition("most is lost at ")[2]
    assert first.startswith("coarse (") and "with 16 bits there, " in first and "with --keep-float coarse" in first
    whole, better = (float(text.split()[0]) for text in (line.partition("of ")[2], first.partition("(")[2]))
    assert better > whole + 3
    assert plan_quantisation(found.reference, frozenset({"coarse"}))


def test_what_is_left_of_little(rng: Rng):
    """Of many layers alike none has much of it, and that is said."""
    x = rng.normal(size=(8, 4, 8, 8)).astype(np.float32)
    found = quantized(depthwise_network(rng, 1), x, method="minmax")
    line = what_is_left(found, {"x": x})
    assert " dB on 8 samples most is lost at " in line
