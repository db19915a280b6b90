"""The bench environment itself: which streams it finds, which broken rules it sees, what it does when all is well."""

import pytest
from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from tests.cores.simulation import IDLE_AND_STALL, Bench, random_bits, simulate, stream_ports


class Stage(wiring.Component):
    """A register between two streams, with a ``fault`` in it."""

    def __init__(self, fault: str = ""):
        self.fault = fault
        super().__init__({"i": In(stream.Signature(8)), "o": Out(stream.Signature(8))})

    def elaborate(self, platform):
        m = Module()
        i, o, full, held, count = self.i, self.o, Signal(), Signal(8), Signal(3)
        m.d.sync += count.eq(count + 1)
        m.d.comb += [o.valid.eq(full), o.payload.eq(held), i.ready.eq(~full | o.ready)]
        if self.fault == "waits for ready":
            m.d.comb += [o.valid.eq(full & o.ready)]
        elif self.fault == "payload follows ready":
            m.d.comb += o.payload.eq(Mux(o.ready, held, 0))
        elif self.fault == "withdraws":
            m.d.comb += [o.valid.eq(full & ~count.all()), i.ready.eq(~full | (o.ready & ~count.all()))]
        elif self.fault == "changes":
            m.d.comb += o.payload.eq(held ^ Cat(count.all()))
        with m.If(i.ready):
            m.d.sync += full.eq(i.valid)
        with m.If(i.valid & (i.ready if self.fault != "overwrites" else 1)):
            m.d.sync += held.eq(i.payload)
        return m


def serve(stage: Stage, rng, *, idle: float = 0.4, stall: float = 0.6) -> Bench:
    """Send a hundred numbers, with a reset on the way, and compare."""
    bench = Bench(stage, rng=rng, idle=idle, stall=stall)

    async def compare(ctx):
        bench.to_send["i"].extend([1, 2, 3])
        await bench.cycles(ctx, 3)
        await bench.reset(ctx)
        assert not ctx.get(stage.o.valid)
        numbers = [random_bits(rng, 8) for _ in range(100)]
        bench.to_send["i"].extend(numbers)
        await bench.until(ctx, lambda: len(bench.taken["o"]) == len(numbers), limit=2000)
        assert bench.taken["o"] == numbers

    bench.run(compare)
    return bench


@IDLE_AND_STALL
def test_a_stage(rng, idle, stall):
    bench = serve(Stage(), rng, idle=idle, stall=stall)
    cycles = bench.taken_at["o"][-1] - bench.taken_at["o"][0] + 1
    if idle or stall:
        assert cycles > 120, "nobody paused"
    else:
        assert cycles == 100 and bench.taken_at["o"][0] == bench.sent_at["i"][0] + 1


@pytest.mark.parametrize("fault, message", [
    ("waits for ready", r"o: offers None, or \d+ if ready"),
    ("payload follows ready", r"o: offers 0, or \d+ if ready"),
    ("withdraws", "o: an offer was withdrawn"),
    ("changes", "o: payload changed from 0x"),
    ("overwrites", "payload changed"),
])
def test_broken_rules(rng, fault, message):
    with pytest.raises(AssertionError, match=message):
        serve(Stage(fault), rng)


@pytest.mark.parametrize("second, message", [((0, 5), "i: an offer was withdrawn"), ((1, 6), "i: payload changed")])
def test_a_bench_keeps_the_rules_too(second, message):
    stage = Stage()

    async def offer(ctx):
        for valid, payload in ((1, 4), (1, 5), second):     # the first is taken, the second is not
            ctx.set(stage.i.valid, valid)
            ctx.set(stage.i.payload, payload)
            await ctx.tick()
        await ctx.tick()

    with pytest.raises(AssertionError, match=message):
        simulate(stage, offer)


def test_a_standstill_is_told(rng):
    with pytest.raises(AssertionError, match="nothing more happens"):
        serve(Stage(), rng, stall=1.0)


def test_finds_streams_within_interfaces():
    inner = wiring.Signature({"up": In(stream.Signature(3)), "down": Out(stream.Signature(4)), "flag": Out(1)})

    class Nested(wiring.Component):
        plain: Out(2)
        here: In(inner)
        there: Out(inner)
        alone: In(stream.Signature(5))

    found = {port.name: (port.produces, len(port.stream.payload)) for port in stream_ports(Nested())}
    assert found == {"here.up": (True, 3), "here.down": (False, 4), "there.up": (False, 3), "there.down": (True, 4),
                     "alone": (False, 5)}
