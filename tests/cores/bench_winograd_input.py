"""Winograd transformer against the golden model: boxes of tiles under random stalls, rate, refused boxes, reset."""

import random
from functools import partial

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles, RisingEdge

from cores.config import NpuConfig
from cores.load.winograd.winograd_input import TileEntry, TileLoad
from tests.bench import bench_parameters
from tests.cores.bus_models import collect, send, start
from tests.cores.pins import value_of
from tests.cores.winograd_values import TileBox, random_tile_box

CONFIG = NpuConfig.from_dict(bench_parameters()["config"])
LANES = CONFIG.ic_lanes
ENTRY = TileEntry(CONFIG)


random_box = partial(random_tile_box, CONFIG)


class Bench:
    def __init__(self, dut, *, stall: float):
        self.dut, self.stall = dut, stall
        self.entries: list[tuple[int, int, int, int]] = []
        self.cycles: list[int] = []
        self.overruns: list[int] = []
        self.cycle = 0

    async def begin(self) -> None:
        await start(self.dut, start=0, load=0, pixels__valid=0, entries__ready=0)
        self.tasks = [cocotb.start_soon(self._watch()),
                      cocotb.start_soon(collect(self.dut, "entries", self._take, stall=self.stall))]

    def end(self) -> None:
        for task in self.tasks:
            task.cancel()

    def _take(self, bits: int) -> None:
        entry = ENTRY.from_bits(bits)
        self.entries.append((entry.bank, entry.address, int(entry.data), entry.post))
        self.cycles.append(self.cycle)

    async def _watch(self) -> None:
        while True:
            await RisingEdge(self.dut.clk)
            self.cycle += 1
            if value_of(self.dut.overrun):
                self.overruns.append(value_of(self.dut.index))

    async def announce(self, box: TileBox) -> None:
        assert value_of(self.dut.idle)
        self.dut.load.value, self.dut.start.value = TileLoad.const(box.load).as_bits(), 1
        await RisingEdge(self.dut.clk)
        self.dut.start.value, self.dut.load.value = 0, random.getrandbits(len(self.dut.load))

    async def run(self, box: TileBox) -> None:
        self.entries.clear()
        self.cycles.clear()
        await self.announce(box)
        await send(self.dut, "pixels", box.beats, idle=self.stall)
        for _ in range(200 * len(box.entries)):
            if value_of(self.dut.idle):
                break
            await RisingEdge(self.dut.clk)
        assert len(self.entries) == len(box.entries), f"{len(self.entries)} entries of {len(box.entries)}"
        for number, (found, wanted) in enumerate(zip(self.entries, box.entries, strict=True)):
            assert found == wanted, f"entry {number}: {found}, not {wanted}"
        assert not self.overruns


def generator() -> np.random.Generator:
    return np.random.default_rng(random.getrandbits(32))


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.3, 0.8])
async def random_boxes(dut, stall):
    rng, bench = generator(), Bench(dut, stall=stall)
    await bench.begin()
    for _ in range(8):
        await bench.run(random_box(rng))
    bench.end()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def widest_row(dut):
    """63 tiles fill the line memory's 128 columns."""
    bench = Bench(dut, stall=0.0)
    await bench.begin()
    await bench.run(random_box(generator(), tiles=(2, 63), blocks=1))
    bench.end()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def an_entry_a_cycle(dut):
    """Over rows and blocks, once four rows and two pairs of columns are there; rows of one tile may take two more."""
    rng, bench = generator(), Bench(dut, stall=0.0)
    await bench.begin()
    for tiles in ((1, 2), (3, 1), (3, 2), (2, 5), (1, 7)):
        began = bench.cycle
        box = random_box(rng, tiles=tiles, blocks=3)
        await bench.run(box)
        first = bench.cycles[0] - began
        gaps = np.diff(bench.cycles) - 1
        assert not gaps.any() if tiles[1] > 1 else gaps.max() <= 2 and np.count_nonzero(gaps) < 9, gaps
        assert first <= 4 * (2 * tiles[1] + 2) + 16 + 10, first
    bench.end()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def what_does_not_fit_is_reported(dut):
    """An entry beyond the buffer; rows of other lengths; two rows; an odd number of rows. Each needs a reset."""
    rng = generator()
    for beyond in (0, 1):
        bench, box = Bench(dut, stall=0.0), random_box(rng, tiles=(2, 3), beyond=beyond)
        await bench.begin()
        if beyond:
            await bench.announce(box)
            await send(dut, "pixels", box.beats)
            await ClockCycles(dut.clk, 500)
            assert set(bench.overruns) == {box.load["index"]}
        else:
            await bench.run(box)
        bench.end()
    for shape, tile_cols in (((4, 8), 2), ((4, 8), 4), ((4, 7), 3), ((4, 9), 3), ((2, 8), 3), ((5, 8), 3), ((3, 8), 3),
                             ((4, 130), 64), ((4, 264), 3)):
        box = random_box(rng, tiles=(1, 3), blocks=1)
        box.load["tile_cols"] = tile_cols
        bench, wrong = Bench(dut, stall=0.0), TileBox(CONFIG, np.zeros((1, *shape, LANES), np.int8), box.load)
        await bench.begin()
        await bench.announce(wrong)
        sender = cocotb.start_soon(send(dut, "pixels", wrong.beats))
        await ClockCycles(dut.clk, 1000)
        assert box.load["index"] in bench.overruns, (shape, tile_cols)
        sender.cancel()
        bench.end()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def reset_in_mid_stream(dut):
    rng = generator()
    for cycles in (30, 75, 200):
        bench, box = Bench(dut, stall=0.2), random_box(rng, tiles=(3, 4))
        await bench.begin()
        await bench.announce(box)
        sender = cocotb.start_soon(send(dut, "pixels", box.beats))
        await ClockCycles(dut.clk, cycles)
        sender.cancel()
        bench.end()
        bench = Bench(dut, stall=0.2)
        await bench.begin()
        await bench.run(random_box(rng))
        bench.end()
