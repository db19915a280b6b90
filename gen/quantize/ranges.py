"""From the distribution of an activation to its range: what lies beyond is clipped when it is quantised.

All methods but the first trade rounding, which is finer in a smaller range, for clipping.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from gen.quantize.options import QuantizeOptions
from gen.quantize.plan import Plan
from gen.quantize.streams import least_stream_error

__all__ = [
    "BINS", "NOTHING", "WORSE", "Distribution", "energy_of", "entropy_misleads", "entropy_threshold", "noise_of",
    "range_of", "ranges_of",
]

#: Bins of the absolute values; a distribution has as many for each sign.
BINS = 2048
#: Positive levels that the divergence is reckoned for, those of symmetric int8.
_LEVELS = 128
#: Fewer values than these leave bins empty by chance, and the divergence is one of noise.
_ENOUGH = 16 * BINS
#: A range whose noise is so many times that of all values, 3 dB, clips more than it gains.
WORSE = 2.0
#: What is smaller counts as zero: a scale of such values, or its product with another, has no normal float32. Training
#: with weight decay leaves layers that died there.
NOTHING = 1e-30
#: Steps of 8 bits, and the shares of the whole range that the squared error is tried for.
_STEPS = 255
_SHARES = np.linspace(0.1, 1, 181)


@dataclass(frozen=True, eq=False)
class Distribution:
    """Histogram of an activation over all samples.

    ``counts``: (2 * BINS,) in equal bins from -``largest`` to ``largest``. Values that are exactly 0 are
    not counted: after a Relu they are many, and 0 is exact in any range.
    """

    counts: np.ndarray
    low: float
    high: float

    @property
    def largest(self) -> float:
        return max(abs(self.low), abs(self.high))


def ranges_of(plan: Plan, found: Mapping[str, Distribution], options: QuantizeOptions,
              streamed: Collection[str] = ()) -> dict[str, tuple[float, float]]:
    """The range of each tensor of a plan; layers of streams read those ``streamed``."""
    exact = replace(options, streams=None)
    ranges = {name: range_of(distribution, options if name in streamed else exact)
              for name, distribution in found.items()}
    for name in plan.centred:
        largest = max(map(abs, ranges[name]))
        ranges[name] = -largest * 128 / 127, largest    # as many steps below zero as int8 has
    return ranges


def range_of(found: Distribution, options: QuantizeOptions) -> tuple[float, float]:
    """Lowest and highest value that is represented. It holds zero, which padding and Relu need to be exact."""
    low, high = min(found.low, 0.0), max(found.high, 0.0)
    if options.symmetric:
        low, high = -found.largest, found.largest
    if found.largest < NOTHING:
        return 0.0, 0.0
    match options.method:
        case "minmax":
            return low, high
        case "percentile":
            cut_low, cut_high = _percentile(found, options.percentile)
            if options.symmetric:
                cut_high = max(-cut_low, cut_high)
                cut_low = -cut_high
        case "entropy":
            if found.counts.sum() < _ENOUGH:
                return low, high
            cut = _cut_by_entropy(found, low, high)
            return (low, high) if _misled(found, cut, (low, high)) else cut
        case "mse" | "auto":     # of one tensor by itself nothing more is known
            if options.streams is not None:
                share = least_stream_error(_folded(found.counts), options.streams)
                return share * low, share * high
            return _least_error(found, low, high)
    return max(low, cut_low), min(high, cut_high)


def entropy_misleads(found: Distribution, options: QuantizeOptions) -> bool:
    """Whether the range of least divergence clips more than it gains, so that `range_of` takes that of all values."""
    if found.counts.sum() < _ENOUGH:
        return False
    whole = range_of(found, replace(options, method="minmax"))
    return _misled(found, _cut_by_entropy(found, *whole), whole)


def energy_of(found: Distribution) -> float:
    """Of all values."""
    centres, counts = _filled(found)
    return float(counts @ centres ** 2)


def noise_of(found: Distribution, low: float, high: float) -> float:
    """Energy of rounding and clipping in a range that holds zero."""
    centres, counts = _filled(found)
    return _noise(centres, counts, low, high) if low < high else float(counts @ centres ** 2)


def _cut_by_entropy(found: Distribution, low: float, high: float) -> tuple[float, float]:
    end = entropy_threshold(_folded(found.counts)) * found.largest / BINS
    return max(low, -end), min(high, end)


def _misled(found: Distribution, cut: tuple[float, float], whole: tuple[float, float]) -> bool:
    centres, counts = _filled(found)
    return _noise(centres, counts, *cut) > WORSE * _noise(centres, counts, *whole)


def _folded(counts: np.ndarray) -> np.ndarray:
    """Bins of absolute values."""
    return counts[BINS:] + counts[BINS - 1::-1]


def _percentile(found: Distribution, percentile: float) -> tuple[float, float]:
    """The values between which ``percentile`` of all are, as many below as above."""
    outside = (1 - percentile / 100) / 2 * found.counts.sum()
    below = np.cumsum(found.counts)
    edges = np.linspace(-found.largest, found.largest, 2 * BINS + 1)
    first = int(np.searchsorted(below, outside, side="right"))
    last = int(np.searchsorted(below, below[-1] - outside, side="left"))
    return min(float(edges[first]), 0.0), max(float(edges[last + 1]), 0.0)


def entropy_threshold(counts: np.ndarray) -> int:
    """Bins to keep of ``counts`` (of absolute values): those whose quantised form is nearest to the whole, by
    Kullback and Leibler's divergence.

    For every number of bins j from 128 on, P are the first j with all that lies above in the last one; Q are the first
    j merged into 128 groups, the mass of each spread evenly over those of its bins that are not empty in P.
    """
    counts = counts.astype(np.float64)
    total = counts.sum()
    kept = np.arange(_LEVELS, len(counts) + 1)
    mass = np.concatenate([[0.0], np.cumsum(counts)])
    beyond = total - mass[kept]
    last = counts[kept - 1]
    filled = np.concatenate([[0], np.cumsum(counts > 0)])
    # (candidates, groups): where each group ends, its mass and its bins that are not empty.
    ends = kept[:, None] * np.arange(_LEVELS + 1) // _LEVELS
    merged = np.diff(mass[ends], axis=1)
    spread = np.diff(filled[ends], axis=1)
    spread[:, -1] += (last == 0) & (beyond > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        level = np.log(merged / spread)         # ln of Q's counts in a group
        held = np.where(merged > 0, merged * level, 0.0).sum(axis=1)
        own = np.concatenate([[0.0], np.cumsum(np.where(counts > 0, counts * np.log(counts), 0.0))])[kept]
        own += _x_log_x(last + beyond) - _x_log_x(last)
        held += np.where(beyond > 0, beyond * level[:, -1], 0.0)    # infinite where Q has nothing for what is beyond
        # sum P/total * ln((P/total) / (Q/mass))
        divergence = (own - held) / total + np.log(mass[kept] / total)
    divergence[~np.isfinite(divergence)] = np.inf
    return int(kept[np.argmin(divergence)])


def _x_log_x(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x * np.log(np.where(x > 0, x, 1.0)), 0.0)


def _least_error(found: Distribution, low: float, high: float) -> tuple[float, float]:
    """The share of ``low``..``high`` that quantises with the least squared error."""
    centres, counts = _filled(found)
    errors = [_noise(centres, counts, share * low, share * high) for share in _SHARES]
    best = _SHARES[int(np.argmin(errors))]
    return float(best * low), float(best * high)


def _filled(found: Distribution) -> tuple[np.ndarray, np.ndarray]:
    """Centres of the bins that are not empty, and their counts."""
    centres = (np.arange(2 * BINS) - BINS + 0.5) * (found.largest / BINS)
    used = found.counts > 0
    return centres[used], found.counts[used].astype(np.float64)


def _noise(centres: np.ndarray, counts: np.ndarray, low: float, high: float) -> float:
    """Energy of rounding and clipping."""
    step = (high - low) / _STEPS
    least = np.rint(low / step)
    return float(counts @ (centres - np.clip(np.rint(centres / step), least, least + _STEPS) * step) ** 2)
