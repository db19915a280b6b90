"""The cycle and event counters that the host reads."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..arch.registers import COUNTER_BITS, COUNTERS
from ..lib.component import Component

__all__ = ["PerformanceCounters"]

#: Bits of a sum whose carry decides about the others.
_LOWER_BITS = 20


class PerformanceCounters(Component):
    """Counts the cycles of each bit of ``events`` (in the order of ``registers.COUNTERS``), `COUNTER_BITS` bits each.

    The sums are in one small memory that is visited counter after counter, in two steps; what happens between two
    visits is held in a few bits beside each event. That costs a fifth of separate counters. A reader puts the counter's
    number on ``select`` and takes ``value`` in the cycle in which ``valid`` is up, at most ``count`` cycles later: it
    is exact for all cycles before the last `LATENCY`. ``clear`` sets all to zero; events of its own cycle are not
    counted.
    """

    #: Cycles from a visit until its sum is ``value``.
    LATENCY = 1

    def __init__(self, *, count: int = len(COUNTERS)):
        if not 2 <= count <= 32:
            raise ValueError(f"count must be in 2..32, not {count!r}")
        self.count = count
        super().__init__({
            "events": In(count),         # counted where they are 1
            "clear": In(1),              # set all to zero; events of this cycle are not counted
            "select": In(range(count)),  # counter that is wanted
            "value": Out(COUNTER_BITS),  # its sum of all cycles before the last `LATENCY`, when ``valid``
            "valid": Out(1),             # at most ``count`` cycles after ``select``
        })

    def elaborate(self, platform):
        m = Module()
        sums: Memory
        m.submodules.sums = sums = Memory(shape=COUNTER_BITS, depth=self.count, init=[])
        write, read = sums.write_port(), sums.read_port(domain="comb")

        visit = Signal(range(self.count), name="visit")
        visited = Signal(range(self.count), name="visited", init=self.count - 1)    # the one before
        m.d.sync += [visit.eq(Mux(visit == self.count - 1, 0, visit + 1)), visited.eq(visit)]
        # After a clear every counter is visited once with its old sum left out.
        stale, is_stale = Signal(range(self.count + 1), init=self.count), Signal(init=1)
        with m.If(self.clear):
            m.d.sync += [stale.eq(self.count), is_stale.eq(1)]
        with m.Elif(is_stale):
            m.d.sync += [stale.eq(stale - 1), is_stale.eq(stale != 1)]

        pending = [Signal(range(self.count + 1), name=f"pending_{index}") for index in range(self.count)]
        before, more = Signal(COUNTER_BITS), Signal(range(self.count + 1))
        # One more than its upper bits, and whether a carry out of the lowest goes up to them: it only chooses.
        kept, next_upper, passes = Signal(COUNTER_BITS), Signal(COUNTER_BITS - _LOWER_BITS), Signal()
        m.d.comb += kept.eq(Mux(is_stale, 0, read.data))
        m.d.sync += [before.eq(kept), next_upper.eq(kept[_LOWER_BITS:] + 1),
                     passes.eq(kept[len(more):_LOWER_BITS].all())]
        with m.Switch(visit):
            for index, count in enumerate(pending):
                with m.Case(index):
                    m.d.sync += more.eq(count)
        for index, count in enumerate(pending):
            with m.If(self.clear):
                m.d.sync += count.eq(0)
            with m.Else():
                m.d.sync += count.eq(Mux(visit == index, 0, count) + self.events[index])

        carry = (before[:len(more)] + more)[-1] & passes
        m.d.comb += [
            read.addr.eq(visit),
            self.value.eq(Cat((before[:_LOWER_BITS] + more)[:_LOWER_BITS],
                              Mux(carry, next_upper, before[_LOWER_BITS:]))),
            self.valid.eq(self.select == visited),
            write.addr.eq(visited),
            write.data.eq(self.value),
            write.en.eq(1),
        ]
        return m
