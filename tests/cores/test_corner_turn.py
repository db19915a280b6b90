"""Corner turn: beats and sums against NumPy, for boxes of both orders with pauses and back-pressure."""

import numpy as np
import pytest

from cores.config import NpuConfig
from cores.load.turn.corner_turn import CornerTurn
from sim.turn import turned
from tests.cores.simulation import IDLE_AND_STALL, Bench

CONFIGS = {
    "a lane": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, turn=1),
    "groups": NpuConfig(oc_lanes=32, ic_lanes=8, nnz_lanes=2, turn=1),
    "whole beats": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=8, turn=1),
    "long": NpuConfig(oc_lanes=32, ic_lanes=16, nnz_lanes=4, turn=1),
}


def random_turn(config: NpuConfig, rng: np.random.Generator, by_channels: int, *, tails: bool
                ) -> tuple[dict[str, int], np.ndarray]:
    """Fields of a LOAD_TURN and the pixels of a box after it; what is beyond lanes and depth is noise."""
    tm, tn = config.oc_lanes, config.ic_lanes
    # Steps of less than half a block have no value beyond them.
    lanes, depth = int(rng.integers(1, tm)), int(rng.integers(tn // 2, tn))
    if not tails:
        lanes, depth = tm, tn
    rows, cols = (-(-lanes // tn), depth) if by_channels else (1, lanes)
    fields = {"by_channels": by_channels, "lanes": lanes, "depth": depth, "bank": int(rng.integers(2)),
              "steps": min(depth, config.groups_dense), "first": int(rng.integers(2))}
    return fields, rng.integers(-128, 128, (int(rng.integers(1, 4)), rows, cols, tn), np.int8)


def pixels_of(box: np.ndarray) -> list[dict[str, int]]:
    blocks, rows, cols, _ = box.shape
    return [{"data": int.from_bytes(box[block, row, col].tobytes(), "little"), "row_end": int(col == cols - 1),
             "block_end": int(col == cols - 1 and row == rows - 1),
             "end": int(col == cols - 1 and row == rows - 1 and block == blocks - 1)}
            for block in range(blocks) for row in range(rows) for col in range(cols)]


@pytest.mark.parametrize("name", ["a lane", "groups"])
def test_corner_turn(name: str, rng: np.random.Generator) -> None:
    _check(CONFIGS[name], 3, 0.3, 0.3, rng)


@pytest.mark.full
@IDLE_AND_STALL
@pytest.mark.parametrize("name", CONFIGS)
def test_many(name: str, idle: float, stall: float, rng: np.random.Generator) -> None:
    _check(CONFIGS[name], 8, idle, stall, rng)


def _check(config: NpuConfig, boxes: int, idle: float, stall: float, rng: np.random.Generator) -> None:
    bench = Bench(CornerTurn(config), rng=rng, idle=idle, stall=stall)
    turn, sums = bench.component, np.zeros((2, config.oc_lanes), np.int64)

    async def compare(ctx) -> None:
        for number in range(boxes):
            # First tails of both orders, then any.
            fields, box = random_turn(config, rng, number % 2, tails=number < 2)
            if number < 2:
                fields |= {"bank": number, "first": 1}
            ctx.set(turn.layout, fields)
            beats, added = turned(config, fields, box)
            sums[fields["bank"]] = added + (0 if fields["first"] else sums[fields["bank"]])
            bench.to_send["pixels"].extend(pixels_of(box))
            bench.taken.clear()
            await bench.until(ctx, lambda: not bench.to_send["pixels"] and not ctx.get(turn.busy))
            found = b"".join(beat.to_bytes(config.ic_lanes, "little") for beat in bench.taken["beats"])
            np.testing.assert_array_equal(np.frombuffer(found, np.int8), beats.ravel(), str(fields))
        for bank in range(2):
            for lane in range(config.oc_lanes):
                ctx.set(turn.sum_bank, bank)
                ctx.set(turn.sum_lane, lane)
                await ctx.tick()
                assert ctx.get(turn.sum) == sums[bank, lane]

    bench.run(compare)


def test_rate(rng: np.random.Generator) -> None:
    """A beat a cycle, `WRITE` and `READ` cycles after a block's last pixel; every second block waits for its place."""
    config = CONFIGS["groups"]
    bench = Bench(CornerTurn(config), rng=rng)
    turn = bench.component

    async def compare(ctx) -> None:
        ctx.set(turn.layout, {"lanes": 32, "depth": 8, "steps": 4, "first": 1})
        bench.to_send["pixels"].extend(pixels_of(rng.integers(-128, 128, (4, 1, 32, 8), np.int8)))
        await bench.until(ctx, lambda: len(bench.taken["beats"]) == 128)
        first = bench.sent_at["pixels"][31] + turn.WRITE + turn.READ
        assert bench.taken_at["beats"] == [first + beat + 2 * (beat >= 64) for beat in range(128)]

    bench.run(compare)
