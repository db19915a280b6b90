"""Run gatherer after its walk against the golden model: runs of every length and step, beats and writes that pause."""

import numpy as np
import pytest
from amaranth.hdl import Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import connect, flipped

from cores.arch.instruction import Instruction
from cores.arch.isa import Opcode
from cores.arch.numerics import half_of
from cores.config import NpuConfig
from cores.load.gather.run_gatherer import RunGatherer
from cores.load.gather.run_walk import RunWalk
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


class WalkAndGatherer(wiring.Component):
    """`RunWalk` in front of `RunGatherer`, whose beats it has to be ahead of."""

    def __init__(self, config: NpuConfig):
        self.walk, self.gatherer = RunWalk(config), RunGatherer(config)
        inner = {name: member for part in (self.walk, self.gatherer) for name, member in part.signature.members.items()
                 if name != "runs"}
        super().__init__(inner)

    def elaborate(self, platform):
        m = Module()
        m.submodules.walk, m.submodules.gatherer = self.walk, self.gatherer
        connect(m, self.walk.runs, self.gatherer.runs)
        for part in (self.walk, self.gatherer):
            for name, member in part.signature.members.items():
                port, inner = getattr(self, name, None), getattr(part, name)
                if name == "boxes":
                    connect(m, flipped(port), inner)
                elif name != "runs":
                    target, source = (inner, port) if member.flow is wiring.In else (port, inner)
                    m.d.comb += Value.cast(target).eq(source)
        return m


def random_boxes(config, rng, **chosen):
    """Fields of `RunLayout`, ``boxes`` of (blocks, rows), and the ``beats`` of a row, no fewer than its runs need."""
    fields = {"outputs": int(rng.integers(1, 12)), "length": int(rng.integers(1, LANES + 1)),
              "step": int(rng.choice([0, 1, LANES, rng.integers(64)])), "offset": int(rng.integers(LANES)),
              "skip": int(rng.integers(4)), "place": int(rng.integers(LANES)),
              "boxes": [(int(rng.integers(1, 4)), int(rng.integers(1, 4))) for _ in range(rng.integers(1, 5))],
              **chosen}
    end = fields["skip"] * LANES + fields["offset"] + (fields["outputs"] - 1) * fields["step"] + fields["length"]
    return {"pairs": int(config.write_lanes > 1 and fields["step"] <= LANES),
            "beats": -(-end // LANES) + int(rng.choice([0, 0, 1, 3, 9])), **fields}


def expected_entries(config, box, data, present):
    """What leaves of a box for every emit; ``data`` and ``present`` int8 (blocks, rows, bytes of a row)."""
    blocks, rows, _ = data.shape
    runs = Instruction(Opcode.LOAD_GATHER, start=0, bytes=data.shape[2],
                       **{name: box[name] for name in ("outputs", "step", "length")})
    begin = box["skip"] * LANES + box["offset"]
    at_once = config.write_lanes if box["pairs"] else 1
    place = box["place"]
    for block in range(blocks):
        kept = min(box["length"], LANES - place)
        for row in range(rows):
            values, there = (gather_row(source[block, row, begin:], runs, 0, LANES)[0][:, :kept]
                             for source in (data, present))
            for first in range(0, box["outputs"], at_once):
                of_emit = range(first, min(first + at_once, box["outputs"]))
                row_end = of_emit.stop == box["outputs"]
                yield {
                    "emit": (1 << len(of_emit)) - 1, "row_end": row_end,
                    "block_end": row_end and row == rows - 1,
                    "box_end": row_end and (block, row) == (blocks - 1, rows - 1),
                    "wrap": place + box["length"] >= LANES,
                    "bytes": ((1 << kept) - 1) << place,
                    "data": [pack(values[run], 8) << 8 * place for run in of_emit],
                    "zero": [[not there[run][half_of(place + np.arange(kept), LANES) == half].any()
                              for half in range(2)] for run in of_emit]}
        place = (place + box["length"]) % LANES


class GathererBench(Bench):
    """Lets beats enter when there is room, holds runs back, compares what leaves."""

    def __init__(self, config, **options):
        self.config, self.gatherer = config, WalkAndGatherer(config)
        super().__init__(self.gatherer, **options)

    def _announce(self, ctx, fields) -> tuple[list, list]:
        """Boxes of one layout. Returns the beats of each (beat, present), and what is to leave."""
        gatherer, rng = self.gatherer, self.rng
        layout = {name: fields[name] for name in ("outputs", "length", "step", "offset", "skip", "place", "pairs")}
        ctx.set(gatherer.layout, layout)
        ctx.set(gatherer.width, fields["beats"])
        beats, entries = [], []
        for blocks, rows in fields["boxes"]:
            self.to_send["boxes"].append({"blocks": blocks, "rows": rows})
            shape = blocks, rows, fields["beats"] * LANES
            data = rng.integers(-128, 128, shape).astype(np.int8)
            present = (rng.random(shape) < rng.choice([0.1, 0.9])).astype(np.int8)
            beats.append([(pack(data[block, row, at:at + LANES], 8), pack(present[block, row, at:at + LANES], 1))
                          for block, row in np.ndindex(shape[:2]) for at in range(0, shape[2], LANES)])
            entries += expected_entries(self.config, fields, data, present)
        return beats, entries

    def _may_enter(self, box: int, known: int) -> bool:
        """A box's first beat comes no sooner than its first run."""
        sent = self.sent_at["boxes"][known:]
        return box < len(sent) and self.cycle >= sent[box] + RunWalk.LATENCY

    async def gather(self, ctx, fields, *, broken_off: int | None = None) -> int:
        """Gather the boxes of ``fields`` one after the other, or the first ``broken_off`` cycles of them.

        Returns the cycles from the first emit to the last.
        """
        gatherer, rng, known = self.gatherer, self.rng, len(self.sent_at["boxes"])
        beats, entries = self._announce(ctx, fields)
        under_way: list[dict | None] = [None] * RunGatherer.LATENCY
        emits, cycle, box = [], 0, 0
        late = 0, 0
        while box < len(beats) or entries or any(under_way):
            if cycle == broken_off:
                break
            hold = self.pauses(self.stall)
            enters = (box < len(beats) and self._may_enter(box, known) and ctx.get(gatherer.room)
                      and not self.pauses(self.idle))
            beat, present = beats[box].pop(0) if enters else (random_bits(rng, 8 * LANES), 0)
            box += bool(enters and not beats[box])
            for port, value in ((gatherer.hold, hold), (gatherer.enter, bool(enters)),
                                (Value.cast(gatherer.beat), late[0]), (gatherer.present, late[1])):
                ctx.set(port, value)
            late = beat, present        # they come a cycle after ``enter``
            self._compare_late(ctx, under_way.pop(0))
            under_way.append(None)
            if emit := ctx.get(gatherer.emit):
                assert not hold
                entry = under_way[-1] = entries.pop(0)
                assert (emit, ctx.get(gatherer.row_end)) == (entry["emit"], entry["row_end"])
                assert ctx.get(gatherer.box_end) == entry["box_end"]
                if entry["row_end"]:
                    assert ctx.get(gatherer.block_end) == entry["block_end"]
                    assert ctx.get(gatherer.wrap) == entry["wrap"]
                emits.append(cycle)
            await ctx.tick()
            cycle += 1
            assert cycle < 5000
        ctx.set(gatherer.enter, 0)
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
                assert ctx.get(Value.cast(gatherer.zero)) >> 2 * run & 3 == pack(np.array(zero), 1), f"run {run}"


@IDLE_AND_STALL
@pytest.mark.parametrize("name", CONFIGS)
def test_random_boxes(name, idle, stall, rng):
    config = CONFIGS[name]
    bench = GathererBench(config, rng=rng, idle=idle, stall=stall)

    async def gather(ctx):
        for cycles in (1, 5, 30):
            await bench.gather(ctx, random_boxes(config, rng, boxes=[(3, 3)], outputs=11), broken_off=cycles)
            await bench.reset(ctx)
        for _ in range(6):
            await bench.gather(ctx, random_boxes(config, rng))
            # Its layout stands until the last run is taken.
            await bench.cycles(ctx, int(rng.integers(3)))

    bench.run(gather)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("step, outputs", [(1, 30), (3, 31), (LANES, 10), (20, 7)])
def test_rate(name, step, outputs, rng):
    """A run or a pair a cycle where these are the more, a beat a cycle where beats are; none is lost between rows and
    boxes.
    """
    config, boxes = CONFIGS[name], [(1, 4), (2, 2)]
    fields = random_boxes(config, rng, outputs=outputs, step=step, length=min(step, LANES), offset=0, skip=0,
                          boxes=boxes)
    fields["beats"] = -(-((outputs - 1) * step + fields["length"]) // LANES)
    emits, rows = -(-outputs // (config.write_lanes if fields["pairs"] else 1)), 8
    bench = GathererBench(config, rng=rng)
    taken = []

    async def gather(ctx):
        taken.append(await bench.gather(ctx, fields))

    bench.run(gather)
    # Where beats are the more, the first run needs only the first of them.
    assert rows * emits <= taken[0] <= rows * max(emits, fields["beats"]) + 1, (emits, fields["beats"])
