"""What the engines have in common, against the tables of docs/architecture.md."""

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from cores.arch.isa import Queue
from cores.control.engine_port import EnginePort, connect_shared, lacks, token_takers
from tests.cores.simulation import simulate

COMMON = {"queue", "state", "index", "error", "idle", "halt"}


def test_tokens_are_those_of_the_five_counters():
    assert set(token_takers()) == {
        (Queue.LOAD, Queue.COMPUTE), (Queue.COMPUTE, Queue.LOAD), (Queue.COMPUTE, Queue.STORE),
        (Queue.STORE, Queue.COMPUTE), (Queue.STORE, Queue.LOAD)}


@pytest.mark.parametrize(("queue", "names"), [
    (Queue.LOAD, {"compute_level", "compute_take", "store_level", "store_take", "post_compute"}),
    (Queue.COMPUTE, {"load_level", "load_take", "store_level", "store_take", "post_load", "post_store"}),
    (Queue.STORE, {"compute_level", "compute_take", "post_load", "post_compute"}),
])
def test_ports_of_an_engine(queue, names):
    assert set(EnginePort(queue).members) == COMMON | names
    assert set(EnginePort(queue, without=names).members) == COMMON


class Outer(wiring.Component):
    """Passes its ports on to a part, and says whether there are fewer tokens than two wishes."""

    names = ("compute_level", "compute_take", "state")

    def __init__(self):
        members = EnginePort(Queue.STORE).members
        self.inner = wiring.Signature({name: members[name] for name in self.names}).create()
        super().__init__({
            **{name: members[name] for name in self.names},
            "flag": In(1),      # one token, or none
            "count": In(8),     # so many
            "lacks": Out(2),    # of either
        })

    def elaborate(self, platform):
        m = Module()
        connect_shared(m, self, self.inner, *self.names)
        level = Signal.like(self.inner.compute_level)
        m.d.comb += [
            level.eq(self.inner.compute_level),
            self.inner.compute_take.eq(level),
            self.inner.state.eq(~level),
            self.lacks[0].eq(lacks(level, self.flag)),
            self.lacks[1].eq(lacks(level, self.count)),
        ]
        return m


def test_shared_ports_and_lacking_tokens():
    outer = Outer()

    async def bench(ctx):
        for level in (0, 1, 2, 254, 255):
            ctx.set(outer.compute_level, level)
            assert ctx.get(outer.compute_take) == level and ctx.get(outer.state) == ~level & 15
            for flag, count in ((0, 0), (1, 1), (0, 2), (1, 255)):
                ctx.set(outer.flag, flag)
                ctx.set(outer.count, count)
                assert ctx.get(outer.lacks) == (level < flag) | (level < count) << 1

    simulate(outer, bench)
