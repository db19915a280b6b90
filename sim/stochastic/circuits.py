"""The circuits bit by bit: the definition, which the hardware and the fast model equal.

A circuit takes the bits of N activations and as many weights and gives the sum of their products, an integer at the
scale of int8 products: near ``sum(a * w)``, and the nearer the longer the streams are.
"""

from collections.abc import Callable, Mapping

import numpy as np

from cores.arch.stochastic import ACC_BLOCK, Circuit, Sequence

from .streams import Streams, offsets, selected_input

__all__ = ["sums_by_bits"]


def sums_by_bits(circuit: Circuit, activations: np.ndarray, weights: np.ndarray, streams: Streams) -> np.ndarray:
    """Sums of products of int8 ``activations`` and ``weights``, both (..., N) -> int64 (...).

    N: a power of two, for AND-ACC a multiple of `ACC_BLOCK`.
    """
    counted = _COUNTS[circuit](np.asarray(activations), np.asarray(weights), streams)
    return counted.astype(np.int64) * streams.weight


def _bits(values: np.ndarray, sequence: Sequence, streams: Streams, *, bipolar: bool) -> np.ndarray:
    """(..., made) bool."""
    return offsets(values, bipolar=bipolar)[..., None] > streams.thresholds(sequence, bipolar=bipolar)


def _xnor_mux(activations: np.ndarray, weights: np.ndarray, streams: Streams) -> np.ndarray:
    """A multiplexer lets one of N products through, of which each stands for N."""
    products = ~(_bits(activations, Sequence.ACTIVATIONS, streams, bipolar=True)
                 ^ _bits(weights, Sequence.WEIGHTS, streams, bipolar=True))
    inputs = products.shape[-2]
    out = products[..., selected_input(streams, inputs), np.arange(streams.made)]
    return inputs * (2 * out.sum(axis=-1) - streams.made)


def _signed_products(activations: np.ndarray, weights: np.ndarray, streams: Streams) -> np.ndarray:
    """(..., N, made) of -1, 0, 1: products of magnitudes, with their signs."""
    products = (_bits(activations, Sequence.ACTIVATIONS, streams, bipolar=False)
                & _bits(weights, Sequence.WEIGHTS, streams, bipolar=False))
    return np.where((activations < 0) ^ (weights < 0), -1, 1)[..., None] * products


def _bipolar(positive: np.ndarray, negative: np.ndarray, streams: Streams) -> np.ndarray:
    """Two streams through one multiplexer: (p + 1 - n) / 2."""
    return 2 * np.where(streams.select(), positive, ~negative).sum(axis=-1) - streams.made


def _and_sep_or(activations: np.ndarray, weights: np.ndarray, streams: Streams) -> np.ndarray:
    """The positive products through an OR tree, and the negative ones."""
    products = _signed_products(activations, weights, streams)
    positive, negative = (np.asarray((products == sign).any(axis=-2)) for sign in (1, -1))
    return _bipolar(positive, negative, streams)


def _counter(counts: np.ndarray) -> np.ndarray:
    """A stream (..., made) whose ones are those of ``counts``, put off to later bits where there are more than one."""
    held, out = np.zeros(counts.shape[:-1], np.int64), np.empty(counts.shape, bool)
    for bit in range(counts.shape[-1]):
        held += counts[..., bit]
        out[..., bit] = held >= 1
        held -= out[..., bit]
    return out


def _and_sep_counter(activations: np.ndarray, weights: np.ndarray, streams: Streams) -> np.ndarray:
    """The positive products through a counter, and the negative ones."""
    products = _signed_products(activations, weights, streams)
    return _bipolar(_counter((products > 0).sum(axis=-2)), _counter((products < 0).sum(axis=-2)), streams)


def _ugemm(activations: np.ndarray, weights: np.ndarray, streams: Streams) -> np.ndarray:
    """A weight's stream moves on with the activation's ones; a second one, inverted, with its zeros.

    Both operands have the same sequence: the positions of an activation's ones say nothing of how many there are.
    """
    a = _bits(activations, Sequence.ACTIVATIONS, streams, bipolar=True)
    ones = np.cumsum(a, axis=-1) - a
    place = np.where(a, ones, np.arange(streams.made) - ones)
    thresholds = streams.thresholds(Sequence.ACTIVATIONS, bipolar=True)[place]
    products = (offsets(weights, bipolar=True)[..., None] > thresholds) == a
    # In halves, as (N - 1) / 2 may be one.
    added = 2 * products.sum(axis=-2) - (products.shape[-2] - 1)
    held, ones = np.zeros(added.shape[:-1], np.int64), np.zeros(added.shape[:-1], np.int64)
    for bit in range(streams.made):
        held += added[..., bit]
        out = held >= 2
        held -= 2 * out
        ones += out
    return 2 * ones - streams.made


def _and_acc(activations: np.ndarray, weights: np.ndarray, streams: Streams) -> np.ndarray:
    """Blocks of products give -1, 0 or 1 for a bit and keep the rest for the next; what is left at the end is lost."""
    products = _signed_products(activations, weights, streams)
    blocks = products.reshape(*products.shape[:-2], -1, ACC_BLOCK, streams.made).sum(axis=-2)
    held, total = np.zeros(blocks.shape[:-1], np.int64), 0
    for bit in range(streams.made):
        held += blocks[..., bit]
        out = np.sign(held)
        held -= out
        total = total + out.sum(axis=-1)
    return np.asarray(total)


def _and_loop(activations: np.ndarray, weights: np.ndarray, streams: Streams) -> np.ndarray:
    """AND-ACC with what is left given back: all ones are counted."""
    return _signed_products(activations, weights, streams).sum(axis=(-2, -1))


_COUNTS: Mapping[Circuit, Callable[[np.ndarray, np.ndarray, Streams], np.ndarray]] = {
    Circuit.XNOR_MUX: _xnor_mux, Circuit.AND_SEP_OR: _and_sep_or, Circuit.AND_SEP_COUNTER: _and_sep_counter,
    Circuit.UGEMM: _ugemm, Circuit.AND_ACC: _and_acc, Circuit.AND_LOOP: _and_loop,
}
