"""FIFOs whose ready and valid are registers."""

from typing import ClassVar

from amaranth.hdl import Elaboratable, Module, Mux, Signal, Value
from amaranth.lib.fifo import FIFOInterface
from amaranth.lib.memory import Memory, ReadPort
from amaranth.utils import exact_log2

from ..timing.lib import BufferedFifoTiming, FifoTiming

__all__ = ["BufferedFifo", "Fifo", "ShallowFifo", "SingleFifo"]


class _Ring(FIFOInterface, Elaboratable):
    """What all have: a memory of ``depth`` entries, a power of two, written and read in a circle.

    ``w_rdy``, and whether the memory has an entry, come from registers and not from comparisons of its level: paths
    from one engine to the next begin after them.

    Raises ValueError unless ``depth`` is a power of two above 1.
    """

    #: Cycles from a write until it can be read.
    LATENCY: int
    #: Of the memory, for synthesis.
    _ATTRIBUTES: ClassVar[dict[str, str]] = {}

    def __init__(self, *, width: int, depth: int):
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two above 1, not {depth!r}")
        super().__init__(width=width, depth=depth)
        self.level = Signal(range(depth + 1))  # entries written and not read
        self.some = Signal()    # there is one, whether it can be read already or not

    def _ring(self, m: Module, *, capacity: int, level: Signal, some: Signal, take: Value, domain: str) -> ReadPort:
        """Keep ``level``, of at most ``capacity``, and ``some``, whether it is not 0; an entry leaves with ``take``."""
        storage: Memory
        m.submodules.storage = storage = Memory(
            shape=self.width, depth=self.depth, init=[], attrs=self._ATTRIBUTES)
        write, read = storage.write_port(), storage.read_port(domain=domain)
        produce, consume = (Signal(exact_log2(self.depth), name=name) for name in ("produce", "consume"))
        push, full = Signal(), Signal()
        m.d.comb += [
            self.w_rdy.eq(~full),
            push.eq(self.w_en & ~full),
            self.w_level.eq(self.level),
            self.r_level.eq(self.level),
            write.addr.eq(produce),
            write.data.eq(self.w_data),
            write.en.eq(push),
            read.addr.eq(consume),
            self.r_data.eq(read.data),
        ]
        with m.If(push):
            m.d.sync += produce.eq(produce + 1)
        with m.If(take):
            m.d.sync += consume.eq(consume + 1)
        # What is taken comes late and only decides whether registers move.
        with m.If(push ^ take):
            m.d.sync += [
                level.eq(Mux(push, level + 1, level - 1)),
                some.eq(push | (level != 1)),
                full.eq(push & (level == capacity - 1)),
            ]
        return read


class Fifo(FifoTiming, _Ring):
    """In LUT RAM: what is written can be read a cycle later.

    In every cycle it does what amaranth.lib.fifo.SyncFIFO does.
    """

    def elaborate(self, platform):
        m = Module()
        pop = Signal()
        m.d.comb += [pop.eq(self.r_en & self.r_rdy), self.some.eq(self.r_rdy)]
        self._ring(m, capacity=self.depth, level=self.level, some=self.r_rdy, take=pop, domain="comb")
        return m


class SingleFifo(FifoTiming, FIFOInterface, Elaboratable):
    """One entry, in a register: no memory, and none comes in the cycle in which one leaves.

    In every cycle it does what amaranth.lib.fifo.SyncFIFO of that depth does.
    """

    def __init__(self, *, width: int):
        super().__init__(width=width, depth=1)
        self.level = self.some = Signal()   # there is an entry

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [
            self.w_rdy.eq(~self.some), self.r_rdy.eq(self.some), self.w_level.eq(self.some), self.r_level.eq(self.some),
        ]
        with m.If(self.w_en & ~self.some):
            m.d.sync += [self.some.eq(1), self.r_data.eq(self.w_data)]
        with m.Elif(self.r_en):
            m.d.sync += self.some.eq(0)
        return m


class BufferedFifo(BufferedFifoTiming, _Ring):
    """In block RAM: what is written can be read two cycles later.

    In every cycle it does what amaranth.lib.fifo.SyncFIFOBuffered does. The entry that can be read is in the memory's
    output register, and one place of the memory stays free.
    """

    def __init__(self, *, width: int, depth: int):
        super().__init__(width=width, depth=depth)
        # In the next cycle there is an entry to read, even if one is read in this. The name is that which Amaranth
        # gives to what has none.
        self.more = Signal(name="$signal")

    def elaborate(self, platform):
        m = Module()
        inner_level, some, fetch = Signal(range(self.depth)), self.more, Signal()
        read = self._ring(m, capacity=self.depth - 1, level=inner_level, some=some, take=fetch, domain="sync")
        m.d.comb += [
            fetch.eq(some & (~self.r_rdy | self.r_en)),
            self.level.eq(inner_level + self.r_rdy),
            self.some.eq(some | self.r_rdy),
            read.en.eq(fetch),
        ]
        with m.If(fetch):
            m.d.sync += self.r_rdy.eq(1)
        with m.Elif(self.r_en):
            m.d.sync += self.r_rdy.eq(0)
        return m


class ShallowFifo(BufferedFifo):
    """A `BufferedFifo` in LUT RAM: paths from its entry begin in a register, and not at the address of a LUT RAM, which
    has as many loads as an entry has bits. What takes an entry is in front of as many, so it must come early.
    """

    _ATTRIBUTES: ClassVar[dict[str, str]] = {"ram_style": "distributed"}
