"""Where a STORE's beats go: its runs for the write engine."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ..arch.instruction_layout import INDEX_BITS, instruction_layout
from ..arch.isa import Opcode
from ..arch.numerics import MAP_PIXELS
from ..arch.registers import REGION_BITS
from ..bus.axi import write_run_layout
from ..config import NpuConfig
from .local_writer import LocalRun

__all__ = ["StoreRuns"]


class StoreRuns(wiring.Component):
    """For every block and row of the STORE given with ``start``: a run of its beats, of ``cols`` or with ``binary`` an
    eighth of these.

    A run that is not between ``write_start`` and ``data_beats`` is not issued; ``failed`` rises instead. A local
    STORE's runs are offered at ``local``; those that begin outside the input buffer have failed.
    """

    #: Cycles from offering a run to offering the next, and from ``start`` to offering the first.
    RUN_CYCLES = 3

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            "start": In(1),                  # begin the STORE
            "geometry": In(instruction_layout(Opcode.STORE_SET)),  # stands still until ``idle``
            "store": In(instruction_layout(Opcode.STORE)),  # stands still as well
            "index": In(INDEX_BITS),         # it is this instruction
            "write_start": In(REGION_BITS),  # first beat of the data region that may be written
            "data_beats": In(REGION_BITS),   # size of the data region
            "data_address": In(config.address_width),  # its bus address
            "run": Out(stream.Signature(write_run_layout(config))),  # for the write engine
            # Instead: rows of a local STORE.
            **({"local": Out(stream.Signature(LocalRun(config)))} if config.local_store else {}),
            "failed": Out(1),                # a run would be outside its region; stays
            "halt": In(1),                   # offer no further run
            "idle": Out(1),                  # all runs are taken
        })

    def elaborate(self, platform):
        m = Module()
        geometry, store, run = self.geometry, self.store, self.run
        # One bit more than the region's size: a row is checked before the next one is computed, so nothing wraps.
        block = Signal(REGION_BITS + 1, reset_less=True)
        row = Signal.like(block, reset_less=True)
        end = Signal.like(block, reset_less=True)
        blocks_left = Signal.like(store.blocks, reset_less=True)
        rows_left = Signal.like(geometry.rows, reset_less=True)
        row_is_last = rows_left == 1
        address = Signal(self.config.address_width, reset_less=True)
        valid, accepted, outside = Signal(), Signal(), Signal()
        beat_shift = (self.config.beat_bytes - 1).bit_length()

        beats = geometry.cols
        if self.config.binary_rows:
            beats = Mux(geometry.binary, (geometry.cols + (MAP_PIXELS - 1)) >> exact_log2(MAP_PIXELS), geometry.cols)
        m.d.comb += [
            run.p.address.eq(address),
            run.p.beats.eq(beats),
            run.p.last.eq(row_is_last & (blocks_left == 1)),
            run.p.post.eq(store.post_load),
            run.p.index.eq(self.index),
        ]
        if self.config.local_store:
            row_is_first = Signal()
            to_buffer, local = geometry.local, self.local
            m.d.comb += [
                local.p.entry.eq(row),
                local.p.beats.eq(geometry.cols),
                local.p.follows.eq((geometry.row_pitch == 0) & ~row_is_first),
                local.p.last.eq(run.p.last),
                local.p.post.eq(store.post_compute),
                local.p.index.eq(self.index),
                local.valid.eq(valid & to_buffer),
                run.valid.eq(valid & ~to_buffer),
                accepted.eq(Mux(to_buffer, local.ready, run.ready)),
                outside.eq(Mux(to_buffer, row >= self.config.input_depth,
                               (row < self.write_start) | (end > self.data_beats))),
            ]
            with m.If(self.idle | (valid & accepted)):
                m.d.sync += row_is_first.eq(self.idle | row_is_last)
        else:
            m.d.comb += [run.valid.eq(valid), accepted.eq(run.ready),
                         outside.eq((row < self.write_start) | (end > self.data_beats))]
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.idle.eq(1)
                m.d.sync += [
                    block.eq(store.offset),
                    row.eq(store.offset),
                    blocks_left.eq(store.blocks),
                    rows_left.eq(geometry.rows),
                ]
                with m.If(self.start):
                    m.next = "PLACE"
            with m.State("PLACE"):
                m.d.sync += [
                    end.eq(row + beats),
                    address.eq(self.data_address + (row << beat_shift)),
                ]
                m.next = "CHECK"
            with m.State("CHECK"):
                with m.If(outside):
                    m.next = "FAILED"
                with m.Elif(~self.halt):
                    m.next = "OFFER"
            with m.State("OFFER"):
                m.d.comb += valid.eq(1)
                with m.If(accepted):
                    following = Signal.like(block)
                    pitch = Mux(row_is_last, geometry.block_pitch, geometry.row_pitch)
                    m.d.comb += following.eq(Mux(row_is_last, block, row) + pitch)
                    m.d.sync += row.eq(following)
                    m.next = "PLACE"
                    with m.If(~row_is_last):
                        m.d.sync += rows_left.eq(rows_left - 1)
                    with m.Else():
                        m.d.sync += [block.eq(following), rows_left.eq(geometry.rows), blocks_left.eq(blocks_left - 1)]
                        with m.If(blocks_left == 1):
                            m.next = "IDLE"
            with m.State("FAILED"):
                m.d.comb += self.failed.eq(1)
        return m
