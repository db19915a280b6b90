"""How activations are distributed over samples."""

from collections.abc import Mapping

import numpy as np
import onnx

from gen.quantize.options import QuantizeError
from gen.quantize.ranges import BINS, Distribution
from gen.quantize.sessions import Progress, Samples, values_of

__all__ = ["distributions"]


def distributions(model: onnx.ModelProto, tensors: Mapping[str, str], samples: Samples,
                  progress: Progress) -> dict[str, Distribution]:
    """Of each of ``tensors`` (value -> the node that computes it). The samples are run twice: bins go from the smallest
    to the largest value, and no values are kept.

    Raises QuantizeError for an activation that is not finite.
    """
    names, total = list(tensors), len(next(iter(samples.values())))
    low = dict.fromkeys(names, np.inf)
    high = dict.fromkeys(names, -np.inf)
    found = values_of(model, names, samples)
    for number, values in enumerate(found):
        progress(number, 2 * total, "calibrating")
        for name in names:
            low[name] = min(low[name], float(values[name].min()))
            high[name] = max(high[name], float(values[name].max()))
            if not np.isfinite([low[name], high[name]]).all():
                what = f"the result of node {tensors[name]}" if tensors[name] else f"input {name}"
                raise QuantizeError(f"{what} has values that are infinite or no numbers on sample {number} of those to "
                                    "calibrate with; check the model's weights and the samples", code="not-finite",
                                    node=tensors[name])
    counts = {name: np.zeros(2 * BINS, np.int64) for name in names}
    for number, values in enumerate(found):
        progress(total + number, 2 * total, "calibrating")
        for name in names:
            counts[name] += _counted(values[name], max(-low[name], high[name]))
    return {name: Distribution(counts[name], low[name], high[name]) for name in names}


def _counted(values: np.ndarray, largest: float) -> np.ndarray:
    """Numbers of values, without zeros, in 2 * BINS equal bins from -``largest`` to ``largest``."""
    place = np.floor(values[values != 0] * np.float64(BINS / (largest or 1))).astype(np.int64) + BINS
    return np.bincount(np.clip(place, 0, 2 * BINS - 1), minlength=2 * BINS)
