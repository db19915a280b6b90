"""Store runs against loops over blocks and rows: runs of memory and of the buffer, ranges, halt, rate."""

import numpy as np
import pytest
from amaranth.hdl import Value

from cores.arch.instruction import Instruction, encode
from cores.arch.isa import Opcode
from cores.config import NpuConfig
from cores.store.store_runs import StoreRuns
from tests.cores.simulation import IDLE_AND_STALL, Bench, random_bits

CONFIGS = {
    "plain": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1),
    "local": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, depthwise=1, local_store=1, input_depth=256),
    "binary": NpuConfig(oc_lanes=16, ic_lanes=16, nnz_lanes=1, gather=1, binary_rows=1, address_width=32),
    "maximum": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, maximum=1),
}
#: Writable regions: first beat, and the one after the last.
REGIONS = ((0, 1 << 20), (1 << 19, 1 << 28))
PERIOD = 3


class RunsBench(Bench):
    """Gives STOREs and compares their runs."""

    def __init__(self, config, **options):
        self.config, self.runs = config, StoreRuns(config)
        self.signs = self.maximum = 0       # rows are written as signs, or maxima
        super().__init__(self.runs, **options)
        self.data_address = 4096 * int(self.rng.integers(1 << 8))

    def random_store(self, *, begin: int, end: int) -> tuple[Instruction, Instruction]:
        """STORE_SET and STORE whose runs, of signs or of pixels, lie between ``begin`` and ``end``."""
        rng, config = self.rng, self.config
        fields = {"rows": rng.integers(1, 5), "cols": rng.choice([1, 7, 8, 9, 4095]),
                  "row_pitch": rng.integers(0, 5000), "block_pitch": rng.integers(0, 20000)}
        self.signs, self.maximum = (
            int(bool(unit) and rng.integers(2)) for unit in (config.binary_rows, config.maximum))
        if self.maximum:
            fields["cols"] = rng.choice([4, 8, 4092])
        blocks = int(rng.integers(1, 4))
        if config.local_store and rng.integers(2):
            fields |= {"local": 1, "row_pitch": rng.integers(0, 3) * 5, "block_pitch": rng.integers(0, 60),
                       "bank": rng.integers(config.banks)}
            begin, end = 0, config.input_depth
        geometry = Instruction(Opcode.STORE_SET, **{name: int(value) for name, value in fields.items()})
        reach = (blocks - 1) * geometry["block_pitch"] + (geometry["rows"] - 1) * geometry["row_pitch"]
        reach += 1 if geometry["local"] else self.beats(geometry)
        return geometry, Instruction(Opcode.STORE, offset=int(rng.integers(begin, end - reach + 1)), blocks=blocks,
                                     post_load=int(rng.integers(2)), post_compute=int(rng.integers(2)))

    def beats(self, geometry: Instruction) -> int:
        return -(-geometry["cols"] // 8) if self.signs else geometry["cols"] // (4 if self.maximum else 1)

    def expected(self, geometry: Instruction, store: Instruction, index: int) -> list[dict[str, int]]:
        runs = []
        for block in range(store["blocks"]):
            for row in range(geometry["rows"]):
                at = store["offset"] + block * geometry["block_pitch"] + row * geometry["row_pitch"]
                last = (block, row) == (store["blocks"] - 1, geometry["rows"] - 1)
                run = {"last": int(last), "index": index}
                if geometry["local"]:
                    run |= {"beats": self.beats(geometry), "entry": at, "bank": geometry["bank"],
                            "one": int(geometry["cols"] == 1), "post": store["post_compute"],
                            "follows": int(row > 0 and not geometry["row_pitch"])}
                else:
                    run |= {"address": self.data_address + at * self.config.beat_bytes,
                            "length": self.beats(geometry) - 1, "post": store["post_load"]}
                runs.append(run)
        return runs

    async def give(self, ctx, geometry: Instruction, store: Instruction, index: int, *,
                   region: tuple[int, int]) -> None:
        for port, value in ((self.runs.geometry, geometry), (self.runs.store, store)):
            ctx.set(Value.cast(port), int.from_bytes(encode(value), "little"))
        if self.config.binary_rows:
            ctx.set(self.runs.signs, self.signs)
        if self.config.maximum:
            ctx.set(self.runs.maximum, self.maximum)
        for port, number in ((self.runs.index, index), (self.runs.write_start, region[0]),
                             (self.runs.data_beats, region[1]), (self.runs.data_address, self.data_address)):
            ctx.set(port, number)
        await ctx.tick()
        ctx.set(self.runs.start, 1)

    def found(self) -> list[dict[str, int]]:
        return [{name: run[name] for name, _ in run.shape()} for port in ("run", "local") for run in self.taken[port]]

    async def store(self, ctx, geometry, store, *, region) -> None:
        """A STORE to its end."""
        index = random_bits(self.rng, 24)
        expected = self.expected(geometry, store, index)
        self.taken.clear()
        assert ctx.get(self.runs.idle) and not ctx.get(self.runs.failed)
        await self.give(ctx, geometry, store, index, region=region)
        await ctx.tick()
        ctx.set(self.runs.start, 0)
        await self.until(ctx, lambda: ctx.get(self.runs.idle), limit=1000)
        assert self.found() == expected
        assert bool(self.taken["local"]) == bool(geometry["local"])


@IDLE_AND_STALL
@pytest.mark.parametrize("name", CONFIGS)
def test_random_stores(name, idle, stall, rng):
    bench = RunsBench(CONFIGS[name], rng=rng, idle=idle, stall=stall)
    runs = bench.runs

    async def compare(ctx):
        for number in range(40):
            begin, end = REGIONS[number % 2]
            geometry, store = bench.random_store(begin=begin, end=end)
            if number == 5:         # broken off
                await bench.give(ctx, geometry, store, 0, region=(begin, end))
                await bench.cycles(ctx, int(rng.integers(1, 9)))
                ctx.set(runs.start, 0)
                await bench.reset(ctx)
                continue
            while bench.pauses(idle):
                await ctx.tick()
            await bench.store(ctx, geometry, store, region=(begin, end))
            if not stall:
                taken_at = sorted(bench.taken_at["run"] + bench.taken_at["local"])[-len(bench.found()):]
                assert set(np.diff(taken_at)) <= {PERIOD}

    bench.run(compare)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("short_of", ["begin", "end", "neither"])
def test_runs_outside_the_region(name, short_of, rng):
    """A row that begins before the region, or ends a beat after it, is not offered, nor is what follows."""
    config = CONFIGS[name]
    bench = RunsBench(config, rng=rng)
    geometry = Instruction(Opcode.STORE_SET, rows=3, cols=5, row_pitch=100)
    store = Instruction(Opcode.STORE, offset=1000, blocks=1)
    region = {"begin": (1001, 5000), "end": (1000, 1204), "neither": (1000, 1205)}[short_of]
    offered = {"begin": 0, "end": 2, "neither": 3}[short_of]

    async def compare(ctx):
        await bench.give(ctx, geometry, store, 9, region=region)
        await ctx.tick()
        ctx.set(bench.runs.start, 0)
        await bench.cycles(ctx, 30)
        assert bench.found() == bench.expected(geometry, store, 9)[:offered]
        for _ in range(3):
            assert ctx.get(bench.runs.failed) == (short_of != "neither")
            assert ctx.get(bench.runs.idle) == (short_of == "neither")
            await ctx.tick()
        await bench.reset(ctx)
        assert ctx.get(bench.runs.idle) and not ctx.get(bench.runs.failed)

    bench.run(compare)


def test_local_rows_begin_in_the_buffer(rng):
    config = CONFIGS["local"]
    bench = RunsBench(config, rng=rng)
    geometry = Instruction(Opcode.STORE_SET, rows=3, cols=9, row_pitch=2, local=1)
    store = Instruction(Opcode.STORE, offset=config.input_depth - 3, blocks=1)

    async def compare(ctx):
        await bench.give(ctx, geometry, store, 9, region=(0, 0))
        await ctx.tick()
        ctx.set(bench.runs.start, 0)
        await bench.cycles(ctx, 30)
        assert bench.found() == bench.expected(geometry, store, 9)[:2]
        assert ctx.get(bench.runs.failed)

    bench.run(compare)


@pytest.mark.parametrize("name", CONFIGS)
def test_halt(name, rng):
    """An offer stands while the machine halts; none follows."""
    config = CONFIGS[name]
    bench = RunsBench(config, rng=rng, stall=0.7)
    geometry = Instruction(Opcode.STORE_SET, rows=20, cols=5, row_pitch=100)
    store = Instruction(Opcode.STORE, offset=1000, blocks=1)

    async def compare(ctx):
        await bench.give(ctx, geometry, store, 9, region=(0, 5000))
        await ctx.tick()
        ctx.set(bench.runs.start, 0)
        while not (ctx.get(bench.runs.run.valid) and len(bench.taken["run"]) > 2):
            await ctx.tick()
        offered = len(bench.taken["run"]) + 1
        ctx.set(bench.runs.halt, 1)
        await bench.cycles(ctx, 40)
        assert len(bench.taken["run"]) == offered and not ctx.get(bench.runs.run.valid)
        ctx.set(bench.runs.halt, 0)
        await bench.until(ctx, lambda: ctx.get(bench.runs.idle))
        assert bench.found() == bench.expected(geometry, store, 9)

    bench.run(compare)
