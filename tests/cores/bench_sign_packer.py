"""Sign packer against the golden model: rows of any length under random gaps, rate, reset."""

import random

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge

from cores.arch.numerics import MAP_PIXELS
from cores.config import NpuConfig
from cores.store.sign_packer import SignPacker
from sim.signs import pack_map
from tests.bench import bench_parameters
from tests.cores.bus_models import start
from tests.cores.pins import value_of

CONFIG = NpuConfig.from_dict(bench_parameters()["config"])
LANES, LATENCY = CONFIG.ic_lanes, SignPacker.LATENCY


def random_rows(rng: np.random.Generator, lengths: list[int]) -> list[np.ndarray]:
    """int8 (cols, LANES) each, some of nothing but extremes around the sign's change."""
    rows = []
    for cols in lengths:
        values = rng.integers(-128, 128, (cols, LANES), dtype=np.int8)
        if rng.integers(2):
            values = rng.choice(np.array([-128, -1, 0, 127], np.int8), (cols, LANES))
        rows.append(values)
    return rows


async def run(dut, rows: list[np.ndarray], *, idle: float = 0.0) -> int:
    """Send the rows; compare every cycle. Returns how many cycles they took."""
    due: dict[int, int] = {}            # by cycle
    cycle = 0

    async def step(pixel: np.ndarray | None, row_end: bool, completes: bool) -> None:
        nonlocal cycle
        dut.valid.value = int(pixel is not None)
        dut.row_end.value = random.getrandbits(1) if pixel is None else int(row_end)
        dut.signs.value = (random.getrandbits(LANES) if pixel is None else
                           sum(int(value >= 0) << lane for lane, value in enumerate(pixel)))
        await FallingEdge(dut.clk)
        assert value_of(dut.completes) == completes, f"cycle {cycle}"
        assert value_of(dut.beat) == due.get(cycle, 0), f"cycle {cycle}: {value_of(dut.beat):x}, not {due.get(cycle)}"
        await RisingEdge(dut.clk)
        cycle += 1

    for row in rows:
        beats = [int.from_bytes(beat.tobytes(), "little") for beat in pack_map(row[None])[0]]
        for col, pixel in enumerate(row):
            while random.random() < idle:
                await step(None, False, False)
            row_end = col == len(row) - 1
            completes = row_end or col % MAP_PIXELS == MAP_PIXELS - 1
            if completes:
                due[cycle + LATENCY] = beats[col // MAP_PIXELS]
            await step(pixel, row_end, completes)
    sent = cycle
    for _ in range(2 * LATENCY):
        await step(None, False, False)
    return sent


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(idle=[0.0, 0.3, 0.8])
async def random_maps(dut, idle):
    """Rows of up to three beats, full and not, one after the other; nothing of a row is left in the next."""
    rng = np.random.default_rng(random.getrandbits(32))
    await start(dut, valid=0, row_end=0, signs=0)
    lengths = [*range(1, 2 * MAP_PIXELS + 2), *(int(cols) for cols in rng.integers(1, 3 * MAP_PIXELS, 30))]
    rng.shuffle(lengths)
    taken = await run(dut, random_rows(rng, lengths), idle=idle)
    if not idle:
        assert taken == sum(lengths), "a pixel a cycle"


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def reset_in_mid_stream(dut):
    """What was there of a beat is gone."""
    rng = np.random.default_rng(random.getrandbits(32))
    for pixels in range(1, MAP_PIXELS + 1):
        await start(dut, valid=0, row_end=0, signs=0)
        dut.valid.value, dut.row_end.value, dut.signs.value = 1, 0, (1 << LANES) - 1
        for _ in range(pixels):
            await RisingEdge(dut.clk)
        await start(dut, valid=0, row_end=0, signs=0)
        await run(dut, random_rows(rng, [3, MAP_PIXELS + 1]))
