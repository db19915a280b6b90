"""Bits of pixels and weights for the binary unit's benches, and the parities that go with them."""

import numpy as np

from cores.arch.numerics import half_of
from cores.compute.binary.popcount import parity_steps

__all__ = ["entry_parity_bits", "pack_bits", "parity_bits", "pixels_near"]


def pack_bits(bits: np.ndarray) -> int:
    """All bits of an array side by side, the first lowest."""
    return int.from_bytes(np.packbits(bits.ravel(), bitorder="little").tobytes(), "little")


def parity_bits(bits: np.ndarray, *, of_weights: bool = False) -> np.ndarray:
    """What `cores.compute.binary.popcount.parities` makes of each row of 0 and 1, (..., n) -> (..., n / 2)."""
    items = list(np.moveaxis(bits, -1, 0))
    made = len(items)
    for step in parity_steps(made):
        items.append(np.bitwise_xor.reduce([items[item] for item in step]) ^ int(of_weights and len(step) == 2))
    return np.stack(items[made:], axis=-1)


def entry_parity_bits(bits: np.ndarray, *, of_weights: bool = False) -> np.ndarray:
    """The same of `cores.compute.binary.popcount.entry_parities`."""
    halves = half_of(np.arange(bits.shape[-1]), bits.shape[-1])
    return np.concatenate([parity_bits(bits[..., halves == half], of_weights=of_weights) for half in range(2)], axis=-1)


def pixels_near(rng: np.random.Generator, weights: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Pixels (*shape, K) of 0 and 1 for rows (O, K): agreeing with one of them in 0 to K bits, the ends often."""
    bits = weights.shape[-1]
    pixels = np.zeros((*shape, bits), np.uint8)
    for index in np.ndindex(*shape):
        equal = int(rng.choice([0, 1, bits - 1, bits, rng.integers(bits + 1), rng.integers(bits + 1)]))
        differs = rng.permutation(bits) >= equal
        pixels[index] = weights[rng.integers(len(weights))] ^ differs
    return pixels
