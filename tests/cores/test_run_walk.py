"""Run walk: the beats, bytes and ends of every run of boxes one after the other."""

from functools import partial

import pytest

from cores.config import NpuConfig
from cores.load.gather.byte_window import ByteWindow
from cores.load.gather.run_walk import RunWalk, beat_number
from tests.cores.simulation import IDLE_AND_STALL, Bench

CONFIGS = {
    "one_pixel": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, pixel_lanes=1, gather=1),
    "pairs": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, gather=1),
}
#: Bytes of a beat in both of them.
LANES = 8


def random_layout(config, rng) -> dict:
    """Fields of `RunLayout`, and ``width``."""
    layout = {"outputs": int(rng.integers(1, 9)), "length": int(rng.integers(1, LANES + 1)),
              "step": int(rng.choice([0, 1, LANES, rng.integers(64)])), "offset": int(rng.integers(LANES)),
              "skip": int(rng.integers(4)), "place": int(rng.integers(LANES))}
    pairs = int(config.write_lanes > 1 and layout["step"] <= LANES)
    return {**layout, "pairs": pairs, "width": int(rng.integers(1, 5000))}


def expected_runs(config, layout, boxes, first_row):
    """Fields of the runs of ``boxes``, (blocks, rows) each, whose first beat has the number ``first_row``."""
    together, wraps = config.write_lanes if layout["pairs"] else 1, 1 << beat_number(config)
    for blocks, rows in boxes:
        place = layout["place"]
        for block in range(blocks):
            for row in range(rows):
                for output in range(0, layout["outputs"], together):
                    count = min(together, layout["outputs"] - output)
                    begins = [((first_row + layout["skip"]) * LANES + layout["offset"] + number * layout["step"])
                              for number in range(output, output + count)]
                    row_end = output + together >= layout["outputs"]
                    block_end = row_end and row == rows - 1
                    yield {"first": begins[0] // LANES % wraps,
                           "last": (begins[-1] + layout["length"] - 1) // LANES % wraps,
                           "alone": int(count == 1), "place": place, "end": place + layout["length"],
                           "slot": [begin // LANES % ByteWindow.SLOTS for begin in begins],
                           "offset": [begin % LANES for begin in begins], "row_end": int(row_end),
                           "block_end": int(block_end), "box_end": int(block_end and block == blocks - 1)}
                first_row += layout["width"]
            place = (place + layout["length"]) % LANES


def compare(found, wanted) -> None:
    for name, value in wanted.items():
        if name in ("slot", "offset"):
            assert [found[name][run] for run in range(len(value))] == value
        else:
            assert found[name] == value, name


@IDLE_AND_STALL
@pytest.mark.parametrize("name", CONFIGS)
def test_runs(name, idle, stall, rng):
    config = CONFIGS[name]
    bench = Bench(RunWalk(config), rng=rng, idle=idle, stall=stall)
    walk = bench.component

    def show(ctx, layout):
        ctx.set(walk.layout, {field: value for field, value in layout.items() if field != "width"})
        ctx.set(walk.width, layout["width"])

    def enough(count):
        return len(bench.taken["runs"]) >= count

    def random_boxes():
        return [(int(rng.integers(1, 4)), int(rng.integers(1, 4))) for _ in range(rng.integers(1, 5))]

    async def walk_through(ctx):
        show(ctx, random_layout(config, rng))
        bench.to_send["boxes"].extend({"blocks": 3, "rows": 3} for _ in range(2))
        await bench.cycles(ctx, int(rng.integers(1, 20)))
        await bench.reset(ctx)
        first_row = 0
        # Far enough for numbers to wrap.
        for _ in range(8):
            layout, boxes = random_layout(config, rng), random_boxes()
            show(ctx, layout)
            wanted = list(expected_runs(config, layout, boxes, first_row))
            bench.taken["runs"].clear()
            bench.to_send["boxes"].extend({"blocks": blocks, "rows": rows} for blocks, rows in boxes)
            await bench.until(ctx, partial(enough, len(wanted)))
            await bench.cycles(ctx, 3)
            assert len(bench.taken["runs"]) == len(wanted)
            for found, run in zip(bench.taken["runs"], wanted, strict=True):
                compare(found, run)
            first_row += layout["width"] * sum(blocks * rows for blocks, rows in boxes)

    bench.run(walk_through)


@pytest.mark.parametrize("name", CONFIGS)
def test_rate(name, rng):
    """A run, or a pair, a cycle, from row to row and from box to box; the first `LATENCY` cycles after its box."""
    config = CONFIGS[name]
    bench = Bench(RunWalk(config), rng=rng)

    async def walk_through(ctx):
        layout = {**random_layout(config, rng), "outputs": 5}
        ctx.set(bench.component.layout, {field: value for field, value in layout.items() if field != "width"})
        boxes = [(2, 3), (1, 2), (1, 4)]
        runs = 12 * (-(-5 // 2) if layout["pairs"] else 5)
        bench.to_send["boxes"].extend({"blocks": blocks, "rows": rows} for blocks, rows in boxes)
        await bench.until(ctx, lambda: len(bench.taken["runs"]) == runs)
        taken_at = bench.taken_at["runs"]
        assert taken_at[0] == bench.sent_at["boxes"][0] + RunWalk.LATENCY
        assert taken_at[-1] - taken_at[0] == runs - 1

    bench.run(walk_through)
