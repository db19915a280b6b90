"""Starts the machine, and stops it in a defined state."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from ..arch.error_codes import ErrorCode
from ..arch.instruction_layout import INDEX_BITS
from ..bus.axi import ErrorReport
from ..lib.component import Component, record
from ..timing.control import MachineControlTiming

__all__ = ["MachineControl"]


class MachineControl(MachineControlTiming, Component):
    """Sequence of a run: ``reset`` for a cycle, ``fetch_start``, ``busy`` until ``finished`` or an error.

    The first error counts; of several in one cycle, that of the lowest ``sources`` number. `ERROR_CYCLES` later it
    raises ``halt`` until ``bus_idle``, then ``reset`` for a cycle (for everything but this, the register file and the
    counters), then ``error``. ``stop`` does the same without an error. ``timeout`` cycles without ``progress`` are an
    error as well, with ``stalled_index``; a ``timeout`` of 0 is never reached.

    The bus may stay silent that long during the halt, too. Then ``error`` comes up while ``busy`` stays; after ``stop``
    it is a TIMEOUT as well. Nothing can be started until the bus has answered. Then ``busy`` falls, and no other error
    is reported.

    ``clear`` drops an error's code, too; an error that has not come up yet stays.

    ``irq`` is a register, so it has no glitches. It rises and falls with ``done`` and ``error``, at the same edge, and
    with ``irq_enable`` a cycle later.

    Raises ValueError unless ``sources`` is positive.
    """

    def __init__(self, *, sources: int):
        if sources < 1:
            raise ValueError(f"sources must be positive, not {sources!r}")
        self.sources = sources
        super().__init__({
            "start": In(1),                   # run a program; ignored while ``busy``
            "stop": In(1),                    # end the run without an error
            "clear": In(1),                   # drop ``done`` and ``error``
            "irq_enable": In(1),              # report to the host by ``irq``
            "timeout": In(32),                # cycles without ``progress`` that are an error; 0: never
            "errors": In(data.ArrayLayout(ErrorReport, sources)),  # one source each, the first of them counts
            "finished": In(1),                # the program has reached its END
            "progress": In(1),                # something moves
            "stalled_index": In(INDEX_BITS),  # instruction to blame for a timeout
            "bus_idle": In(1),                # no transfer is under way
            "reset": Out(1),                  # everything but this, the register file and the counters
            "fetch_start": Out(1),            # begin to fetch
            "halt": Out(1),                   # begin nothing more
            "counting": Out(1),               # from the cycle after ``start`` to that of ``finished``
            "busy": Out(1),                   # a run is under way
            "done": Out(1),                   # the last run reached its END
            "error": Out(1),                  # the last run failed
            "error_code": Out(ErrorCode),             # why
            "error_index": Out(INDEX_BITS),   # in which instruction
            "irq": Out(1),                    # while ``done`` or ``error``, if enabled
        })

    def elaborate(self, platform):
        m = Module()
        failed = Signal()       # by any of the sources, in this cycle
        first, chosen = record(ErrorReport), record(ErrorReport)
        m.d.comb += failed.eq(Cat(report.valid for report in self.errors).any())
        for number in reversed(range(self.sources)):
            with m.If(self.errors[number].valid):
                m.d.comb += chosen.eq(self.errors[number])
        m.d.sync += first.eq(chosen)

        watchdog = Signal(32)
        rewind, expired = Signal(), Signal()
        m.d.sync += expired.eq((watchdog == 1) & ~self.progress & ~rewind)
        with m.If(rewind | self.progress):
            m.d.sync += watchdog.eq(self.timeout)
        with m.Elif(watchdog != 0):
            m.d.sync += watchdog.eq(watchdog - 1)

        failing = Signal()      # an error is noted that ``error`` does not show yet
        note, forget = Signal(), Signal()
        report = Signal()       # ``done`` or ``error`` comes up with the next edge; what else happens, it does
        with m.If(note):
            m.d.sync += [
                self.error_code.eq(Mux(first.valid, first.code, ErrorCode.TIMEOUT)),
                self.error_index.eq(Mux(first.valid, first.index, self.stalled_index)),
            ]
        with m.Elif(forget):
            m.d.sync += [self.error_code.eq(0), self.error_index.eq(0)]
        with m.If(self.clear & ~failing):
            m.d.comb += forget.eq(1)
        with m.If(forget):
            m.d.sync += [self.done.eq(0), self.error.eq(0)]
        # Of what the status will be: a host that has written START or CLEAR never sees an interrupt that is over.
        m.d.sync += self.irq.eq(self.irq_enable & (report | ((self.done | self.error) & ~forget)))

        # ``reset`` and ``halt`` have thousands of loads: they are registers beside the state, not decoded from it.
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += rewind.eq(1)
                with m.If(self.start):
                    m.d.comb += forget.eq(1)
                    m.d.sync += [self.busy.eq(1), self.reset.eq(1)]
                    m.next = "CLEAR"
            with m.State("CLEAR"):
                m.d.comb += [self.counting.eq(1), rewind.eq(1)]
                m.d.sync += self.reset.eq(0)
                m.next = "START"
            with m.State("START"):
                m.d.comb += [self.fetch_start.eq(1), self.counting.eq(1), rewind.eq(1)]
                m.next = "RUN"
            with m.State("RUN"):
                m.d.comb += self.counting.eq(1)
                with m.If(first.valid | expired):
                    m.d.comb += [note.eq(1), rewind.eq(1)]
                    m.d.sync += [failing.eq(1), self.halt.eq(1)]
                    m.next = "HALT"
                with m.Elif(self.stop):
                    m.d.comb += rewind.eq(1)
                    m.d.sync += self.halt.eq(1)
                    m.next = "HALT"
                with m.Elif(self.finished & ~failed):
                    m.d.comb += report.eq(1)
                    m.d.sync += [self.done.eq(1), self.busy.eq(0)]
                    m.next = "IDLE"
            with m.State("HALT"):
                with m.If(self.bus_idle):
                    m.d.sync += self.reset.eq(1)
                    m.next = "DISCARD"
                with m.Elif(expired):
                    m.d.comb += [note.eq(~failing), report.eq(1)]
                    m.d.sync += [self.error.eq(1), failing.eq(0)]
                    m.next = "OWED"
            with m.State("OWED"):
                with m.If(self.bus_idle):
                    m.d.sync += self.reset.eq(1)
                    m.next = "DISCARD"
            with m.State("DISCARD"):
                m.d.sync += [failing.eq(0), self.busy.eq(0), self.reset.eq(0), self.halt.eq(0)]
                with m.If(failing):
                    m.d.comb += report.eq(1)
                    m.d.sync += self.error.eq(1)
                m.next = "IDLE"
        return m
