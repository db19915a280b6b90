"""Line memory of the Winograd transformer: what is read, flags, pairs of rows that wait, malformed boxes, reset."""

import random
from collections.abc import Iterator

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles, FallingEdge, RisingEdge

from cores.arch.isa import MAX_TILE_COLS
from cores.config import NpuConfig
from cores.load.winograd.winograd_lines import TilePixel, WinogradLines
from tests.bench import bench_parameters
from tests.cores.bus_models import send, start
from tests.cores.pins import value_of

CONFIG = NpuConfig.from_dict(bench_parameters()["config"])
LANES, PIXEL = CONFIG.ic_lanes, TilePixel(CONFIG)
#: Rows that are there at once.
ROWS = 8


def random_box(rng: np.random.Generator, *, tiles: tuple[int, int] | None = None, blocks: int | None = None):
    """uint8 (blocks, rows, cols, LANES)."""
    rows, cols = tiles or (int(number) for number in rng.integers(1, 7, 2))
    return rng.integers(0, 256, (blocks or int(rng.integers(1, 4)), 2 * rows + 2, 2 * cols + 2, LANES), dtype=np.uint8)


def word(values: np.ndarray) -> int:
    return int.from_bytes(values.tobytes(), "little")


def beats_of(box: np.ndarray) -> Iterator[int]:
    blocks, rows, cols, _ = box.shape
    for block, row, col in np.ndindex(blocks, rows, cols):
        yield PIXEL.const({"data": word(box[block, row, col]), "row_end": col == cols - 1,
                           "block_end": (row, col) == (rows - 1, cols - 1), "end": block == blocks - 1}).as_bits()


class Bench:
    """Takes rows of tiles; inputs change after the rising edge, outputs are read at the falling."""

    def __init__(self, dut):
        self.dut = dut
        self.malformed = self.taken = 0

    async def begin(self) -> None:
        await start(self.dut, pixels__valid=0, tile_cols=0, column=0, upper_row=0, lower_row=0, release=0)
        self.task = cocotb.start_soon(self._watch())

    async def _watch(self) -> None:
        dut = self.dut
        while True:
            await FallingEdge(dut.clk)
            self.malformed += value_of(dut.malformed)
            self.taken += value_of(dut.pixels__valid) & value_of(dut.pixels__ready)

    async def _wait(self) -> None:
        await FallingEdge(self.dut.clk)
        while not value_of(self.dut.valid):
            await RisingEdge(self.dut.clk)
            await FallingEdge(self.dut.clk)

    async def row_of_tiles(self, rows: np.ndarray, *, block_end: bool, end: bool, reads: int, pause: float) -> None:
        """``reads`` pixels of four ``rows`` (4, cols, LANES), then release what the next row of tiles has no use of."""
        dut = self.dut
        await self._wait()
        assert value_of(dut.block_end) == block_end, (block_end, end)
        assert not block_end or value_of(dut.end) == end, (block_end, end)
        swapped = value_of(dut.swapped)
        for _ in range(reads):
            await RisingEdge(dut.clk)
            column, upper, lower = random.randrange(rows.shape[1]), random.getrandbits(1), random.getrandbits(1)
            dut.column.value, dut.upper_row.value, dut.lower_row.value = column, upper, lower
            await RisingEdge(dut.clk)
            dut.column.value = random.randrange(rows.shape[1])
            await FallingEdge(dut.clk)
            found = value_of(dut.read)
            parts = [found >> CONFIG.beat_bits * side & (1 << CONFIG.beat_bits) - 1 for side in range(2)]
            pixels = [word(rows[upper, column]), word(rows[2 + lower, column])]
            assert parts == (pixels[::-1] if swapped else pixels), f"column {column}, rows {upper}, {2 + lower}"
            assert value_of(dut.valid) and value_of(dut.swapped) == swapped
            while random.random() < pause:
                await RisingEdge(dut.clk)
        await RisingEdge(dut.clk)
        dut.release.value = 1
        await RisingEdge(dut.clk)
        dut.release.value = 0

    async def box(self, box: np.ndarray, *, idle: float = 0.0, reads: int = 12, pause: float = 0.0) -> None:
        self.dut.tile_cols.value = box.shape[2] // 2 - 1
        sender = cocotb.start_soon(send(self.dut, "pixels", list(beats_of(box)), idle=idle))
        for number, block in enumerate(box):
            last = len(block) - 4
            for row in range(0, last + 1, 2):
                await self.row_of_tiles(block[row:row + 4], block_end=row == last, end=number == len(box) - 1,
                                        reads=reads, pause=pause)
        await sender
        await FallingEdge(self.dut.clk)
        assert not value_of(self.dut.valid) and not self.malformed
        await RisingEdge(self.dut.clk)


def generator() -> np.random.Generator:
    return np.random.default_rng(random.getrandbits(32))


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize((("idle", "pause"), [(0.0, 0.0), (0.7, 0.0), (0.0, 0.8), (0.3, 0.3)]))
async def random_boxes(dut, idle, pause):
    """Box after box: pixels or reads are what is waited for, or both in turn."""
    rng, bench = generator(), Bench(dut)
    await bench.begin()
    for _ in range(6):
        await bench.box(random_box(rng), idle=idle, pause=pause, reads=int(rng.integers(1, 20)))
    bench.task.cancel()


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def widest_row(dut):
    bench = Bench(dut)
    await bench.begin()
    await bench.box(random_box(generator(), tiles=(3, MAX_TILE_COLS), blocks=1), reads=200)
    bench.task.cancel()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def eight_rows_and_no_more(dut):
    """A pixel a cycle until eight rows are there; the first row of tiles is when four are; a pair makes room for one.
    """
    rng, bench = generator(), Bench(dut)
    await bench.begin()
    box = random_box(rng, tiles=(5, 3), blocks=1)
    cols = box.shape[2]
    dut.tile_cols.value = 3
    sender = cocotb.start_soon(send(dut, "pixels", list(beats_of(box))))
    for rows, there in ((4, False), (4, True)):
        while bench.taken < rows * cols - 1 + there:
            await RisingEdge(dut.clk)
        await ClockCycles(dut.clk, WinogradLines.LATENCY)
        await FallingEdge(dut.clk)
        assert value_of(dut.valid) == there, "four rows are there, or all but a pixel of them"
    await ClockCycles(dut.clk, ROWS * cols)
    assert bench.taken == ROWS * cols + WinogradLines.AHEAD, "pixels wait in front of them"
    await bench.row_of_tiles(box[0, :4], block_end=False, end=True, reads=3, pause=0.0)
    began = bench.taken
    await ClockCycles(dut.clk, 2 * cols + WinogradLines.LATENCY)
    assert bench.taken - began == 2 * cols
    await ClockCycles(dut.clk, 2 * cols)
    assert bench.taken == (ROWS + 2) * cols + WinogradLines.AHEAD
    sender.cancel()
    bench.task.cancel()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def malformed(dut):
    """Rows that are too short, too long, longer than the memory's; blocks of two, three and five rows."""
    for rows, cols, tile_cols, wrong in ((4, 8, 3, False), (6, 8, 3, False), (4, 7, 3, True), (4, 9, 3, True),
                                         (4, 8, 2, True), (4, 8, 4, True), (2, 8, 3, True), (3, 8, 3, True),
                                         (5, 8, 3, True), (1, 4, 1, True), (4, 4, 1, False), (4, 130, 64, True)):
        bench = Bench(dut)
        await bench.begin()
        dut.tile_cols.value = tile_cols
        beats = list(beats_of(np.zeros((1, rows, cols, LANES), np.uint8)))
        sender = cocotb.start_soon(send(dut, "pixels", beats))
        await ClockCycles(dut.clk, len(beats) + 10)
        assert bool(bench.malformed) == wrong, (rows, cols, tile_cols)
        sender.cancel()
        bench.task.cancel()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def reset_in_mid_stream(dut):
    rng = generator()
    for pixels in (3, 13, 40, 70):
        bench = Bench(dut)
        await bench.begin()
        box = random_box(rng, tiles=(3, 4), blocks=2)
        dut.tile_cols.value = 4
        sender = cocotb.start_soon(send(dut, "pixels", list(beats_of(box))))
        await ClockCycles(dut.clk, pixels)
        sender.cancel()
        bench.task.cancel()
        bench = Bench(dut)
        await bench.begin()
        await bench.box(random_box(rng))
        bench.task.cancel()
