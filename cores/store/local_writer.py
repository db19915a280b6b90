"""Takes the beats of a local STORE to the input buffer."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ..arch.error_codes import ErrorCode
from ..arch.instruction_layout import INDEX_BITS, field_shape
from ..arch.isa import Opcode
from ..buffers.input_buffer import LocalBeat, buffer_address_bits
from ..bus.axi import ErrorReport
from ..config import NpuConfig
from ..lib.component import Component, record
from ..timing.buffers import write_latency
from ..timing.store import LocalWriterTiming

__all__ = ["LocalRun", "LocalWriter"]


def LocalRun(config: NpuConfig) -> data.StructLayout:  # noqa: N802 - a shape
    """A row: its first ``entry``, of which ``bank``, and its ``beats``, ``one`` or more; with ``follows`` it goes on
    where the run before it ended.

    ``last`` of the STORE, which wants its token if ``post``.
    """
    return data.StructLayout({
        "entry": buffer_address_bits(config), "bank": exact_log2(config.banks),
        "beats": field_shape(Opcode.STORE_SET, "cols"), "one": 1, "follows": 1, "last": 1, "post": 1,
        "index": INDEX_BITS,
    })


class LocalWriter(LocalWriterTiming, Component):
    """Gives each beat of ``data`` its bank and entry: neighbours of a run lie in neighbouring banks.

    A beat a cycle; ``kept`` is `LATENCY` cycles later and stands for one, and `BufferWriter` takes it at once.
    ``posted`` comes as far after the last beat as the load engine's own token after its. BUFFER for a beat beyond the
    last entry.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            "run": In(stream.Signature(LocalRun(config))),  # where the next beats go
            "data": In(stream.Signature(config.beat_bits)),  # the runs' beats, in order
            "kept": Out(LocalBeat(config)),  # a beat on its way, for one cycle
            "posted": Out(1),               # the beats of a STORE that posts a token can be read
            "error": Out(ErrorReport),      # a beat beyond the last entry
        })

    def elaborate(self, platform):
        m = Module()
        banks = self.config.banks
        run, write = record(LocalRun(self.config), name="run_at_hand"), Signal()
        active, beyond = Signal(), Signal()
        last_beat = Signal()        # of the run
        bank = Signal(banks, init=1)
        m.d.comb += [
            self.data.ready.eq(active),
            write.eq(active & self.data.valid),
            self.run.ready.eq(~active | (write & last_beat)),
        ]
        m.d.sync += [
            self.kept.enable.eq(bank & write.replicate(banks)),
            self.kept.address.eq(run.entry),
            self.kept.payload.eq(self.data.payload),
        ]
        with m.If(write):
            m.d.sync += [run.beats.eq(run.beats - 1), last_beat.eq(run.beats == 2), bank.eq(bank.rotate_left(1))]
            with m.If(bank[-1]):
                # Beyond the last entry is only what follows it: the run's first entry is checked.
                m.d.sync += run.entry.eq(run.entry + 1)
                with m.If(run.entry == self.config.input_depth - 1):
                    m.d.sync += beyond.eq(1)
        posted = write & last_beat & run.last & run.post
        for number in range(self.LATENCY + write_latency(self.config) - 1):
            stage = Signal(name=f"posted{number + 1}")
            m.d.sync += stage.eq(posted)
            posted = stage
        m.d.sync += [
            self.posted.eq(posted),
            self.error.valid.eq(write & beyond),
            self.error.code.eq(ErrorCode.BUFFER),
            self.error.index.eq(run.index),
        ]
        with m.If(self.run.ready):
            m.d.sync += [active.eq(self.run.valid), last_beat.eq(self.run.p.one)]
        with m.If(self.run.valid & self.run.ready):
            for name in ("beats", "last", "post", "index"):
                m.d.sync += getattr(run, name).eq(getattr(self.run.p, name))
            with m.If(~self.run.p.follows):
                m.d.sync += [run.entry.eq(self.run.p.entry), bank.eq(1 << self.run.p.bank), beyond.eq(0)]
        return m
