"""Parts of an XNOR-popcount against counting: every input of short rows, every sum of an adder."""

import numpy as np
import pytest
from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from cores.compute.binary.popcount import add_ones, carries, parities, parity_steps
from cores.timing.binary import adders
from tests.cores.binary_values import pack_bits, parity_bits
from tests.cores.simulation import simulate


class Counter(wiring.Component):
    """Equal bits of ``x`` and ``w``, by all that `cores.compute.binary.popcount` has."""

    def __init__(self, *, bits: int):
        self.bits = bits
        super().__init__({"x": In(bits), "w": In(bits), "x_parities": Out(bits // 2), "w_parities": Out(bits // 2),
                          "count": Out(range(bits + 1))})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [self.x_parities.eq(parities(self.x, of_weights=False)),
                     self.w_parities.eq(parities(self.w, of_weights=True))]
        x, w = [*self.x, *self.x_parities], [*self.w, *self.w_parities]
        number, *ones = carries(x, w, parity_steps(self.bits))
        maximum, used = 1, 0
        while ones:
            number, maximum, ones = add_ones(number, maximum, ones)
            used += 1
        assert used == adders(self.bits // 2)
        assert maximum == self.bits // 2
        m.d.comb += self.count.eq(Cat(~(x[-1] ^ w[-1]), number))
        return m


def check(counter: Counter, pairs: list[tuple[int, int]]) -> None:
    bits = counter.bits

    async def bench(ctx):
        for x, w in pairs:
            ctx.set(counter.x, x)
            ctx.set(counter.w, w)
            assert ctx.get(counter.count) == bits - (x ^ w).bit_count(), (x, w)
            for port, value, of_weights in ((counter.x_parities, x, False), (counter.w_parities, w, True)):
                row = np.array([value >> bit & 1 for bit in range(bits)])
                assert ctx.get(port) == pack_bits(parity_bits(row, of_weights=of_weights))

    simulate(counter, bench)


@pytest.mark.parametrize("bits", [2, 4, 6])
def test_every_pair_of_short_rows(bits):
    check(Counter(bits=bits), [(x, w) for x in range(1 << bits) for w in range(1 << bits)])


@pytest.mark.slow
@pytest.mark.parametrize("bits", [8, 10, 12, 14, 26, 64, 128, 256])
def test_long_rows(bits, rng):
    """Rows that agree in none of their bits, in each number of them, in all."""
    pairs = []
    for equal in range(bits + 1):
        x = rng.integers(0, 2, bits, dtype=np.uint8)
        w = x ^ (rng.permutation(bits) >= equal)
        pairs.append((pack_bits(x), pack_bits(w)))
    check(Counter(bits=bits), pairs)


class Adder(wiring.Component):
    def __init__(self, *, maximum: int, ones: int):
        self.maximum, self.ones = maximum, ones
        self.most = maximum + min(ones, 6)
        super().__init__({"number": In(range(maximum + 1)), "bits": In(ones), "sum": Out(self.most.bit_length())})

    def elaborate(self, platform):
        m = Module()
        total, maximum, left = add_ones(self.number, self.maximum, list(self.bits))
        assert (maximum, len(total), len(left)) == (self.most, len(self.sum), max(self.ones - 6, 0))
        m.d.comb += self.sum.eq(total)
        return m


@pytest.mark.parametrize("maximum", [1, 3, 7, 9, 13])
@pytest.mark.parametrize("ones", range(1, 8))
def test_adder(maximum, ones):
    """Up to six ones; what is beyond is left."""
    adder = Adder(maximum=maximum, ones=ones)

    async def bench(ctx):
        for number in range(maximum + 1):
            for bits in range(1 << ones):
                ctx.set(adder.number, number)
                ctx.set(adder.bits, bits)
                assert ctx.get(adder.sum) == number + (bits & 63).bit_count()

    simulate(adder, bench)


@pytest.mark.parametrize("bits", [*range(2, 40, 2), 64, 128, 256])
def test_steps(bits):
    """Half as many as bits; each item but the last is used once, after it is made; the first take bits alone."""
    steps = parity_steps(bits)
    assert len(steps) == bits // 2
    used = [item for step in steps for item in step]
    assert sorted(used) == list(range(bits + len(steps) - 1))
    for number, step in enumerate(steps):
        assert len(step) in (2, 3) and max(step) < bits + number
        assert number >= bits // 3 or max(step) < bits
    assert sum(len(step) == 2 for step in steps) == 1


@pytest.mark.parametrize("bits", [0, -2, 3, 1])
def test_refuses_bits(bits):
    with pytest.raises(ValueError, match=f"bits must be a positive even number, not {bits}"):
        parity_steps(bits)
