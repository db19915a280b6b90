"""Buffer writer: boxes, weights and side loads in order, every beat where it belongs, tokens when it can be read."""

import pytest

from cores.arch.instruction import decode
from cores.arch.registers import ENGINE_STATES
from cores.config import NpuConfig
from cores.load.buffer_writer import BufferWriter
from tests.cores.instruction_samples import context_of
from tests.cores.load_stimulus import LoadStimulus
from tests.cores.simulation import IDLE_AND_STALL, Bench, random_bits

CONFIGS = {
    "one_bank": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, pixel_lanes=1, input_depth=256),
    "two_banks": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, local_store=1, input_depth=256),
    "gather": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, gather=1, local_store=1, input_depth=256),
    "four_banks": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, input_depth=256),
}
STATES = ENGINE_STATES["load"]


def context(index: int, word: int) -> dict:
    """An instruction as the requester hands it on."""
    return context_of(index, decode(word.to_bytes(16, "little")))


class WriterBench(Bench):
    """Feeds instructions and beats, and notes what is written, with tokens and the store engine's beats."""

    def __init__(self, config, **options):
        self.config, self.writer = config, BufferWriter(config)
        super().__init__(self.writer, **options)
        self.begin()

    def begin(self) -> None:
        self.written: list = []         # (cycle, bank, entry, beat)
        self.posts: list[int] = []
        self.overruns: list[int] = []
        self.kept: dict[int, tuple] = {}    # by the cycle in which they are to be written
        self.level = self.takes = self.idle = 0

    def give(self, stimulus: LoadStimulus) -> dict[str, list]:
        """Send a program and its data. Returns what is expected, by port, in order."""
        expected: dict[str, list] = {"write": [], "weights": [], "side": []}
        for delivery in stimulus.deliveries:
            beat = delivery.padding
            if delivery.source is not None:
                beat = random_bits(self.rng, self.config.beat_bits)
                self.to_send["input"].append(beat)
            expected[delivery.port].append((*delivery.place, beat) if delivery.place else beat)
        self.to_send["queue"].extend(context(index, word) for index, word in enumerate(stimulus.instructions))
        return expected

    async def surround(self, ctx) -> None:
        writer, config = self.writer, self.config
        lanes, latency = config.write_lanes, BufferWriter.latency(config)
        write_bytes = [writer.write.bytes] if config.gather else []
        while True:
            self.level += self.level < 3 and not self.pauses(self.stall)
            ctx.set(writer.compute_level, self.level)
            if config.local_store:
                beat = {"enable": 0}
                if self.pauses(self.stall / 2):
                    bank, entry = int(self.rng.integers(config.banks)), int(self.rng.integers(config.input_depth))
                    beat = {"enable": 1 << bank, "address": entry, "payload": random_bits(self.rng, config.beat_bits)}
                    self.kept[self.cycle + latency] = bank, entry, beat["payload"]
                ctx.set(writer.kept, beat)
            write = writer.write
            _, reset, enable, address, data, post, take, overrun, index, idle, *of_bytes = await ctx.tick().sample(
                write.enable, write.address, write.data, writer.post_compute, writer.compute_take, writer.overrun,
                writer.overrun_index, writer.idle, *write_bytes)
            if reset:
                continue
            assert take <= self.level
            self.level, self.takes = self.level - take, self.takes + take
            cycle = self.cycle - 1
            # What is written in the very cycle does not count any more: the engine's ``idle`` is a cycle behind.
            was_idle, self.idle = self.idle, idle
            for bank in range(config.banks):
                if enable >> bank & 1:
                    assert of_bytes in ([], [(1 << config.beat_bytes) - 1])
                    beat = data >> bank % lanes * config.beat_bits & (1 << config.beat_bits) - 1
                    if cycle in self.kept:
                        assert self.kept.pop(cycle) == (bank, address, beat)
                    else:
                        assert not was_idle
                        self.written.append((cycle, bank, address, beat))
            assert cycle not in self.kept, "a beat of the store engine is lost"
            if post:
                self.posts.append(cycle)
            if overrun:
                self.overruns.append(index)

    def random_program(self, loads: int) -> LoadStimulus:
        rng, stimulus = self.rng, LoadStimulus(self.config, self.rng)

        def pads(most):
            return int(rng.integers(most)), int(rng.integers(most))
        stimulus.geometry(cols=int(rng.integers(1, 6)), pads=pads(4))
        for _ in range(loads):
            flags = {"wait_compute": int(rng.integers(2)), "post_compute": int(rng.integers(2))}
            kind = rng.integers(5)
            if kind == 0:
                stimulus.weights(int(rng.choice([1, 9])), **flags)
            elif kind == 1:
                stimulus.side(cols=int(rng.integers(1, 5)), rows=int(rng.integers(1, 4)), **flags)
            else:
                if kind == 2:
                    stimulus.geometry(cols=int(rng.integers(1, 6)), pads=pads(4))
                stimulus.box(blocks=int(rng.integers(1, 3)), rows=int(rng.integers(0, 3)), pads=pads(2), **flags)
        return stimulus


@IDLE_AND_STALL
@pytest.mark.parametrize("name", CONFIGS)
def test_random_loads(name, idle, stall, rng):
    """``stall``: of the rings; how often tokens are late; half as often the store engine's beats go in front."""
    bench = WriterBench(CONFIGS[name], rng=rng, idle=idle, stall=stall)
    writer = bench.writer

    async def compare(ctx):
        bench.give(bench.random_program(4))
        await bench.cycles(ctx, 60)
        await bench.reset(ctx)
        bench.begin()
        ctx.set(writer.compute_level, 0)
        stimulus = bench.random_program(12)
        expected = bench.give(stimulus)
        await bench.until(ctx, lambda: len(bench.sent_at["queue"]) == len(stimulus.instructions)
                          and ctx.get(writer.idle), limit=20_000)
        await bench.cycles(ctx, 3 + BufferWriter.latency(bench.config))    # a token of a ring may be on its way
        assert [entry[1:] for entry in bench.written] == expected["write"]
        assert {name: bench.taken[name] for name in ("weights", "side")} == {
            name: expected[name] for name in ("weights", "side")}
        assert bench.takes == sum(load.wait_compute for load in stimulus.loads)
        assert not bench.overruns
        # A token comes in the cycle of the last entry's write, so that it is read after it; of a ring's, as late.
        posted = iter(bench.posts)
        done = {"write": 0, "weights": 0, "side": 0}
        begin = 0
        for load in stimulus.loads:
            for delivery in stimulus.deliveries[begin:load.end]:
                done[delivery.port] += 1
            begin = load.end
            if load.post_compute:
                at = next(posted)
                if delivery.port == "write":
                    assert at == bench.written[done["write"] - 1][0]
                else:
                    assert at == bench.taken_at[delivery.port][done[delivery.port] - 1] + BufferWriter.latency(
                        bench.config)
        assert next(posted, None) is None

    bench.run(compare, background=[bench.surround])


@pytest.mark.parametrize("name", CONFIGS)
def test_rate(name, rng):
    """A pixel a cycle, data or padding, from row to row and block to block."""
    config = CONFIGS[name]
    bench = WriterBench(config, rng=rng)

    async def compare(ctx):
        stimulus = LoadStimulus(config, rng)
        stimulus.geometry(cols=5, pads=(1, 2), stride=2)
        stimulus.box(blocks=2, rows=3, pads=(1, 1))
        expected = bench.give(stimulus)
        await bench.until(ctx, lambda: len(bench.written) == len(expected["write"]))
        assert bench.written[-1][0] - bench.written[0][0] == len(expected["write"]) - 1

    bench.run(compare, background=[bench.surround])


@pytest.mark.parametrize("beyond", [0, 1])
def test_the_last_entry(beyond, rng):
    config = CONFIGS["two_banks"]
    bench = WriterBench(config, rng=rng)

    async def compare(ctx):
        stimulus = LoadStimulus(config, rng)
        stimulus.geometry(cols=5)
        stimulus.box(beyond=beyond)
        bench.give(stimulus)
        await bench.until(ctx, lambda: len(bench.sent_at["queue"]) == 2 and ctx.get(bench.writer.idle))
        await bench.cycles(ctx, 2)
        assert set(bench.overruns) == ({1} if beyond else set())

    bench.run(compare, background=[bench.surround])


def test_states(rng):
    """What holds the writer up is in its ``state``."""
    config = CONFIGS["two_banks"]
    bench = WriterBench(config, rng=rng)
    writer = bench.writer

    async def compare(ctx):
        def state():
            return STATES[ctx.get(writer.state)]
        assert state() == "idle"
        stimulus = LoadStimulus(config, rng)
        stimulus.weights(2)
        bench.to_send["queue"].append(context(5, stimulus.instructions[0]))
        await bench.until(ctx, lambda: bool(bench.sent_at["queue"]))
        assert state() == "wait_bus" and ctx.get(writer.index) == 5
        bench.stall = 1.0
        await ctx.tick()
        bench.to_send["input"].extend([1, 2])
        await bench.cycles(ctx, 3)
        assert state() == "wait_ring" and not bench.taken["weights"]
        bench.stall = 0.0
        await bench.until(ctx, lambda: len(bench.taken["weights"]) == 2)
        await ctx.tick()
        assert state() == "idle" and ctx.get(writer.idle)

    bench.run(compare)


def test_waits_for_a_token(rng):
    config = CONFIGS["one_bank"]
    bench = WriterBench(config, rng=rng)
    writer = bench.writer

    async def compare(ctx):
        stimulus = LoadStimulus(config, rng)
        stimulus.weights(1, wait_compute=1)
        bench.give(stimulus)
        await bench.cycles(ctx, 10)
        assert STATES[ctx.get(writer.state)] == "wait_compute" and not bench.sent_at["queue"]
        ctx.set(writer.compute_level, 1)
        await bench.until(ctx, lambda: len(bench.taken["weights"]) == 1, limit=5)

    bench.run(compare)
