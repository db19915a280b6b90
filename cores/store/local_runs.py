"""Rows of local STOREs."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import Out, connect

from .local_writer import LocalRun, LocalWriter
from .run_targets import RunTargets

__all__ = ["LocalRuns"]


class LocalRuns(RunTargets):
    """Rows of a local STORE go to the input buffer, by way of ``local``; one that begins beyond its end is outside."""

    def ports(self) -> dict[str, wiring.Member]:
        return {"local": Out(stream.Signature(LocalRun(self.config)))}  # instead: rows of a local STORE

    def offer(self, m: Module, runs: Any, *, valid: Value, accepted: Value, row: Value, beats: Value, last: Value,
              before: Value, outside: Value) -> None:
        geometry, store, run = runs.geometry, runs.store, runs.run
        to_buffer, local = geometry.local, runs.local
        row_is_first, repeats = Signal(), Signal(reset_less=True)
        entry = Signal.like(local.p.entry, name="entry", reset_less=True)
        follows, one_beat = Signal(reset_less=True), Signal(reset_less=True)
        m.d.comb += [
            local.p.entry.eq(entry),
            local.p.bank.eq(geometry.bank),
            local.p.beats.eq(beats),
            local.p.one.eq(one_beat),
            local.p.follows.eq(follows),
            local.p.last.eq(last),
            local.p.post.eq(store.post_compute),
            local.p.index.eq(runs.index),
            local.valid.eq(valid & to_buffer),
            run.valid.eq(valid & ~to_buffer),
            accepted.eq(Mux(to_buffer, local.ready, run.ready)),
        ]
        m.d.sync += [one_beat.eq(geometry.cols == 1), repeats.eq(geometry.row_pitch == 0)]
        with m.If(to_buffer):
            m.d.sync += before.eq(row >= self.config.input_depth)
            m.d.comb += outside.eq(before)
        self._entry, self._follows, self._repeats, self._row_is_first = entry, follows, repeats, row_is_first

    def take_beats(self, m: Module, engine: Any, runs: Any, buffer: Any, sequencer: Any) -> None:
        # The geometry changes only when nothing is under way, and the local writer has a run only if it is local.
        to_buffer = sequencer.geometry.local
        m.submodules.local = local = LocalWriter(self.config)
        connect(m, runs.local, local.run)
        m.d.comb += [
            engine.data.valid.eq(buffer.r_rdy & ~to_buffer),
            local.data.valid.eq(buffer.r_rdy),
            local.data.payload.eq(buffer.r_data),
            buffer.r_en.eq(Mux(to_buffer, local.data.ready, engine.data.ready)),
            engine.kept.eq(local.kept),
            engine.post_compute.eq(sequencer.post_compute | local.posted),
            engine.error.eq(Mux(local.error.valid, local.error, sequencer.error)),
        ]

    def begin(self, m: Module) -> None:
        m.d.sync += self._row_is_first.eq(1)

    def place(self, m: Module, row: Value) -> None:
        m.d.sync += [self._entry.eq(row), self._follows.eq(self._repeats & ~self._row_is_first)]

    def check(self, m: Module, last_row: Value) -> None:
        m.d.sync += self._row_is_first.eq(last_row)
