"""Binary row against the golden model: every count, words near the weights, new weights at any time, reset."""

import random

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge

from cores.compute.binary.binary_row import BinaryRow
from cores.config import NpuConfig
from sim.golden import binary_popcount
from tests.bench import bench_parameters
from tests.cores.binary_values import entry_parity_bits, pack_bits, pixels_near
from tests.cores.bus_models import start
from tests.cores.pins import value_of

CONFIG = NpuConfig.from_dict(bench_parameters()["config"])
BITS, PX = CONFIG.binary_bits, CONFIG.pixel_lanes
LATENCY = BinaryRow.latency(CONFIG)
COUNT_BITS = BITS.bit_length()

#: Weights of a row, and the words that it works on with them: bits (words, PX, BITS), and which halves of pixels are
#: zero (words, PX, 2).
Step = tuple[np.ndarray, np.ndarray, np.ndarray]


async def run(dut, steps: list[Step], *, cycles: int | None = None) -> None:
    """A word a cycle; inputs are random in cycles in which nothing is said of them. Breaks off after ``cycles``."""
    words = np.concatenate([bits for _, bits, _ in steps])
    zeros = np.concatenate([zero for _, _, zero in steps])
    expected = np.concatenate([binary_popcount(bits, weights[None], zero)[..., 0] for weights, bits, zero in steps])
    starts, first = {}, 1           # cycle of a step's first bits: the weights come one earlier
    for weights, bits, _ in steps:
        starts[first] = weights
        first += len(bits)
    for cycle in range(cycles or 1 + len(words) + LATENCY):
        load, load_parities = starts.get(cycle + 1), starts.get(cycle)
        dut.load.value, dut.load_parities.value = int(load is not None), int(load_parities is not None)
        dut.weights.value = random.getrandbits(BITS) if load is None else pack_bits(load)
        dut.weight_parities.value = (random.getrandbits(BITS // 2) if load_parities is None else
                                     pack_bits(entry_parity_bits(load_parities, of_weights=True)))
        word, before, last = cycle - 1, cycle - 2, cycle + 1 - LATENCY
        dut.bits.value = pack_bits(words[word]) if 0 <= word < len(words) else random.getrandbits(BITS * PX)
        dut.parities.value = (pack_bits(entry_parity_bits(words[before])) if 0 <= before < len(words) else
                              random.getrandbits(BITS // 2 * PX))
        dut.marks.value = pack_bits(zeros[last]) if 0 <= last < len(words) else random.getrandbits(2 * PX)
        await FallingEdge(dut.clk)
        done = cycle - 1 - LATENCY
        if done >= 0:
            counts = value_of(dut.counts)
            for pixel in range(PX):
                found = counts >> pixel * COUNT_BITS & (1 << COUNT_BITS) - 1
                assert found == expected[done, pixel], (
                    f"word {done}, pixel {pixel}: {found}, not {expected[done, pixel]}; zero: {zeros[done, pixel]}")
        await RisingEdge(dut.clk)


def generator() -> np.random.Generator:
    return np.random.default_rng(random.getrandbits(32))


def random_step(rng: np.random.Generator, words: int) -> Step:
    weights = rng.integers(0, 2, BITS, dtype=np.uint8)
    return weights, pixels_near(rng, weights[None], (words, PX)), rng.random((words, PX, 2)) < rng.choice([0, 0.1, 0.5])


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def every_count(dut):
    """Each number of equal bits, at random places and from either end, for each pixel; and each bit alone."""
    rng = generator()
    await start(dut, load=0, load_parities=0)
    every, alone = np.arange(BITS + 1)[:, None], np.eye(BITS, dtype=bool)
    steps = []
    for weights, differs in (
            (np.zeros(BITS, np.uint8), np.arange(BITS) >= every),
            (np.ones(BITS, np.uint8), np.arange(BITS) < every),
            (rng.integers(0, 2, BITS, dtype=np.uint8),
             np.concatenate([[rng.permutation(BITS) >= equal for equal in range(BITS + 1)], alone, ~alone]))):
        # Each pixel has its own, in another order.
        bits = np.stack([weights ^ rng.permutation(differs) for _ in range(PX)], axis=1)
        steps.append((weights, bits, np.zeros((*bits.shape[:2], 2), bool)))
    await run(dut, steps)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def random_steps(dut):
    """Steps of one word and of several, some of whose pixels are zero, or half of them."""
    rng = generator()
    await start(dut, load=0, load_parities=0)
    await run(dut, [random_step(rng, int(rng.choice([1, 1, 2, 3, 10]))) for _ in range(60)])


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def reset_in_mid_stream(dut):
    rng = generator()
    for cycles in (1, 2, 3, 7):
        await start(dut, load=0, load_parities=0)
        await run(dut, [random_step(rng, 3) for _ in range(4)], cycles=cycles)
    await start(dut, load=0, load_parities=0)
    await run(dut, [random_step(rng, 5)])
