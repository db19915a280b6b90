"""Random and extreme numbers for the requantiser, and its channel parameters as they lie in memory."""

import numpy as np

from cores.arch.numerics import MAX_SHIFT, MIN_SHIFT, MULTIPLIER_BITS

__all__ = ["pack", "pack_parameters", "random_channels", "random_clip", "random_sources"]


def pack(values: np.ndarray, bits: int) -> int:
    """Numbers of ``bits`` bits side by side, the first lowest."""
    mask = (1 << bits) - 1
    return sum((value & mask) << bits * position for position, value in enumerate(values.tolist()))


def random_channels(rng: np.random.Generator, lanes: int, acc_width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(bias, multiplier, shift), each (lanes,) int64, over the whole legal range, extremes included."""
    limit = 1 << acc_width - 1
    bias = np.where(rng.random(lanes) < 0.1, rng.choice([-limit, limit - 1, 0, -1], lanes),
                    rng.integers(-limit, limit, lanes) >> rng.integers(0, acc_width, lanes))
    multiplier = rng.integers(1 << MULTIPLIER_BITS - 1, 1 << MULTIPLIER_BITS, lanes)
    extreme = [0, 1, (1 << MULTIPLIER_BITS) - 1, 1 << MULTIPLIER_BITS - 1]
    multiplier = np.where(rng.random(lanes) < 0.2, rng.choice(extreme, lanes), multiplier)
    shift = rng.integers(MIN_SHIFT, MAX_SHIFT + 1, lanes)
    return bias, multiplier, shift


def random_sources(rng: np.random.Generator, shape: tuple[int, ...], channels, source_bits: int,
                   acc_width: int) -> np.ndarray:
    """Source values (lanes, ...) int64 that fit ``source_bits`` and, with the bias, ``acc_width``.

    Half of them bring results near the clipping range, some with results half way between integers.
    """
    bias, multiplier, shift = (np.asarray(value).reshape(-1, *[1] * (len(shape) - 1)) for value in channels)
    limit = 1 << source_bits - 1
    total_limit = 1 << acc_width - 1
    low, high = np.maximum(-limit, -total_limit - bias), np.minimum(limit - 1, total_limit - 1 - bias)
    low, high = np.broadcast_to(low, shape), np.broadcast_to(high, shape)
    anywhere = rng.integers(low, high + 1)
    ends = np.where(rng.random(shape) < 0.5, low, high)
    wanted = rng.integers(-600, 600, shape) / 2  # halves: ties where the multiplier allows them
    near = np.rint(wanted * 2.0**shift / np.maximum(multiplier, 1)).astype(np.int64) - bias
    kind = rng.random(shape)
    return np.where(kind < 0.6, np.clip(near, low, high), np.where(kind < 0.9, anywhere, ends))


def random_clip(rng: np.random.Generator, bits: int = 8) -> dict[str, int]:
    """zero_point, low <= high; of int8, or of ``bits`` for a first stage."""
    limit = 1 << bits - 1
    low, high = sorted(int(value) for value in rng.integers(-limit, limit, 2))
    if rng.random() < 0.5:
        low, high = -limit, limit - 1
    return {"zero_point": int(rng.choice([-128, 127, 0, rng.integers(-128, 128)])), "low": low, "high": high}


def pack_parameters(bias, multiplier, shift, beat_bytes: int) -> list[int]:
    """The beats of a block's channel parameters."""
    second = np.asarray(multiplier) | np.asarray(shift) << 24
    words = np.stack([np.asarray(bias, np.int64) & 0xFFFFFFFF, second], axis=1)
    raw = words.astype("<u4").tobytes()
    return [int.from_bytes(raw[start:start + beat_bytes], "little") for start in range(0, len(raw), beat_bytes)]
