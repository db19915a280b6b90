"""FIFOs whose ready and valid are registers."""

from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib.fifo import FIFOInterface
from amaranth.lib.memory import Memory
from amaranth.utils import exact_log2

__all__ = ["BufferedFifo", "Fifo"]


def _flags(m: Module, level: Signal, capacity: int, *, full: Signal, some: Signal, push, pop) -> None:
    """Keep ``level`` and, as registers, whether it is ``capacity`` and whether it is not 0."""
    with m.If(push & ~pop):
        m.d.sync += [level.eq(level + 1), some.eq(1), full.eq(level == capacity - 1)]
    with m.Elif(pop & ~push):
        m.d.sync += [level.eq(level - 1), some.eq(level != 1), full.eq(0)]


class Fifo(FIFOInterface, Elaboratable):
    """Of ``depth`` entries, a power of two, in LUT RAM: what is written can be read a cycle later.

    In every cycle it does what amaranth.lib.fifo.SyncFIFO does, but ``w_rdy`` and ``r_rdy`` come from registers and not
    from comparisons of the level: paths from one engine to the next begin behind them.

    Raises ValueError unless ``depth`` is a power of two above 1.
    """

    def __init__(self, *, width: int, depth: int):
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two above 1, not {depth!r}")
        super().__init__(width=width, depth=depth)
        self.level = Signal(range(depth + 1))  # entries that can be read

    def elaborate(self, platform):
        m = Module()
        m.submodules.storage = storage = Memory(shape=self.width, depth=self.depth, init=[])
        write, read = storage.write_port(), storage.read_port(domain="comb")
        produce, consume = (Signal(exact_log2(self.depth), name=name) for name in ("produce", "consume"))
        push, pop, full = Signal(), Signal(), Signal()
        m.d.comb += [
            self.w_rdy.eq(~full),
            push.eq(self.w_en & ~full),
            pop.eq(self.r_en & self.r_rdy),
            self.w_level.eq(self.level),
            self.r_level.eq(self.level),
            write.addr.eq(produce),
            write.data.eq(self.w_data),
            write.en.eq(push),
            read.addr.eq(consume),
            self.r_data.eq(read.data),
        ]
        m.d.sync += [produce.eq(produce + push), consume.eq(consume + pop)]
        _flags(m, self.level, self.depth, full=full, some=self.r_rdy, push=push, pop=pop)
        return m


class BufferedFifo(FIFOInterface, Elaboratable):
    """Of ``depth`` entries, a power of two, in block RAM: what is written can be read two cycles later.

    In every cycle it does what amaranth.lib.fifo.SyncFIFOBuffered does; for the rest see `Fifo`.

    Raises ValueError unless ``depth`` is a power of two above 1.
    """

    def __init__(self, *, width: int, depth: int):
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two above 1, not {depth!r}")
        super().__init__(width=width, depth=depth)
        self.level = Signal(range(depth + 1))  # entries written and not read

    def elaborate(self, platform):
        m = Module()
        m.submodules.storage = storage = Memory(shape=self.width, depth=self.depth, init=[])
        write, read = storage.write_port(), storage.read_port()
        produce, consume = (Signal(exact_log2(self.depth), name=name) for name in ("produce", "consume"))
        inner_level = Signal(range(self.depth))
        push, fetch, full, some = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            self.w_rdy.eq(~full),
            push.eq(self.w_en & ~full),
            # The entry that can be read is in the memory's output register; the memory holds the others.
            fetch.eq(some & (~self.r_rdy | self.r_en)),
            self.level.eq(inner_level + self.r_rdy),
            self.w_level.eq(self.level),
            self.r_level.eq(self.level),
            write.addr.eq(produce),
            write.data.eq(self.w_data),
            write.en.eq(push),
            read.addr.eq(consume),
            read.en.eq(fetch),
            self.r_data.eq(read.data),
        ]
        m.d.sync += [produce.eq(produce + push), consume.eq(consume + fetch)]
        with m.If(fetch):
            m.d.sync += self.r_rdy.eq(1)
        with m.Elif(self.r_en):
            m.d.sync += self.r_rdy.eq(0)
        _flags(m, inner_level, self.depth - 1, full=full, some=some, push=push, pop=fetch)
        return m
