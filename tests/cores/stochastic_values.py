"""Words for the stochastic unit's benches: activations and weights of all kinds, and the lengths of their streams."""

import numpy as np

from sim.stochastic.streams import Streams

__all__ = ["random_streams", "random_values"]


def random_values(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """int8: noise, or ends of the range, or all of one sign, so that sums are large, or small, so that none is."""
    values = rng.integers(-128, 128, shape)
    ends = rng.choice([-128, -127, -1, 0, 1, 127], shape)
    kind = rng.integers(6)
    if kind == 0:
        return ends.astype(np.int8)
    if kind == 1:
        return (values | 96 & 127).clip(64, 127).astype(np.int8)
    if kind == 2:
        return np.full(shape, rng.choice([-128, 127]), np.int8)
    if kind <= 4:
        return (values // 4).astype(np.int8)
    return np.where(rng.random(shape) < 0.2, ends, values).astype(np.int8)


def random_streams(rng: np.random.Generator, *, most: int = 1024) -> Streams:
    """Short ones more often, some of them not made to the end."""
    length = 1 << int(min(rng.choice([3, 4, 5, 5, 6, 7, 8, 9, 10]), most.bit_length() - 1))
    made = 1 << int(rng.integers(3, length.bit_length()))
    return Streams(length, made if rng.random() < 0.3 else length)
