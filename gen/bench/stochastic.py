"""Errors of stochastic dot products against the length of their streams, beside published ones."""

from dataclasses import dataclass

import numpy as np

from cores.arch.stochastic import SUM_LOG, Circuit
from sim.stochastic.circuits import sums_by_bits
from sim.stochastic.streams import Streams

__all__ = ["ERRORS", "PUBLISHED", "ErrorRow", "dot_products", "measure_errors", "rmse"]

#: Inputs of a dot product and lengths of the streams that are measured.
ERRORS: tuple[tuple[int, int], ...] = tuple((16, 1 << log) for log in range(3, 11)) + ((64, 256),)

#: Published root mean square errors, by inputs and length. Those of AND-ACC have a rule for what is left over that we
#: do not know: docs/stochastic.md.
PUBLISHED: dict[Circuit, dict[tuple[int, int], float]] = {
    circuit: dict(zip(((16, 32), (16, 128), (16, 256), (16, 1024), (64, 256)), errors, strict=True))
    for circuit, errors in {
        Circuit.XNOR_MUX: (2.07, .859, .508, .143, 2.02),
        Circuit.AND_SEP_OR: (.414, .407, .434, .413, .514),
        Circuit.AND_SEP_COUNTER: (.174, .145, .142, .129, .503),
        Circuit.UGEMM: (.276, .073, .042, .011, .123),
        Circuit.AND_ACC: (.090, .026, .016, .0054, .040),
        Circuit.AND_LOOP: (.061, .016, .010, .0025, .017),
    }.items()}

#: Dot products whose bits are held at once.
_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class ErrorRow:
    """Of one circuit, N inputs and streams of ``length`` bits: ``rmse``, and what is published."""

    circuit: str
    inputs: int
    length: int
    rmse: float
    published: float | None


def dot_products(rng: np.random.Generator, count: int, inputs: int) -> tuple[np.ndarray, np.ndarray]:
    """int8 activations and weights (count, inputs): x in [0, 1], w in [-1, 1] * 1.5 / sqrt(inputs), times 128."""
    x = rng.random((count, inputs)) * 128
    w = rng.uniform(-1, 1, (count, inputs)) * 1.5 / np.sqrt(inputs) * 128
    return np.minimum(np.rint(x), 127).astype(np.int8), np.rint(w).astype(np.int8)


def rmse(circuit: Circuit, activations: np.ndarray, weights: np.ndarray, streams: Streams) -> float:
    """Root mean square error of sums against the exact ones, both as values from -1 to 1 and clipped to that.

    XNOR-MUX is not clipped: its stream is that of the N-th part of the sum.
    """
    exact = (activations.astype(np.int64) * weights).sum(axis=1) / (1 << SUM_LOG)
    step = max(1, _AT_ONCE // (activations.shape[1] * streams.made))
    found = np.concatenate([sums_by_bits(circuit, activations[begin:begin + step], weights[begin:begin + step], streams)
                            for begin in range(0, len(exact), step)]) / (1 << SUM_LOG)
    if circuit != Circuit.XNOR_MUX:
        found = np.clip(found, -1, 1)
    return float(np.sqrt(((found - np.clip(exact, -1, 1)) ** 2).mean()))


def measure_errors(*, count: int = 2000, seed: int = 0) -> list[ErrorRow]:
    """Every circuit at all of `ERRORS`, on ``count`` dot products that are the same for all circuits and lengths."""
    samples = {inputs: dot_products(np.random.default_rng(seed), count, inputs) for inputs, _ in ERRORS}
    return [ErrorRow(circuit.label, inputs, length, rmse(circuit, *samples[inputs], Streams(length)),
                     PUBLISHED[circuit].get((inputs, length)))
            for circuit in Circuit for inputs, length in ERRORS]
