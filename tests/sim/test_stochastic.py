"""Stochastic computing: sequences, streams, the fast model against the definition, and published errors."""

import numpy as np
import pytest

from cores.arch.stochastic import Circuit, Sequence, bipolar_threshold, magnitude_threshold, sobol_numbers
from sim.stochastic.circuits import sums_by_bits
from sim.stochastic.fast import accumulate
from sim.stochastic.streams import Streams
from tests.cores.simulation import log_seed

LENGTHS = [1 << log for log in range(3, 11)]


@pytest.fixture
def rng():
    return np.random.default_rng(log_seed())


def corners(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """int8 values, the ends of their range often among them."""
    values = rng.integers(-128, 128, shape)
    ends = rng.choice([-128, -127, -1, 0, 1, 127], shape)
    return np.where(rng.random(shape) < 0.3, ends, values).astype(np.int8)


@pytest.mark.parametrize("sequence", Sequence)
@pytest.mark.parametrize("length", LENGTHS)
def test_sequences_are_permutations(sequence, length):
    """The first 2**k numbers have each value of their upper k bits once."""
    numbers = np.array(sobol_numbers(sequence)[:length])
    assert sorted(numbers * length >> 10) == list(range(length))
    assert not (numbers * length & 1023).any()


def test_the_first_sequence_counts_with_its_bits_reversed():
    """As the definition with V[k] = 2**(w-1-k) says: the Gray code of n, reversed."""
    for n, number in enumerate(sobol_numbers(Sequence.ACTIVATIONS)):
        assert number == int(f"{n ^ n >> 1:010b}"[::-1], 2)


@pytest.mark.parametrize("sequence", Sequence)
def test_sequences_are_scipys(sequence):
    """Someone else's Sobol numbers, by dimension."""
    from scipy.stats import qmc  # takes a second

    numbers = qmc.Sobol(len(Sequence), scramble=False).random(1024)[:, sequence - 1]
    assert (numbers * 1024).astype(int).tolist() == list(sobol_numbers(sequence))


def unary_sim(activations: np.ndarray, weights: np.ndarray, length: int) -> int:
    """Ones of the sum's stream as UnarySim, the simulator of uGEMM's authors, computes it: state after state.

    Its multiplier has two places in one Sobol sequence, of which a bit of the activation chooses the one that is read
    and then moved; the bit that was read is inverted where the activation's was 0. Its adder, of scale 1, takes
    (N - 1) / 2 off what comes and gives a one, less that one, when it holds 1 or more.
    """
    numbers = [number * length // 1024 for number in sobol_numbers(Sequence.ACTIVATIONS)[:length]]
    a, w = ([round((value / 128 + 1) / 2 * length) for value in values.tolist()] for values in (activations, weights))
    places = [[0, 0] for _ in a]
    held, ones = 0.0, 0
    for number in numbers:
        for left, right, mine in zip(a, w, places, strict=True):
            bit = left > number
            held += (right > numbers[mine[bit]]) == bit
            mine[bit] += 1
        held -= (len(a) - 1) / 2
        if held >= 1:
            held -= 1
            ones += 1
    return ones


@pytest.mark.parametrize("length", [256, 1024])
@pytest.mark.parametrize("inputs", [4, 16, 32])
def test_ugemm_is_unarysims(rng, length, inputs):
    """At lengths to which int8 is not rounded: halves are rounded up here, to even there."""
    for _ in range(4):
        a, w = corners(rng, (inputs,)), rng.integers(-40, 41, inputs).astype(np.int8)
        expected = (2 * unary_sim(a, w, length) - length) * Streams(length).weight
        assert int(sums_by_bits(Circuit.UGEMM, a, w, Streams(length))) == expected


@pytest.mark.parametrize("length", LENGTHS)
def test_thresholds_round_the_values(length):
    """Bit n is B > r with B the value times the length, rounded: as it is defined for numbers of any precision."""
    log = length.bit_length() - 1
    numbers = np.array(sobol_numbers(Sequence.WEIGHTS)[:length])
    r = numbers * length >> 10
    for value in range(129):
        expected = int(np.floor(value / 128 * length + 0.5)) > r
        assert [value > magnitude_threshold(int(number), log) for number in numbers] == expected.tolist()
    for value in range(-128, 128):
        expected = int(np.floor((value / 128 + 1) * length / 2 + 0.5)) > r
        assert [value + 128 > bipolar_threshold(int(number), log) for number in numbers] == expected.tolist()


@pytest.mark.parametrize("length, made", [(7, 0), (4, 0), (2048, 0), (64, 128), (64, 4), (64, 24)])
def test_lengths_are_checked(length, made):
    with pytest.raises(ValueError, match="must be a power of two from 8 to"):
        Streams(length, made)


@pytest.mark.parametrize("fan_in", [0, 2, 12, 64])
def test_fan_in_is_checked(fan_in):
    with pytest.raises(ValueError, match=f"fan_in must be a power of two from 4 to 32, not {fan_in}"):
        accumulate(Circuit.AND_LOOP, np.zeros((1, 4)), np.zeros((1, 4)), Streams(8), fan_in=fan_in)


@pytest.mark.parametrize("circuit", Circuit)
@pytest.mark.parametrize("streams", [Streams(8), Streams(32), Streams(64, 16), Streams(256), Streams(1024, 128)],
                         ids=str)
@pytest.mark.parametrize("fan_in, inputs", [(4, 4), (16, 40), (32, 32)])
@pytest.mark.parametrize("signed", [False, True])
def test_fast_model_is_the_definition(rng, circuit, streams, fan_in, inputs, signed):
    a, w = corners(rng, (6, inputs)), corners(rng, (5, inputs))
    if not signed:
        a = np.maximum(a, 0)
    found = accumulate(circuit, a, w, streams, fan_in=fan_in)
    whole = -inputs % fan_in
    a, w = np.pad(a, ((0, 0), (0, whole))), np.pad(w, ((0, 0), (0, whole)))
    expected = sum(sums_by_bits(circuit, a[:, None, part:part + fan_in], w[None, :, part:part + fan_in], streams)
                   for part in range(0, a.shape[1], fan_in))
    np.testing.assert_array_equal(found, expected)


def test_parts_do_not_matter(rng, monkeypatch):
    """Outputs that are made bit by bit are made some at a time."""
    a, w = corners(rng, (9, 32)), corners(rng, (4, 32))
    for circuit in Circuit:
        whole = accumulate(circuit, a, w, Streams(32), fan_in=16)
        monkeypatch.setattr("sim.stochastic.fast._AT_ONCE", 20)
        np.testing.assert_array_equal(accumulate(circuit, a, w, Streams(32), fan_in=16), whole)
        monkeypatch.undo()


@pytest.mark.parametrize("length", LENGTHS)
def test_and_loop_of_whole_streams_is_near_the_product(length):
    """Sobol's first two dimensions fill the square evenly: a product is off by a few bits at any length."""
    a, w = np.meshgrid(np.arange(-128, 128, 3), np.arange(-128, 128, 5))
    found = sums_by_bits(Circuit.AND_LOOP, a[..., None], w[..., None], Streams(length))
    assert np.abs(found - a * w).max() <= 6 * (1 << 14) / length
