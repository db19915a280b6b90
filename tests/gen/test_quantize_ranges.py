"""Ranges that activations are quantised with: what is counted, and each way of choosing."""

import numpy as np
import pytest

from gen.quantize.calibrate import distributions
from gen.quantize.options import METHODS, QuantizeOptions
from gen.quantize.prepare import prepare
from gen.quantize.ranges import BINS, Distribution, entropy_threshold, range_of
from gen.quantize.report import measure
from tests.gen.float_models import FloatBuilder
from tests.gen.quantizing import outputs_of, quantized

Rng = np.random.Generator


def test_values_are_counted(rng: Rng):
    """Over all samples, in bins up to the largest, but for zeros."""
    b = FloatBuilder(rng, [1, 3, 8, 8])
    model = b.model(b.node("Relu", "x", name="y"))
    x = rng.normal(size=(5, 3, 8, 8)).astype(np.float32) * np.arange(1, 6, dtype=np.float32)[:, None, None, None]
    found = distributions(model, {"x": "", "y": "y"}, {"x": x}, lambda done, total, what: None)
    for name, values in (("x", x), ("y", np.maximum(x, 0))):
        assert (found[name].low, found[name].high) == (values.min(), values.max())
        assert found[name].counts.sum() == np.count_nonzero(values)
        expected, _ = np.histogram(values[values != 0], 2 * BINS, (-found[name].largest, found[name].largest))
        assert np.abs(found[name].counts - expected).sum() <= 4     # at edges


def test_symmetric_ranges_have_as_many_steps_on_both_sides(rng: Rng):
    samples = rng.normal(size=(24, 3, 12, 12)).astype(np.float32)
    b = FloatBuilder(rng, [1, 3, 12, 12])
    model = b.model(b.node("Relu", b.same_conv("x", 3, 4, name="conv"), name="y"))
    for symmetric, steps in ((True, 127), (False, 255)):
        report = measure(quantized(model, samples, method="minmax", symmetric=symmetric), {"x": samples})
        largest = np.maximum(outputs_of(prepare(model), samples), 0).max()
        assert report.layers[-1].scale == pytest.approx(largest / steps)
        assert report.layers[-1].zero_point == (0 if symmetric else -128)


def distribution(values: np.ndarray) -> Distribution:
    low, high = float(values.min()), float(values.max())
    largest = max(-low, high)
    counts, _ = np.histogram(values[values != 0], 2 * BINS, (-largest, largest))
    return Distribution(counts, low, high)


def entropy_by_the_definition(counts: np.ndarray) -> int:
    best, kept = np.inf, 0
    for j in range(128, len(counts) + 1):
        p = counts[:j].astype(np.float64)
        p[-1] += counts[j:].sum()
        q = np.zeros(j)
        ends = j * np.arange(129) // 128
        for first, last in zip(ends, ends[1:], strict=False):
            filled = p[first:last] > 0
            if filled.any():
                q[first:last][filled] = counts[first:last].sum() / filled.sum()
        used = p > 0
        if not q[used].all():
            continue
        p, q = p / p.sum(), q / q.sum()
        if (found := float((p[used] * np.log(p[used] / q[used])).sum())) < best - 1e-12:
            best, kept = found, j
    return kept


@pytest.mark.parametrize("kind", ["normal", "sparse", "spikes"])
def test_entropy_is_the_divergence(kind: str, rng: Rng):
    values = np.abs(rng.standard_t(3, 40_000))
    counts, _ = np.histogram(values, 300, (0, values.max()))
    if kind == "sparse":
        counts[rng.random(300) < 0.6] = 0
    if kind == "spikes":
        counts[rng.integers(300, size=4)] += 5000
    assert entropy_threshold(counts) == entropy_by_the_definition(counts)


def noise(values: np.ndarray, low: float, high: float) -> float:
    step = (high - low) / 255
    least = np.rint(low / step)
    return float(((values - np.clip(np.rint(values / step), least, least + 255) * step) ** 2).mean())


@pytest.mark.parametrize("kind", ["relu", "both signs"])
def test_least_error_is_less_than_of_any_other_method(kind: str, rng: Rng):
    values = np.concatenate([rng.normal(size=100_000), [14.0, -12.0]])
    values = np.maximum(values, 0) if kind == "relu" else values - 0.3
    found = distribution(values)
    errors = {method: noise(values, *range_of(found, QuantizeOptions(method=method))) for method in METHODS}
    assert errors["mse"] <= 1.01 * min(errors.values()) and errors["mse"] < 0.97 * errors["minmax"]
    tried = min(noise(values, share * found.low, share * found.high) for share in np.linspace(0.1, 1, 91))
    assert errors["mse"] <= 1.02 * tried


def test_percentile_keeps_that_share(rng: Rng):
    values = rng.standard_t(3, 100_000)
    low, high = range_of(distribution(values), QuantizeOptions(method="percentile", percentile=99.0))
    assert ((values >= low) & (values <= high)).mean() == pytest.approx(0.99, abs=2e-3)
    one_sided = range_of(distribution(np.abs(values)), QuantizeOptions(method="percentile", percentile=99.0))
    assert one_sided[0] == 0


@pytest.mark.parametrize("method", METHODS)
def test_ranges_hold_zero(method: str, rng: Rng):
    options = QuantizeOptions(method=method)  # type: ignore[arg-type]
    for values in (rng.uniform(2, 3, 50_000), rng.uniform(-3, -2, 50_000), np.zeros(10), np.full(10, 4.0)):
        low, high = range_of(distribution(values), options)
        assert low <= 0 <= high
    low, high = range_of(distribution(rng.uniform(-1, 3, 50_000)), QuantizeOptions(
        method=method, symmetric=True))  # type: ignore[arg-type]
    assert low == -high


def test_zeros_do_not_weigh(rng: Rng):
    """A Relu's many zeros are exact in any range: they do not pull it together."""
    values = np.abs(rng.normal(size=50_000))
    for method in METHODS:
        options = QuantizeOptions(method=method)
        assert range_of(distribution(np.concatenate([values, np.zeros(500_000)])), options) == range_of(
            distribution(np.concatenate([values, np.zeros(1)])), options)
