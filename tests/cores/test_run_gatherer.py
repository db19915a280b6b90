"""Run gatherer against the golden model: runs of every length and step, beats and writes that pause."""

import numpy as np
import pytest
from amaranth.hdl import Value

from cores.arch.isa import Instruction, Opcode
from cores.config import NpuConfig
from cores.load.gather.run_gatherer import RunGatherer
from sim.gather import gather_row
from tests.cores.simulation import IDLE_AND_STALL, Bench, random_bits
from tests.cores.store_values import pack

CONFIGS = {
    "one_pixel": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, pixel_lanes=1, gather=1),
    "pairs": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, gather=1),
    "pairs_binary": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, gather=1, binary_rows=1),
}


#: Lanes of a beat in all of them.
LANES = 8


def random_box(config, rng, **chosen):
    """Fields of `RunLayout` with ``blocks``, ``rows`` and the ``beats`` of each row, no fewer than its runs need."""
    box = {"outputs": int(rng.integers(1, 12)), "length": int(rng.integers(1, LANES + 1)),
           "step": int(rng.choice([0, 1, LANES, rng.integers(64)])), "offset": int(rng.integers(LANES)),
           "skip": int(rng.integers(4)), "place": int(rng.integers(LANES)), "blocks": int(rng.integers(1, 4)),
           "rows": int(rng.integers(1, 4)), **chosen}
    end = box["skip"] * LANES + box["offset"] + (box["outputs"] - 1) * box["step"] + box["length"]
    return {"pairs": int(config.write_lanes > 1 and box["step"] <= LANES),
            "beats": -(-end // LANES) + int(rng.choice([0, 0, 1, 3])), **box}


def expected_entries(config, box, data, present):
    """What leaves for every emit; ``data`` and ``present`` int8 (blocks, rows, bytes of a row)."""
    runs = Instruction(Opcode.LOAD_GATHER, start=0, bytes=data.shape[2],
                       **{name: box[name] for name in ("outputs", "step", "length")})
    begin = box["skip"] * LANES + box["offset"]
    at_once = config.write_lanes if box["pairs"] else 1
    place = box["place"]
    for block in range(box["blocks"]):
        kept = min(box["length"], LANES - place)
        for row in range(box["rows"]):
            values, there = (gather_row(source[block, row, begin:], runs, 0, LANES)[0][:, :kept]
                             for source in (data, present))
            for first in range(0, box["outputs"], at_once):
                of_emit = range(first, min(first + at_once, box["outputs"]))
                row_end = of_emit.stop == box["outputs"]
                yield {
                    "emit": (1 << len(of_emit)) - 1, "row_end": row_end,
                    "block_end": row_end and row == box["rows"] - 1, "wrap": place + box["length"] >= LANES,
                    "bytes": ((1 << kept) - 1) << place,
                    "data": [pack(values[run], 8) << 8 * place for run in of_emit],
                    "zero": [not there[run].any() for run in of_emit]}
        place = (place + box["length"]) % LANES


class GathererBench(Bench):
    """Lets beats enter when there is room, holds runs back, compares what leaves."""

    def __init__(self, config, **options):
        self.config, self.gatherer = config, RunGatherer(config)
        super().__init__(self.gatherer, **options)

    def _start(self, ctx, box) -> tuple[list, list]:
        """Begin a box. Returns its beats (beat, present, last of its row), and what is to leave."""
        gatherer, rng = self.gatherer, self.rng
        shape = box["blocks"], box["rows"], box["beats"] * LANES
        data = rng.integers(-128, 128, shape).astype(np.int8)
        present = (rng.random(shape) < rng.choice([0.1, 0.9])).astype(np.int8)
        ctx.set(gatherer.runs, {name: value for name, value in box.items() if name not in ("blocks", "rows", "beats")})
        ctx.set(gatherer.blocks, box["blocks"])
        ctx.set(gatherer.rows, box["rows"])
        beats = [(pack(data[block, row, at:at + LANES], 8), pack(present[block, row, at:at + LANES], 1),
                  at + LANES == shape[2])
                 for block, row in np.ndindex(shape[:2]) for at in range(0, shape[2], LANES)]
        return beats, list(expected_entries(self.config, box, data, present))

    async def gather(self, ctx, boxes, *, broken_off: int | None = None) -> int:
        """Gather ``boxes`` one behind the other, or the first ``broken_off`` cycles of them.

        Returns the cycles from the first emit to the last.
        """
        gatherer, rng, waiting = self.gatherer, self.rng, list(boxes)
        ctx.set(gatherer.start, 1)
        beats, entries = self._start(ctx, waiting.pop(0))
        await ctx.tick()
        under_way: list[dict | None] = [None] * RunGatherer.LATENCY
        emits, cycle, running = [], 0, True
        while running or waiting or any(under_way):
            if cycle == broken_off:
                break
            ctx.set(gatherer.start, 0)
            ctx.set(Value.cast(gatherer.runs), random_bits(rng, len(Value.cast(gatherer.runs))))
            hold, enters = self.pauses(self.stall), ctx.get(gatherer.room) and beats and not self.pauses(self.idle)
            beat, present, last = beats.pop(0) if enters else (random_bits(rng, 8 * LANES), 0, rng.integers(2))
            for port, value in ((gatherer.hold, hold), (gatherer.enter, bool(enters)), (gatherer.enter_last, int(last)),
                                (Value.cast(gatherer.beat), beat), (gatherer.present, present)):
                ctx.set(port, value)
            self._compare_late(ctx, under_way.pop(0))
            under_way.append(None)
            if emit := ctx.get(gatherer.emit):
                assert not hold
                entry = under_way[-1] = entries.pop(0)
                assert (emit, ctx.get(gatherer.row_end)) == (entry["emit"], entry["row_end"])
                if entry["row_end"]:
                    assert ctx.get(gatherer.block_end) == entry["block_end"]
                    assert ctx.get(gatherer.wrap) == entry["wrap"]
                emits.append(cycle)
            if ctx.get(gatherer.finish):
                assert running and not beats and not entries, "finished before its last beat and run"
                running = False
            if not running and waiting and not self.pauses(self.idle):      # perhaps in the cycle of ``finish``
                ctx.set(gatherer.start, 1)
                beats, entries = self._start(ctx, waiting.pop(0))
                running = True
            await ctx.tick()
            cycle += 1
            assert cycle < 5000
        return emits[-1] - emits[0] + 1 if emits else 0

    def _compare_late(self, ctx, entry) -> None:
        """Data, bytes and zeros of what was emitted `LATENCY` cycles ago."""
        if entry is None:
            return
        gatherer, bits = self.gatherer, self.config.beat_bits
        assert ctx.get(gatherer.bytes) == entry["bytes"]
        mask = sum(255 << 8 * byte for byte in range(LANES) if entry["bytes"] >> byte & 1)
        for run, (value, zero) in enumerate(zip(entry["data"], entry["zero"], strict=True)):
            assert ctx.get(gatherer.data) >> run * bits & mask == value, f"run {run}"
            if self.config.binary_rows:
                assert ctx.get(gatherer.zero) >> run & 1 == zero, f"run {run}"


@IDLE_AND_STALL
@pytest.mark.parametrize("name", CONFIGS)
def test_random_boxes(name, idle, stall, rng):
    config = CONFIGS[name]
    bench = GathererBench(config, rng=rng, idle=idle, stall=stall)

    async def gather(ctx):
        for cycles in (1, 5, 30):
            await bench.gather(ctx, [random_box(config, rng, rows=3, outputs=11)], broken_off=cycles)
            await bench.reset(ctx)
        await bench.gather(ctx, [random_box(config, rng) for _ in range(10)])

    bench.run(gather)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("step, outputs", [(1, 30), (3, 31), (LANES, 10), (20, 7)])
def test_rate(name, step, outputs, rng):
    """A run or a pair a cycle where these are the more, a beat a cycle where beats are; none is lost between rows."""
    config, rows = CONFIGS[name], 6
    box = random_box(config, rng, outputs=outputs, step=step, length=min(step, LANES), offset=0, skip=0, blocks=1,
                     rows=rows)
    box["beats"] = -(-((outputs - 1) * step + box["length"]) // LANES)
    emits = -(-outputs // (config.write_lanes if box["pairs"] else 1))
    bench = GathererBench(config, rng=rng)
    taken = []

    async def gather(ctx):
        taken.append(await bench.gather(ctx, [box]))

    bench.run(gather)
    # Where beats are the more, the first run needs only the first of them.
    assert rows * emits <= taken[0] <= rows * max(emits, box["beats"]) + 1, (emits, box["beats"])
