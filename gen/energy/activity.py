"""How often the bits of a component change, counted in Amaranth's simulator."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, ClockDomain, Fragment, Module
from amaranth.hdl._ast import SignalSet  # signals that can be kept apart: no public module has it
from amaranth.lib import wiring
from amaranth.sim import Simulator

__all__ = ["Activity", "measure_activity"]


@dataclass(frozen=True)
class Activity:
    """Changes of a bit in a cycle, in the mean: of ``registers``, and of the ``wires`` between them."""

    registers: float
    wires: float


def measure_activity(component: wiring.Component, cycles: Sequence[Mapping[str, Any]], *, warm: int = 0) -> Activity:
    """Of a component whose ports get new values in each of ``cycles``; the first ``warm`` of them are not counted.

    Glitches, changes that are taken back before the next clock edge, are not seen. Raises ValueError for cycles of
    which none is counted.
    """
    if len(cycles) <= warm + 1:
        raise ValueError(f"cycles must be more than warm + 1 = {warm + 1}, not {len(cycles)}")
    m = Module()
    m.domains.sync = ClockDomain("sync")
    m.submodules.component = component
    design = Fragment.get(m, None)
    groups = [Cat(*signals) for signals in _driven(design)]
    changes = [0] * len(groups)

    async def bench(ctx: Any) -> None:
        before: list[int] = []
        for number, ports in enumerate(cycles):
            for name, value in ports.items():
                ctx.set(getattr(component, name), value)
            await ctx.tick()
            now = [ctx.get(group) for group in groups]
            if number > warm:
                for place, (old, new) in enumerate(zip(before, now, strict=True)):
                    changes[place] += (old ^ new).bit_count()
            before = now

    simulator = Simulator(design)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    counted = len(cycles) - warm - 1
    return Activity(*(count / (max(1, len(group)) * counted) for count, group in zip(changes, groups, strict=True)))


def _driven(design: Any) -> tuple[SignalSet, SignalSet]:
    """The signals that registers drive, and those that logic does."""
    registers, wires = SignalSet(), SignalSet()
    for domain, statements in design.statements.items():
        for statement in statements:
            (wires if domain == "comb" else registers).update(statement._lhs_signals())
    for part, *_ in design.subfragments:
        for mine, its in zip((registers, wires), _driven(part), strict=True):
            mine.update(its)
    return registers, wires
