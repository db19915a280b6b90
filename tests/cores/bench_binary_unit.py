"""Binary unit against the golden model: words from any bank, flags of zero, groups of lanes, new weights, reset."""

import random

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge

from cores.config import NpuConfig
from sim.golden import binary_popcount
from tests.bench import bench_parameters
from tests.cores.binary_values import entry_parity_bits, pack_bits, pixels_near
from tests.cores.bus_models import start
from tests.cores.pins import value_of

CONFIG = NpuConfig.from_dict(bench_parameters()["config"])
LATENCY = bench_parameters()["latency"]
BITS, ROWS, BANKS, PX, TM = (CONFIG.binary_bits, CONFIG.binary_rows, CONFIG.banks, CONFIG.pixel_lanes,
                             CONFIG.oc_lanes)
COUNT_BITS = BITS.bit_length()


class Words:
    """A word a cycle, some of which take new weights over; what goes in with each and what comes out."""

    def __init__(self, rng: np.random.Generator, count: int):
        self.count = count
        self.loads = rng.random(count) < 0.4
        self.loads[0] = True
        self.weights = rng.integers(0, 2, (count, ROWS, BITS), dtype=np.uint8)
        for word in np.flatnonzero(~self.loads):
            self.weights[word] = self.weights[word - 1]
        self.pixels = np.stack([pixels_near(rng, weights, (BANKS,)) for weights in self.weights])
        self.zeros = rng.random((count, BANKS, 2)) < 0.15
        self.first_banks = rng.integers(0, BANKS, count)
        # No group, one, or (as no COMPUTE does) several.
        self.takes = rng.random((count, CONFIG.binary_groups)) < rng.choice([0, 0.5, 1], (count, 1))

    def counts(self, word: int) -> list[int]:
        """Lane by lane of pixel 0, then of the others."""
        banks = (self.first_banks[word] + np.arange(PX)) % BANKS
        found = binary_popcount(self.pixels[word, banks], self.weights[word], self.zeros[word, banks])
        taken = np.repeat(self.takes[word], ROWS)
        return np.where(taken, np.tile(found, TM // ROWS), 0).ravel().tolist()

    async def run(self, dut, *, cycles: int | None = None) -> None:
        """Inputs are random in cycles in which nothing is said of them. Breaks off after ``cycles``."""
        for cycle in range(cycles or self.count + LATENCY):
            going = cycle < self.count
            load = going and self.loads[cycle]
            load_before = 0 < cycle <= self.count and self.loads[cycle - 1]
            dut.load.value = int(load)
            dut.weights.value = pack_bits(self.weights[cycle]) if load else random.getrandbits(ROWS * BITS)
            dut.weight_parities.value = (pack_bits(entry_parity_bits(self.weights[cycle - 1], of_weights=True))
                                         if load_before else random.getrandbits(ROWS * BITS // 2))
            dut.pixels.value = pack_bits(self.pixels[cycle]) if going else random.getrandbits(BANKS * BITS)
            dut.zeros.value = pack_bits(self.zeros[cycle]) if going else random.getrandbits(2 * BANKS)
            dut.first_bank.value = int(self.first_banks[cycle]) if going else 0
            done = cycle - LATENCY
            dut.swap.value = int(self.first_banks[done]) & 1 if done >= 0 else 0
            dut.take.value = pack_bits(self.takes[done]) if done >= 0 else 0
            await FallingEdge(dut.clk)
            if done >= 0:
                counts = value_of(dut.counts)
                found = [counts >> lane * COUNT_BITS & (1 << COUNT_BITS) - 1 for lane in range(PX * TM)]
                assert found == self.counts(done), (
                    f"word {done}, bank {self.first_banks[done]}: {found}, not {self.counts(done)}")
            await RisingEdge(dut.clk)


def generator() -> np.random.Generator:
    return np.random.default_rng(random.getrandbits(32))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def random_words(dut):
    await start(dut, load=0)
    await Words(generator(), 150).run(dut)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def reset_in_mid_stream(dut):
    rng = generator()
    for cycles in (1, 2, 4, 8):
        await start(dut, load=0)
        await Words(rng, 10).run(dut, cycles=cycles)
    await start(dut, load=0)
    await Words(rng, 10).run(dut)
