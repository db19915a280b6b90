"""The circuits over whole layers: exact shortcuts of the definition (`sim.stochastic.circuits`).

Streams of shared sequences follow from their values alone. Where a circuit counts product bits one by one, the count of
a pair of values is a look-up; where it joins them, 64 bits of a stream are a word; only what depends on the bits before
is made bit by bit, for many outputs at a time.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, reduce

import numpy as np

from cores.arch.stochastic import ACC_BLOCK, Circuit, Sequence

from .streams import Streams, offsets, selected_input

__all__ = ["LOOKED_UP", "accumulate"]

#: Circuits whose sums of whole layers are looked up, at any length in the same time: about 1,000 times as fast.
LOOKED_UP = frozenset({Circuit.XNOR_MUX, Circuit.AND_LOOP})
_VALUES = np.arange(-128, 128)
#: Bits that are made at once where they are not looked up: they stay in a processor's cache.
_AT_ONCE = 1 << 21
#: Sums that are looked up at once, so that they do, too.
_LOOKED_UP_AT_ONCE = 1 << 18
#: Of a unit, so that counts of its bits are int8, twice as much too.
_MOST_INPUTS = 32


def accumulate(circuit: Circuit, activations: np.ndarray, weights: np.ndarray, streams: Streams, *,
               fan_in: int) -> np.ndarray:
    """Sums of units of ``fan_in`` inputs, added up: int8 (S, K) activations, int8 (O, K) weights -> int64 (S, O).

    The last unit's missing inputs are zeros. Raises ValueError unless ``fan_in`` is a power of two from `ACC_BLOCK` to
    32.
    """
    if not ACC_BLOCK <= fan_in <= _MOST_INPUTS or fan_in & (fan_in - 1):
        raise ValueError(f"fan_in must be a power of two from {ACC_BLOCK} to {_MOST_INPUTS}, not {fan_in!r}")
    # Blocks of AND-ACC know nothing of each other.
    together = ACC_BLOCK if circuit == Circuit.AND_ACC else fan_in
    a, w = (_units(np.asarray(values), together) for values in (activations, weights))
    counts = np.zeros((a.shape[1], w.shape[1]), np.int64)
    step = a.shape[1] if circuit in LOOKED_UP else max(1, _AT_ONCE // (w.shape[1] * streams.made))
    for begin in range(0, a.shape[1], step):
        part = slice(begin, begin + step)
        for values, factors in zip(a[:, part], w, strict=True):
            counts[part] += _MAKERS[circuit](values, factors, streams)
    return counts * streams.weight


def _units(values: np.ndarray, fan_in: int) -> np.ndarray:
    """(n, K) -> (units, n, fan_in), padded with zeros, each value 128 higher: its place in tables of all."""
    n, inputs = values.shape
    padded = np.pad(values.astype(np.int16), ((0, 0), (0, -inputs % fan_in))) + 128
    return np.ascontiguousarray(padded.reshape(n, -1, fan_in).swapaxes(0, 1))


# -- look-ups ---------------------------------------------------------------------------------------------------------


@cache
def _value_bits(sequence: Sequence, streams: Streams, bipolar: bool) -> np.ndarray:
    """(256, made) bool: the bits of each int8 value, of -128 first."""
    return offsets(_VALUES, bipolar=bipolar)[:, None] > streams.thresholds(sequence, bipolar=bipolar)


def _pairs(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """(256, 256) int32 sums of products over the bits of pairs of values."""
    return np.rint(left.astype(np.float32) @ right.astype(np.float32).T).astype(np.int32)


@cache
def _loop_table(streams: Streams) -> np.ndarray:
    sign = np.where(_VALUES < 0, -1, 1)[:, None]
    return _pairs(*(sign * _value_bits(sequence, streams, False)
                    for sequence in (Sequence.ACTIVATIONS, Sequence.WEIGHTS)))


@cache
def _mux_table(streams: Streams, fan_in: int, number: int) -> np.ndarray:
    """What input ``number`` adds to a multiplexer's ones, less its zeros."""
    mine = selected_input(streams, fan_in) == number
    return _pairs(*(2 * _value_bits(sequence, streams, True)[:, mine].astype(np.int8) - 1
                    for sequence in (Sequence.ACTIVATIONS, Sequence.WEIGHTS)))


def _and_loop(a: np.ndarray, w: np.ndarray, streams: Streams) -> np.ndarray:
    table = _loop_table(streams)
    return _looked_up(a, [np.take(table, factors, axis=1) for factors in w.T])


def _xnor_mux(a: np.ndarray, w: np.ndarray, streams: Streams) -> np.ndarray:
    inputs = a.shape[1]
    return inputs * _looked_up(a, [np.take(_mux_table(streams, inputs, number), factors, axis=1)
                                   for number, factors in enumerate(w.T)])


def _looked_up(a: np.ndarray, tables: list[np.ndarray]) -> np.ndarray:
    """(S, O) int32: over the inputs, the sum of the rows of ``tables``, each (256, O), at the values of ``a`` (S, N).

    Some rows at a time, always in the same place: new memory would take longer than the look-ups.
    """
    total = np.zeros((len(a), tables[0].shape[1]), np.int32)
    step = max(1, _LOOKED_UP_AT_ONCE // total.shape[1])
    room = np.empty((min(step, len(a)), total.shape[1]), np.int32)
    for begin in range(0, len(a), step):
        part = total[begin:begin + step]
        places = np.ascontiguousarray(a[begin:begin + step].T, np.intp)
        for values, table in zip(places, tables, strict=True):
            # Values are in range: clip, as otherwise NumPy would put the rows elsewhere first.
            part += np.take(table, values, axis=0, out=room[:len(part)], mode="clip")
    return total


# -- 64 bits a word ---------------------------------------------------------------------------------------------------


def _packed(bits: np.ndarray) -> np.ndarray:
    """(..., made) bool -> (..., words) uint64."""
    padded = np.pad(bits, [(0, 0)] * (bits.ndim - 1) + [(0, -bits.shape[-1] % 64)])
    return np.packbits(padded, axis=-1).view(np.uint64)


@cache
def _signed_words(sequence: Sequence, streams: Streams) -> tuple[np.ndarray, np.ndarray]:
    """(256, words): the bits of positive values, and those of negative ones; of other values none."""
    bits = _value_bits(sequence, streams, False)
    return _packed(bits & (_VALUES >= 0)[:, None]), _packed(bits & (_VALUES < 0)[:, None])


def _products(a: np.ndarray, w: np.ndarray, streams: Streams, negative: int) -> Iterator[np.ndarray]:
    """(S, O, words) of each input: product bits of one sign."""
    left, right = (_signed_words(sequence, streams) for sequence in (Sequence.ACTIVATIONS, Sequence.WEIGHTS))
    for values, factors in zip(a.T, w.T, strict=True):
        product = left[0][values][:, None] & right[negative][factors]
        if (values < 128).any():
            product |= left[1][values][:, None] & right[1 - negative][factors]
        yield product


def _and_sep_or(a: np.ndarray, w: np.ndarray, streams: Streams) -> np.ndarray:
    positive, negative = (reduce(np.bitwise_or, _products(a, w, streams, sign)) for sign in range(2))
    ones = (np.bitwise_count(positive & _packed(streams.select()))
            + np.bitwise_count(~negative & _packed(~streams.select())))
    return 2 * ones.sum(axis=-1, dtype=np.int64) - streams.made


# -- bit by bit -------------------------------------------------------------------------------------------------------


def _counted(products: Iterable[np.ndarray], made: int) -> np.ndarray:
    """(made, S * O) int8: how many of some (S, O, words) have a one in each bit."""
    digits: list[np.ndarray] = []           # of the count of each bit, in binary
    for carry in products:
        for place, digit in enumerate(digits):
            digits[place], carry = digit ^ carry, digit & carry
        if carry.any():
            digits.append(carry)
    if not digits:
        digits = [np.zeros_like(carry)]
    count = np.zeros((digits[0].shape[0] * digits[0].shape[1], made), np.int8)
    for place, digit in enumerate(digits):
        bits = np.unpackbits(digit.view(np.uint8).reshape(len(count), -1), axis=1)[:, :made]
        count += bits.view(np.int8) << place
    return np.ascontiguousarray(count.T)


def _held(a: np.ndarray, w: np.ndarray, streams: Streams) -> np.ndarray:
    """Zeros (S * O,) of a type that takes all that a unit can hold back, in halves."""
    return np.zeros(len(a) * len(w), np.int16 if 2 * a.shape[1] * streams.made < 1 << 15 else np.int32)


def _and_sep_counter(a: np.ndarray, w: np.ndarray, streams: Streams) -> np.ndarray:
    ones = _held(a, w, streams)
    for sign, chosen in enumerate((streams.select(), ~streams.select())):
        held = np.zeros_like(ones)
        for count, choose in zip(_counted(_products(a, w, streams, sign), streams.made), chosen, strict=True):
            held += count
            out = np.minimum(held, 1)
            held -= out
            if choose:
                ones += out if sign == 0 else 1 - out
    return 2 * ones.reshape(len(a), len(w)).astype(np.int64) - streams.made


def _and_acc(a: np.ndarray, w: np.ndarray, streams: Streams) -> np.ndarray:
    total = _and_loop(a, w, streams).astype(np.int64)
    # A single activation is all that there is to give: nothing is kept.
    several = np.flatnonzero((a != 128).sum(axis=1) > 1)
    if len(several):
        positive, negative = (_counted(_products(a[several], w, streams, sign), streams.made) for sign in range(2))
        held = _held(a[several], w, streams)
        for count in positive - negative:
            held += count
            held -= np.clip(held, -1, 1)
        total[several] -= held.reshape(len(several), len(w))
    return total


@cache
def _ugemm_words(streams: Streams) -> np.ndarray:
    """(256, 256, words): the product bits of each pair of values."""
    bits = _value_bits(Sequence.ACTIVATIONS, streams, True)
    ones = np.cumsum(bits, axis=1) - bits
    place = np.where(bits, ones, np.arange(streams.made) - ones)
    thresholds = streams.thresholds(Sequence.ACTIVATIONS, bipolar=True)[place]
    factors = offsets(_VALUES, bipolar=True)[:, None]
    return np.stack([_packed((factors > threshold) == bit)
                     for threshold, bit in zip(thresholds, bits, strict=True)])


def _ugemm(a: np.ndarray, w: np.ndarray, streams: Streams) -> np.ndarray:
    table, inputs = _ugemm_words(streams), a.shape[1]
    counts = _counted((table[values[:, None], factors] for values, factors in zip(a.T, w.T, strict=True)), streams.made)
    held, ones = (_held(a, w, streams) for _ in range(2))
    for count in counts:
        held += 2 * count - np.int8(inputs - 1)
        out = (held >= 2).view(np.int8)
        held -= 2 * out
        ones += out
    return 2 * ones.reshape(len(a), len(w)).astype(np.int64) - streams.made


_MAKERS: Mapping[Circuit, Callable[[np.ndarray, np.ndarray, Streams], np.ndarray]] = {
    Circuit.XNOR_MUX: _xnor_mux, Circuit.AND_SEP_OR: _and_sep_or, Circuit.AND_SEP_COUNTER: _and_sep_counter,
    Circuit.UGEMM: _ugemm, Circuit.AND_ACC: _and_acc, Circuit.AND_LOOP: _and_loop,
}
