"""In-flight boxes: in order, each from the end of the one before it on, and whose the runs are."""

from collections import deque

import pytest

from cores.load.gather.inflight_boxes import InflightBoxes
from tests.cores.simulation import Bench, random_bits


class BoxesBench(Bench):
    """Ends boxes, at random but not before they have begun, and knows which is at hand in every cycle."""

    def begin(self) -> None:
        self.waiting: deque = deque()       # announced, not begun
        self.at_hand, self.ending = None, False
        self.begun = 0

    async def surround(self, ctx) -> None:
        boxes = self.component
        while True:
            # A box's last run sets out after its beginning, and is placed in the cycle after.
            sets_out = self.at_hand is not None and not self.ending and self.pauses(0.5)
            ctx.set(boxes.ending, int(sets_out))
            _, reset, taken, payload, begins, base, at_hand, end, drained, idle = await ctx.tick().sample(
                boxes.boxes.valid & boxes.boxes.ready, boxes.boxes.p, boxes.begin, boxes.base, boxes.at_hand, boxes.end,
                boxes.drained, boxes.idle)
            if reset:
                self.begin()
                continue
            left = self.at_hand is not None
            assert end == self.ending
            assert idle == (not left and not self.waiting)
            assert drained == ((not left or self.ending or sets_out) and not self.waiting)
            assert begins == (bool(self.waiting) and (not left or self.ending))
            if left:
                assert (at_hand.index, at_hand.post) == (self.at_hand["index"], self.at_hand["post"])
            if self.ending:
                self.at_hand = None
            if begins:
                self.at_hand = self.waiting.popleft()
                assert base == self.at_hand["base"]
                self.begun += 1
            self.ending = sets_out
            if taken:
                self.waiting.append({name: payload[name] for name in ("base", "index", "post")})


@pytest.mark.parametrize("idle", [0.0, 0.8])
def test_inflight_boxes(idle, rng):
    bench = BoxesBench(InflightBoxes(), rng=rng, idle=idle)
    bench.begin()

    def give(count):
        bench.to_send["boxes"].extend({"base": random_bits(rng, 14), "index": random_bits(rng, 24),
                                       "post": random_bits(rng, 1)} for _ in range(count))

    async def compare(ctx):
        give(5)
        await bench.cycles(ctx, 12)
        await bench.reset(ctx)
        bench.begin()
        give(60)
        await bench.until(ctx, lambda: bench.begun == 60)

    bench.run(compare, background=[bench.surround])
