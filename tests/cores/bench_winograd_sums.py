"""Winograd sums against the golden model: tiles' pixels in any order under random steps, plain stores, reset."""

import random

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge

from sim.golden import winograd_output
from tests.cores.bus_models import start
from tests.cores.pins import value_of

#: Positions of which a pixel is the sum.
TERMS = 9


class Bench:
    """Steps, and sums up as the requantizer does."""

    def __init__(self, dut, rng: np.random.Generator, *, idle: float):
        self.dut, self.rng, self.idle = dut, rng, idle

    async def cycle(self, *, step: bool, following: tuple[int, int] | None = None, restart: bool = False) -> None:
        """``following``: row and column of the next pixel, else random numbers."""
        dut = self.dut
        dut.step.value, dut.restart.value = int(step), int(restart)
        row, col = following or (random.getrandbits(1), random.getrandbits(1))
        dut.next_row.value, dut.next_col.value = row, col
        await RisingEdge(dut.clk)
        dut.step.value = dut.restart.value = 0
        await FallingEdge(dut.clk)

    async def restart(self, *, enable: bool) -> None:
        self.dut.enable.value = int(enable)
        await self.cycle(step=False, restart=True)

    async def pixel(self, place: tuple[int, int], following: tuple[int, int], *, terms: int = TERMS) -> None:
        """Sum up a pixel; breaks off after ``terms``."""
        dut = self.dut
        sums = self.rng.integers(-(1 << 20), 1 << 20, (4, 4))
        total, seen = 0, set()
        for term in range(terms):
            while random.random() < self.idle:
                await self.cycle(step=False)
            assert (value_of(dut.row), value_of(dut.col)) == place
            assert value_of(dut.first) == (term == 0) and value_of(dut.last) == (term == TERMS - 1)
            position = value_of(dut.position)
            assert position not in seen, (position, seen)
            seen.add(position)
            before = 0 if value_of(dut.first) else total
            total = int(sums.flat[position]) + (-before if value_of(dut.negate) else before)
            await self.cycle(step=True, following=following if term == TERMS - 1 else None)
        if terms == TERMS:
            expected = int(winograd_output(sums)[place])
            assert total == expected, f"pixel {place}: {total}, not {expected}"

    async def plain(self, steps: int) -> None:
        for _ in range(steps):
            assert value_of(self.dut.first) and value_of(self.dut.last)
            await self.cycle(step=random.random() >= self.idle)


async def begin(dut, *, idle: float) -> Bench:
    await start(dut, enable=0, restart=0, step=0, next_row=0, next_col=0)
    return Bench(dut, np.random.default_rng(random.getrandbits(32)), idle=idle)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(idle=[0.0, 0.4])
async def random_pixels(dut, idle):
    """Every pixel of a tile after every other, from the smallest to the largest distance of positions."""
    bench = await begin(dut, idle=idle)
    for _ in range(6):
        await bench.restart(enable=True)
        place = 0, 0
        pairs = [(a, b) for a in np.ndindex(2, 2) for b in np.ndindex(2, 2)]
        random.shuffle(pairs)
        for _, following in pairs * 3:
            await bench.pixel(place, following)
            place = following


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def plain_stores(dut):
    """Between Winograd ones; every step is a whole pixel."""
    bench = await begin(dut, idle=0.3)
    for _ in range(6):
        await bench.restart(enable=False)
        await bench.plain(random.randrange(1, 20))
        await bench.restart(enable=True)
        await bench.pixel((0, 0), (1, 1))
        await bench.pixel((1, 1), (0, 1))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def broken_off(dut):
    """A restart, or a reset and a restart, after any number of steps begins with pixel (0, 0)."""
    for terms in range(1, TERMS + 1):
        bench = await begin(dut, idle=0.0)
        for _ in range(2):
            await bench.restart(enable=True)
            await bench.pixel((0, 0), (1, 1))
            await bench.pixel((1, 1), (1, 0), terms=terms)
        await bench.restart(enable=True)
        await bench.pixel((0, 0), (0, 1))
