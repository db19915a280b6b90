"""Padded walk and its phase counters against loops over the box."""

from itertools import product

from cores.load.padded_walk import PaddedWalk
from tests.cores.simulation import IDLE_AND_STALL, Bench

_FLAGS = ("is_data", "row_end", "block_end", "last_block", "end")


def _flags(box: dict[str, int], left: int, cols: int):
    """The flags of each pixel, in order."""
    height, width = box["height"], box["width"]
    for block, row, col in product(range(box["blocks"]), range(height), range(width)):
        data = 0 <= row - box["pad_top"] < box["rows"] and 0 <= col - left < cols
        row_end, last_row, last_block = col == width - 1, row == height - 1, block == box["blocks"] - 1
        yield data or box["ring"], row_end, row_end and last_row, last_block, row_end and last_row and last_block


@IDLE_AND_STALL
def test_padded_walk(idle, stall, rng):
    """Every phase with none, one and several, and rings; other paddings of rows follow when a walk has ended."""
    walk = PaddedWalk(left_bits=4)
    rows = [heights for heights in product((0, 1, 3), (0, 1, 3), (0, 1, 2)) if any(heights)]
    cols = list(product((0, 1, 3), (1, 4), (0, 1, 2)))
    bench = Bench(walk, rng=rng, idle=idle, stall=stall)

    async def compare(ctx):
        bench.to_send["boxes"].append({"blocks": 9, "pad_top": 1, "rows": 1, "height": 4, "width": 9, "ring": 0})
        await bench.cycles(ctx, 20)
        await bench.reset(ctx)
        for left, data_cols, right in (cols[number] for number in rng.permutation(len(cols))):
            ctx.set(walk.left, left)
            ctx.set(walk.cols, data_cols)
            expected = []
            for number in rng.integers(0, len(rows), 4):
                top, data_rows, bottom = rows[number]
                box = {"blocks": int(rng.integers(1, 4)), "pad_top": top, "rows": data_rows,
                       "height": top + data_rows + bottom, "width": left + data_cols + right,
                       "ring": int(rng.random() < 0.3)}
                bench.to_send["boxes"].append(box)
                expected += _flags(box, left, data_cols)
            await bench.until(ctx, lambda expected=expected: len(bench.taken["pixels"]) == len(expected))
            await bench.cycles(ctx, 3)
            found = [tuple(pixel[name] for name in _FLAGS) for pixel in bench.taken["pixels"]]
            assert found == expected, "not these pixels, or more"
            if not idle and not stall:
                assert bench.taken_at["pixels"][0] - bench.sent_at["boxes"][0] == PaddedWalk.LATENCY
            for transfers in (bench.taken, bench.taken_at, bench.sent_at):
                transfers.clear()

    bench.run(compare)


def test_rate(rng):
    """A pixel a cycle, also from box to box, if the next one is there early enough."""
    walk = PaddedWalk(left_bits=4)
    bench = Bench(walk, rng=rng)

    async def compare(ctx):
        ctx.set(walk.left, 1)
        ctx.set(walk.cols, 2)
        for _ in range(5):
            bench.to_send["boxes"].append({"blocks": 2, "pad_top": 0, "rows": 2, "height": 3, "width": 4, "ring": 0})
        await bench.until(ctx, lambda: len(bench.taken["pixels"]) == 5 * 24)
        assert bench.taken_at["pixels"][-1] - bench.taken_at["pixels"][0] == 5 * 24 - 1

    bench.run(compare)
