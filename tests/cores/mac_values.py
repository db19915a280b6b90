"""Pixels, weights and indices for the multiplier array's benches, corners of their ranges often among them."""

from dataclasses import dataclass

import numpy as np

from cores.config import NpuConfig

__all__ = ["MacStep", "dense", "random_integers", "random_step"]


def random_integers(rng: np.random.Generator, shape: tuple[int, ...], bits: int) -> np.ndarray:
    """Signed integers of ``bits`` bits; in a quarter of the calls only the ends of the range, 0 and -1."""
    limit = 1 << bits - 1
    if rng.random() < 0.25:
        return rng.choice([-limit, limit - 1, -1, 0], shape)
    return rng.integers(-limit, limit, shape)


@dataclass(frozen=True, eq=False)
class MacStep:
    """``weights`` and ``indices`` (rows, nnz_lanes), and how many ``words`` work with them.

    ``clear``: the weights are zero instead, as in a binary step.
    """

    weights: np.ndarray
    indices: np.ndarray
    words: int
    clear: bool = False


def random_step(config: NpuConfig, rng: np.random.Generator, rows: int) -> MacStep:
    shape = rows, config.nnz_lanes
    return MacStep(weights=random_integers(rng, shape, config.weight_bits),
                   indices=rng.integers(0, config.select_fanin, shape),
                   words=int(rng.choice([1, 1, 2, 3, 9])),
                   clear=bool(config.binary_rows) and rng.random() < 0.2)


def dense(config: NpuConfig, step: MacStep) -> np.ndarray:
    """What a step multiplies: (rows, nnz_lanes, ic_lanes), each lane's weight at the channel that it selects."""
    rows = len(step.weights)
    weights = np.zeros((rows, config.nnz_lanes, config.ic_lanes), np.int64)
    if not step.clear:
        base = np.array([config.window_base(lane) for lane in range(config.nnz_lanes)])
        np.put_along_axis(weights, (base + step.indices)[..., None], step.weights[..., None], axis=2)
    return weights
