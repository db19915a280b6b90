"""Load requester: requests of random programs, in order, no more than there is room for, each when its tokens are."""

import pytest

from cores.arch.error_codes import ErrorCode
from cores.arch.instruction import Instruction, decode, encode
from cores.arch.isa import Opcode
from cores.config import NpuConfig
from cores.load.load_context import LoadContext
from cores.load.load_requester import LoadRequester
from tests.cores.instruction_samples import context_of
from tests.cores.load_stimulus import LoadStimulus
from tests.cores.simulation import IDLE_AND_STALL, Bench

CONFIG = NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, input_depth=1024)
ADDRESS = 0x1_2340
DEPTH = 512


class RequesterBench(Bench):
    """Gives tokens, takes data from the FIFO that requests fill, and compares what is asked for with a program.

    ``slow``: how often no token comes, and no data leaves.
    """

    def __init__(self, *, slow: float = 0.0, **options):
        self.requester, self.slow = LoadRequester(CONFIG, depth=DEPTH), slow
        super().__init__(self.requester, **options)
        self.begin()

    def begin(self) -> None:
        self.level = self.takes = self.asked = self.left = 0
        self.contexts: list[tuple[int, int]] = []      # index, context
        self.errors: list[tuple[ErrorCode, int]] = []
        self.held = False       # no data leaves

    def give(self, stimulus: LoadStimulus) -> None:
        self.to_send["queue"].extend({"index": 50 + index, "word": word}
                                     for index, word in enumerate(stimulus.instructions))

    async def surround(self, ctx) -> None:
        requester = self.requester
        while True:
            self.level += 0 if self.pauses(self.slow) else int(self.rng.integers(1, 9))
            ctx.set(requester.store_level, min(self.level, 60_000))
            ctx.set(requester.room, ctx.get(requester.room) or not self.pauses(self.slow))
            leaves = self.left < self.asked and not self.held and not self.pauses(self.slow)
            ctx.set(requester.popped, leaves)
            _, reset, take, error, hand_on, context = await ctx.tick().sample(
                requester.store_take, requester.error, requester.hand_on, requester.context)
            if reset:
                continue
            if hand_on:
                assert ctx.get(requester.room)
                self.contexts.append((context.entry.index - 50, context.as_bits()))
                ctx.set(requester.room, 0)
            assert take <= self.level
            self.level, self.takes, self.left = self.level - take, self.takes + take, self.left + leaves
            if error.valid:
                self.errors.append((ErrorCode(error.code), error.index - 50))
            self.asked = sum(item.length + 1 for item in self.taken["request"])
            assert self.asked - self.left <= DEPTH, "data is asked for that there is no room for"

    def region(self, ctx, beats: int) -> None:
        ctx.set(self.requester.data_address, ADDRESS)
        ctx.set(self.requester.data_beats, beats)


def random_program(rng, loads: int) -> LoadStimulus:
    stimulus = LoadStimulus(CONFIG, rng)
    stimulus.geometry(cols=int(rng.integers(1, 40)))
    for _ in range(loads):
        flags = {"stores": int(rng.choice([0, 0, 1, 40]))}
        kind = rng.integers(5)
        if kind == 0:
            stimulus.weights(int(rng.choice([1, 7, 256, 257, 700])), **flags)
        elif kind == 1:
            stimulus.side(cols=int(rng.choice([1, 8, 300])), rows=int(rng.integers(1, 4)), **flags)
        else:
            if kind == 2:
                stimulus.geometry(cols=int(rng.choice([1, 5, 260])), pads=(0, 0))
            stimulus.box(blocks=int(rng.integers(1, 3)), rows=int(rng.integers(0, 3)), pads=(1, 0), **flags)
    return stimulus


def compare(bench: RequesterBench, stimulus: LoadStimulus) -> None:
    found = [((item.address - ADDRESS) // CONFIG.beat_bytes, item.length + 1) for item in bench.taken["request"]]
    assert found == [(request.offset, request.beats) for request in stimulus.requests]
    assert bench.contexts == [
        (index, LoadContext.const(context_of(50 + index, decode(word.to_bytes(16, "little")))).as_bits())
        for index, word in enumerate(stimulus.instructions)]


@IDLE_AND_STALL
@pytest.mark.parametrize("slow", [0.0, 0.6])
def test_random_programs(idle, stall, slow, rng):
    bench = RequesterBench(rng=rng, idle=idle, stall=stall, slow=slow)

    async def run(ctx):
        bench.region(ctx, 1 << 30)
        bench.give(random_program(rng, 5))
        await bench.cycles(ctx, 60)
        await bench.reset(ctx)
        bench.begin()
        stimulus = random_program(rng, 12)
        bench.region(ctx, stimulus.region_beats)
        bench.give(stimulus)
        await bench.until(ctx, lambda: len(bench.contexts) == len(stimulus.instructions)
                          and len(bench.taken["request"]) == len(stimulus.requests))
        await bench.cycles(ctx, 10)
        assert not ctx.get(bench.requester.running) and not bench.errors
        compare(bench, stimulus)
        assert bench.takes == sum(load.stores for load in stimulus.loads)

    bench.run(run, background=[bench.surround])


def test_cycles(rng):
    """From an instruction to its request, from one to the next, and from room to a request."""
    bench = RequesterBench(rng=rng)

    async def run(ctx):
        bench.region(ctx, 1 << 30)
        stimulus = LoadStimulus(CONFIG, rng)
        stimulus.side(cols=1, rows=5)
        stimulus.weights(300)
        bench.give(stimulus)
        await bench.until(ctx, lambda: len(bench.taken["request"]) == len(stimulus.requests))
        taken, requests = bench.sent_at["queue"], bench.taken_at["request"]
        assert taken[0] == 1 + LoadRequester.LOOK
        assert requests[0] == taken[0] + LoadRequester.FIRST_REQUEST
        steps = [later - earlier for earlier, later in zip(requests, requests[1:], strict=False)]
        assert set(steps[:4] + steps[5:]) == {LoadRequester.REQUEST_CYCLES}
        assert taken[1] == requests[4] + LoadRequester.NEXT_INSTRUCTION
        await bench.cycles(ctx, 400)
        # All room is reserved until a beat of it leaves.
        bench.held = True
        stimulus.weights(DEPTH + 1)
        bench.to_send["queue"].append({"index": 0, "word": stimulus.instructions[-1]})
        await bench.cycles(ctx, 40)
        assert len(bench.taken["request"]) == len(stimulus.requests) - 1
        before = bench.left
        bench.held = False
        await bench.until(ctx, lambda: bench.left > before)
        left = bench.cycle - 2
        await bench.until(ctx, lambda: len(bench.taken["request"]) == len(stimulus.requests))
        assert bench.taken_at["request"][-1] == left + LoadRequester.ROOM_CYCLES

    bench.run(run, background=[bench.surround])


@pytest.mark.parametrize("beyond", [0, 1])
def test_range(beyond, rng):
    """A row that leaves the region is not asked for, nor is what is after it."""
    bench = RequesterBench(rng=rng)

    async def run(ctx):
        stimulus = LoadStimulus(CONFIG, rng)
        for number in range(3):
            word = encode(Instruction(Opcode.LOAD_SIDE, offset=10 * number, cols=3, rows=4, row_pitch=5))
            stimulus.instructions.append(int.from_bytes(word, "little"))
        bench.region(ctx, 10 + 15 + 3 - beyond)
        bench.give(stimulus)
        await bench.cycles(ctx, 100)
        rows = 7 if beyond else 8 + 2
        assert len(bench.taken["request"]) == rows
        assert bench.errors == [(ErrorCode.READ_RANGE, 1 if beyond else 2)]

    bench.run(run, background=[bench.surround])


def test_no_geometry(rng):
    bench = RequesterBench(rng=rng)

    async def run(ctx):
        bench.region(ctx, 1 << 30)
        word = int.from_bytes(encode(Instruction(Opcode.LOAD_ACT, blocks=1, rows=1)), "little")
        bench.to_send["queue"].append({"index": 53, "word": word})
        await bench.cycles(ctx, 20)
        assert bench.errors == [(ErrorCode.ILLEGAL, 3)] and not bench.taken["request"]

    bench.run(run, background=[bench.surround])


def test_halt(rng):
    """What is offered stays; nothing else is taken or offered."""
    bench = RequesterBench(rng=rng, stall=1.0)
    requester = bench.requester

    async def run(ctx):
        bench.region(ctx, 1 << 30)
        stimulus = LoadStimulus(CONFIG, rng)
        stimulus.weights(600)
        stimulus.weights(3)
        bench.give(stimulus)
        bench.stall = 0.0
        await bench.until(ctx, lambda: bool(bench.sent_at["queue"]))
        bench.stall = 1.0
        await bench.until(ctx, lambda: ctx.get(requester.request.valid))
        ctx.set(requester.halt, 1)
        await bench.cycles(ctx, 20)
        assert ctx.get(requester.request.valid)
        bench.stall = 0.0
        await bench.cycles(ctx, 20)
        assert len(bench.taken["request"]) == 1 and len(bench.sent_at["queue"]) == 1

    bench.run(run, background=[bench.surround])
