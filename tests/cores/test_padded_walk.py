"""Padded walk and its phase counters against loops over the box."""

import random
from itertools import product

from cores.load.padded_walk import PaddedWalk
from tests.cores.simulation import log_seed, simulate

_FLAGS = ("is_data", "row_end", "block_end", "last_block", "end")


def _flags(box: dict[str, int], left: int, right: int):
    """The flags of each pixel, in order."""
    height, width = box["pad_top"] + box["rows"] + box["pad_bottom"], left + box["cols"] + right
    for block, row, col in product(range(box["blocks"]), range(height), range(width)):
        data = 0 <= row - box["pad_top"] < box["rows"] and 0 <= col - left < box["cols"]
        row_end, last_row, last_block = col == width - 1, row == height - 1, block == box["blocks"] - 1
        yield data, row_end, row_end and last_row, last_block, row_end and last_row and last_block


def test_padded_walk():
    """Every phase with none, one and several; pauses; boxes one after the other with and without a cycle between."""
    log_seed()
    rows = [heights for heights in product((0, 1, 3), (0, 1, 3), (0, 1, 2)) if any(heights)]
    cols = list(product((0, 1, 3), (1, 4), (0, 1, 2)))
    cases = [*product(rows, random.sample(cols, 4)), *product(random.sample(rows, 4), cols)]
    random.shuffle(cases)
    walk = PaddedWalk(left_bits=4, right_bits=5)

    async def bench(ctx):
        for (top, data_rows, bottom), (left, data_cols, right) in cases:
            box = {"blocks": random.randint(1, 3), "pad_top": top, "rows": data_rows, "pad_bottom": bottom,
                   "cols": data_cols}
            for name, value in (("start", 1), ("box", box), ("left", left), ("right", right)):
                ctx.set(getattr(walk, name), value)
            await ctx.tick()
            ctx.set(walk.start, 0)
            ctx.set(walk.box, dict.fromkeys(box, 0))
            for expected in _flags(box, left, right):
                ctx.set(walk.step, 0)
                while random.random() < 0.3:
                    await ctx.tick()
                assert tuple(ctx.get(getattr(walk, name)) for name in _FLAGS) == expected
                ctx.set(walk.step, 1)
                if not expected[-1]:
                    await ctx.tick()
            if random.randrange(2):     # else the next box starts in the last step's cycle
                await ctx.tick()
                ctx.set(walk.step, 0)

    simulate(walk, bench)
