"""Benches in Amaranth's own simulator: stream ports served and held to the stream rules, a reset, a logged seed."""

import os
import random
import secrets
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import ClockDomain, Const, Module, Value
from amaranth.lib import stream, wiring
from amaranth.sim import Simulator

__all__ = [
    "IDLE_AND_STALL", "Bench", "StreamPort", "log_seed", "random_bits", "random_fields", "simulate", "stream_ports",
]

#: Pauses of the producers by those of the consumers: none, each alone, both.
IDLE_AND_STALL = pytest.mark.parametrize("idle, stall", [(0.0, 0.0), (0.5, 0.0), (0.0, 0.6), (0.4, 0.4)])

#: A testbench as `amaranth.sim` takes it: ``async def bench(ctx)``.
Testbench = Callable[[Any], Awaitable[None]]


def log_seed() -> int:
    """Seed ``random`` from NPUGEN_SEED, or anew, and print it so that a failure can be repeated."""
    seed = int(os.environ.get("NPUGEN_SEED") or secrets.randbelow(1 << 31))
    print(f"NPUGEN_SEED={seed}")
    random.seed(seed)
    return seed


def random_bits(rng: np.random.Generator, bits: int) -> int:
    """An unsigned number of ``bits`` bits."""
    return int.from_bytes(rng.bytes(-(-bits // 8)), "little") & (1 << bits) - 1


def random_fields(rng: np.random.Generator, layout, **chosen) -> dict[str, int]:
    """Values for the members of a `data.StructLayout`: the ``chosen`` ones, and noise in all others."""
    values = {name: random_bits(rng, field.width) for name, field in layout}
    return {**values, **chosen}


@dataclass(frozen=True)
class StreamPort:
    """A stream among a component's ports; ``produces``: the component is its producer."""

    name: str
    stream: stream.Interface
    produces: bool


def stream_ports(component: wiring.Component) -> Iterator[StreamPort]:
    """The stream ports of ``component``, found by their signatures; those inside another interface as ``a.b``."""
    def ports(signature, interface, prefix, produces):
        for name, member in signature.members.items():
            if member.is_port:
                continue
            if member.dimensions:
                raise NotImplementedError(f"{prefix}{name} is an array of interfaces")
            inner, out = getattr(interface, name), produces == (member.flow is wiring.Out)
            if isinstance(member.signature, stream.Signature):
                yield StreamPort(prefix + name, inner, out)
            else:
                yield from ports(member.signature, inner, f"{prefix}{name}.", produces)
    return ports(component.signature, component, "", True)


class Bench:
    """``component`` in Amaranth's simulator. Every stream port is held to Amaranth's stream rules in every cycle:

    * An offer stands, and its payload with it, until it is taken or the component is reset. Those of the bench too.
    * Neither ``valid`` nor the payload follows ``ready``: every cycle is tried with both of its values.
    * A consumer takes its time: producers and consumers pause at random.

    With ``rng`` the bench serves the streams: it sends what is in ``to_send`` by port name, pausing in a cycle with
    probability ``idle`` (the payload is noise meanwhile), and takes what comes into ``taken``, refusing with
    probability ``stall``; ``sent_at`` and ``taken_at`` hold the ``cycle`` of each transfer. Without, the testbenches
    drive the streams, which are only watched.
    """

    def __init__(self, component: wiring.Component, *, rng: np.random.Generator | None = None, idle: float = 0.0,
                 stall: float = 0.0):
        self.component, self.rng, self.idle, self.stall = component, rng, idle, stall
        self.to_send: dict[str, deque] = defaultdict(deque)
        self.taken: dict[str, list] = defaultdict(list)
        self.sent_at: dict[str, list[int]] = defaultdict(list)
        self.taken_at: dict[str, list[int]] = defaultdict(list)
        self.cycle = 0
        self._domain = ClockDomain("sync")

    def run(self, *testbenches: Testbench, background: Sequence[Testbench] = ()) -> None:
        """Simulate until all ``testbenches`` have ended; those in ``background`` need not.

        Raises AssertionError for a broken stream rule.
        """
        m = Module()
        m.domains += self._domain
        m.submodules.component = self.component
        simulator = Simulator(m)
        simulator.add_clock(1e-6)
        ports = list(stream_ports(self.component))
        # They run in this order in every cycle: testbenches see the offers of their cycle, the watch sees it complete.
        simulator.add_testbench(self._count, background=True)
        if self.rng is not None:
            for port in ports:
                simulator.add_testbench(self._taker(port) if port.produces else self._sender(port), background=True)
        for testbench in testbenches:
            simulator.add_testbench(testbench)
        for testbench in background:
            simulator.add_testbench(testbench, background=True)
        for port in ports:
            simulator.add_testbench(self._watch(port), background=True)
        simulator.run()

    async def reset(self, ctx, cycles: int = 1) -> None:
        """Reset the component. What was to be sent is forgotten, what was taken too."""
        ctx.set(self._domain.rst, 1)
        for transfers in (self.to_send, self.taken, self.sent_at, self.taken_at):
            transfers.clear()
        await self.cycles(ctx, cycles)
        ctx.set(self._domain.rst, 0)

    async def cycles(self, ctx, count: int) -> None:
        """Let ``count`` cycles pass. Unlike `amaranth.sim`'s own ``repeat`` it can be left where it is when another
        process fails.
        """
        for _ in range(count):
            await ctx.tick()

    async def until(self, ctx, condition: Callable[[], bool], *, limit: int = 10_000) -> None:
        """Let cycles pass until ``condition()``. Raises AssertionError after ``limit`` of them."""
        for _ in range(limit):
            if condition():
                return
            await ctx.tick()
        raise AssertionError(f"nothing more happens: {dict(self.taken)} taken, {dict(self.to_send)} not")

    def pauses(self, probability: float) -> bool:
        """Whether who pauses with ``probability`` does now."""
        return probability > 0 and self.rng.random() < probability

    # -- processes --------------------------------------------------------------------------------------------------

    async def _count(self, ctx) -> None:
        while True:
            await ctx.tick()
            self.cycle += 1

    def _sender(self, port: StreamPort) -> Testbench:
        valid, ready, payload = port.stream.valid, port.stream.ready, Value.cast(port.stream.payload)

        async def send(ctx) -> None:
            offering = False
            while True:
                waiting = self.to_send[port.name]
                if not offering:
                    offering = bool(waiting) and not self.pauses(self.idle)
                    ctx.set(valid, offering)
                    if offering:
                        ctx.set(port.stream.payload, waiting[0])
                    else:
                        ctx.set(payload, random_bits(self.rng, len(payload)))
                _, reset, took = await ctx.tick().sample(ready)
                if reset:
                    offering = False
                elif offering and took:
                    offering = False
                    self.to_send[port.name].popleft()
                    self.sent_at[port.name].append(self.cycle - 1)
        return send

    def _taker(self, port: StreamPort) -> Testbench:
        valid, ready, payload = port.stream.valid, port.stream.ready, port.stream.payload

        async def take(ctx) -> None:
            while True:
                willing = not self.pauses(self.stall)
                ctx.set(ready, willing)
                _, reset, offered, item = await ctx.tick().sample(valid, payload)
                if offered and willing and not reset:
                    self.taken[port.name].append(item)
                    self.taken_at[port.name].append(self.cycle - 1)
        return take

    def _watch(self, port: StreamPort) -> Testbench:
        valid, ready, payload = port.stream.valid, port.stream.ready, Value.cast(port.stream.payload)

        def offer(ctx) -> int | None:
            return ctx.get(payload) if ctx.get(valid) else None

        async def watch(ctx) -> None:
            waiting = None
            while True:
                if port.produces and not isinstance(ready, Const):
                    was, offers = ctx.get(ready), []
                    for value in (0, 1):
                        ctx.set(ready, value)
                        offers.append(offer(ctx))
                    ctx.set(ready, was)
                    assert offers[0] == offers[1], f"{port.name}: offers {offers[0]}, or {offers[1]} if ready"
                _, reset, offered, taken, item = await ctx.tick().sample(valid, ready, payload)
                if waiting is not None:
                    assert offered, f"{port.name}: an offer was withdrawn"
                    assert item == waiting, f"{port.name}: payload changed from {waiting:#x} to {item:#x} while waiting"
                waiting = item if offered and not taken and not reset else None
        return watch


def simulate(component: wiring.Component, testbench: Testbench) -> None:
    """Run ``async testbench(ctx)`` on ``component``, which drives all of its ports; streams are watched."""
    Bench(component).run(testbench)
