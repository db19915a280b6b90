"""Where a STORE's beats go: its runs for the write engine."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ..arch.instruction_layout import INDEX_BITS, instruction_layout
from ..arch.isa import Opcode
from ..arch.registers import REGION_BITS
from ..bus.axi import write_run_layout
from ..config import NpuConfig
from ..lib.component import Component
from ..timing.store import StoreRunsTiming
from .parts import beats_of, joining_of, targets_of

__all__ = ["StoreRuns"]


class StoreRuns(StoreRunsTiming, Component):
    """For every block and row of the STORE given with ``start``: a run of its beats, of ``cols`` or with ``signs`` an
    eighth of these.

    A run that is not between ``write_start`` and ``data_beats`` is not issued; ``failed`` rises instead. A local
    STORE's runs are offered at ``local``; those that begin outside the input buffer have failed. While a run is checked
    the counters go on to the next one: what is offered is in registers, and its consumer on no counter's path.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            "start": In(1),                  # begin the STORE
            # Stands still from a cycle before ``start`` until ``idle``.
            "geometry": In(instruction_layout(Opcode.STORE_SET)),
            **beats_of(config).RUN_PORTS,
            # A beat is made of several results; stands still as well.
            **dict.fromkeys(joining_of(config), In(1)),
            "store": In(instruction_layout(Opcode.STORE)),  # stands still from ``start`` until ``idle``
            "index": In(INDEX_BITS),         # it is this instruction
            "write_start": In(REGION_BITS),  # first beat of the data region that may be written
            "data_beats": In(REGION_BITS),   # size of the data region
            "data_address": In(config.address_width),  # its bus address
            "run": Out(stream.Signature(write_run_layout(config))),  # for the write engine
            **targets_of(config).ports(),
            "failed": Out(1),                # a run would be outside its region; stays
            "halt": In(1),                   # offer no further run
            "idle": Out(1),                  # all runs are taken
        })

    def elaborate(self, platform):
        m = Module()
        config, geometry, store, run = self.config, self.geometry, self.store, self.run
        # One bit more than the region's size: a row is checked before the next one is computed, so nothing wraps.
        block = Signal(REGION_BITS + 1, reset_less=True)
        row = Signal.like(block, name="row", reset_less=True)
        end = Signal.like(block, name="end", reset_less=True)
        blocks_left = Signal.like(store.blocks, name="blocks_left", reset_less=True)
        rows_left = Signal.like(geometry.rows, name="rows_left", reset_less=True)
        one_row, last_row, last_block = Signal(), Signal(), Signal()
        # Where the next row and block begin: added while this row is placed.
        next_row = Signal.like(block, name="next_row", reset_less=True)
        next_block = Signal.like(block, name="next_block", reset_less=True)
        m.d.sync += [next_row.eq(row + geometry.row_pitch), next_block.eq(block + geometry.block_pitch)]
        valid, accepted, outside = Signal(), Signal(), Signal()
        beat_shift = (config.beat_bytes - 1).bit_length()

        # What is offered; the counters are at the next row by then.
        address = Signal(config.address_width, reset_less=True)
        beats = Signal.like(geometry.cols, name="beats", reset_less=True)
        length = Signal.like(beats, name="length", reset_less=True)     # one less
        last = Signal(reset_less=True)
        m.d.comb += [
            run.p.address.eq(address),
            run.p.length.eq(length),
            run.p.last.eq(last),
            run.p.post.eq(store.post_load),
            run.p.index.eq(self.index),
        ]
        before, behind = Signal(reset_less=True), Signal()      # the region
        m.d.sync += before.eq(row < self.write_start)
        m.d.comb += [behind.eq(end > self.data_beats), outside.eq(before | behind)]
        m.d.sync += [beats.eq(geometry.cols), length.eq(beats - 1), one_row.eq(geometry.rows == 1)]
        beats_of(config).beats_of_row(m, self, beats)
        for name, stage in joining_of(config).items():
            with m.If(getattr(self, name)):
                m.d.sync += beats.eq(geometry.cols >> exact_log2(stage.VALUES))
        targets = targets_of(config)
        targets.offer(m, self, valid=valid, accepted=accepted, row=row, beats=beats, last=last, before=before,
                      outside=outside)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.idle.eq(1)
                m.d.sync += [
                    block.eq(store.offset),
                    row.eq(store.offset),
                    blocks_left.eq(store.blocks),
                    last_block.eq(store.blocks == 1),
                    rows_left.eq(geometry.rows),
                    last_row.eq(one_row),
                ]
                targets.begin(m)
                with m.If(self.start):
                    m.next = "PLACE"
            with m.State("PLACE"):
                m.d.sync += [
                    end.eq(row + beats),
                    address.eq(self.data_address + (row << beat_shift)),
                    last.eq(last_row & last_block),
                ]
                targets.place(m, row)
                with m.If(~self.halt):
                    m.next = "CHECK"
            with m.State("CHECK"):
                m.d.sync += [
                    row.eq(Mux(last_row, next_block, next_row)),
                    rows_left.eq(Mux(last_row, geometry.rows, rows_left - 1)),
                    last_row.eq(Mux(last_row, one_row, rows_left == 2)),
                ]
                with m.If(last_row):
                    m.d.sync += [block.eq(next_block), blocks_left.eq(blocks_left - 1), last_block.eq(blocks_left == 2)]
                targets.check(m, last_row)
                m.next = "OFFER"
                with m.If(outside):
                    m.next = "FAILED"
            with m.State("OFFER"):
                m.d.comb += valid.eq(1)
                with m.If(accepted):
                    m.next = "PLACE"
                    with m.If(last):
                        m.next = "IDLE"
            with m.State("FAILED"):
                m.d.sync += self.failed.eq(1)
        return m
