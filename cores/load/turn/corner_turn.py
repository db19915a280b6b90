"""Corner turn: blocks of pixels become the weights of dense steps."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ...arch.instruction_layout import field_shape
from ...arch.isa import Opcode
from ...config import NpuConfig
from ...lib.component import Component, record
from ...timing.turn import CornerTurnTiming

__all__ = ["SUM_BITS", "CornerTurn", "TurnLayout", "TurnPixel"]

#: Of the sum of a lane's weights.
SUM_BITS = 24

#: What a LOAD_TURN says.
TurnLayout = data.StructLayout({name: field_shape(Opcode.LOAD_TURN, name) for name in (
    "by_channels", "lanes", "depth", "steps", "first", "bank")})


def TurnPixel(config: NpuConfig) -> data.StructLayout:  # noqa: N802 - a layout
    """A pixel's channels, and what it is the last of."""
    return data.StructLayout({"data": config.beat_bits, "row_end": 1, "block_end": 1, "end": 1})


class CornerTurn(CornerTurnTiming, Component):
    """Give the ``beats`` of each block's steps, and keep the sums of each output lane's weights.

    Byte ``i * dn + j`` of step n is that of output lane i and value ``j * tn/dn + n`` of the block: pixel i, channel
    ``j * tn/dn + n``, or by channels the other way. Lanes from ``lanes`` on and values from ``depth`` on are 0. A block
    is written while the one before it is read, a beat a cycle each.

    The memory has a bank for each byte of a beat. Byte c of row r, a pixel of up to tm, is in bank c + r modulo tn, so
    that the bytes of a beat of either order are in different banks: the byte of lane ``b * tn/dn + i``, in beat b of
    step n, and reduction lane j in bank ``j * tn/dn + i + n + b * tn/dn``. Golden model: `sim.turn.turned`.

    Beats of a box that is ``first`` begin sums of ``bank``; those of ``sum_lane`` are there a cycle later, while it is
    not ``busy``.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            "layout": In(TurnLayout),       # of the boxes; stands while it is busy
            "pixels": In(stream.Signature(TurnPixel(config))),  # of boxes, in order
            "beats": Out(stream.Signature(config.beat_bits)),   # to the weight ring
            "busy": Out(1),                 # a whole block, or beats and sums of one, are under way
            "sum_bank": In(1),              # of the sum that is wanted
            "sum_lane": In(range(config.oc_lanes)),     # its output lane
            "sum": Out(signed(SUM_BITS)),   # it, a cycle later
        })

    def elaborate(self, platform):
        m = Module()
        config, layout, tn = self.config, self.layout, self.config.ic_lanes
        dn, group, beats = config.nnz_lanes, config.groups_dense, config.weight_beats
        bank_bits, group_bits, row_bits = exact_log2(tn), exact_log2(group), exact_log2(config.oc_lanes)

        # -- write --------------------------------------------------------------------------------------------------
        pixel, row, half = self.pixels.payload, Signal(row_bits), Signal()
        claimed, there = Signal(2), Signal(2)       # blocks that are complete: in all, and not on their way out
        taken, block_done, released, issued = Signal(), Signal(), Signal(), Signal()
        first_block = Signal(init=1)    # of a box
        fresh = Signal(2)       # of each half: sums begin with it
        writing, written = Signal(), Signal()       # a beat is written, it is a block's last
        write_address, write_data = Signal(row_bits + 1), Signal(config.beat_bits, reset_less=True)
        rotated = Value.cast(pixel.data)
        for bit in range(bank_bits):
            rotated = Mux(row[bit], rotated.rotate_left(8 << bit), rotated)
        m.d.comb += [
            self.pixels.ready.eq(~claimed[1]),
            taken.eq(self.pixels.valid & self.pixels.ready),
            block_done.eq(taken & pixel.block_end),
        ]
        m.d.sync += [
            writing.eq(taken), written.eq(block_done), write_address.eq(Cat(row, half)), write_data.eq(rotated),
            claimed.eq(claimed + block_done - released),
            there.eq(there + written - issued),
        ]
        with m.If(taken):
            with m.If(pixel.block_end):
                m.d.sync += [row.eq(0), half.eq(~half), first_block.eq(pixel.end),
                             fresh.bit_select(half, 1).eq(first_block & layout.first)]
            with m.Elif(pixel.row_end):
                m.d.sync += row.eq(Cat(Const(0, bank_bits), row[bank_bits:] + 1))
            with m.Else():
                m.d.sync += row.eq(row + 1)

        # -- addresses ----------------------------------------------------------------------------------------------
        move = Signal()         # the stages from here on
        step, beat = Signal(range(group)), Signal(range(beats))
        out_half, last_beat, last = Signal(), Signal(), Signal()
        within = beat[:bank_bits - group_bits]      # beats of tn lanes
        turned = Signal(bank_bits)                  # where in its banks the byte of lane and value 0 is
        lane_ok, value_ok = Signal(group, reset_less=True), Signal(dn, reset_less=True)
        found = data.StructLayout({"beat": beat.shape(), "clear": 1, "turned": bank_bits,
                                   "lanes": group, "values": dn})
        addressed, read = (record(found, name=name, reset_less=True) for name in ("addressed", "read"))
        stages = [Signal(name=f"valid{number}") for number in range(self.READ - 1)]
        leaving = Signal()      # of the beat whose addresses are there: the last of its block
        m.d.comb += [
            move.eq(~self.beats.valid | self.beats.ready),
            last_beat.eq(beat == beats - 1),
            last.eq(last_beat & (step == layout.steps - 1)),
            turned.eq(Cat(step[:group_bits], within)),
            issued.eq(move & there.any() & last),
            released.eq(move & stages[0] & leaving),
            lane_ok.eq(Cat((beat < layout.lanes >> group_bits)
                           | ((beat == layout.lanes >> group_bits) & (lane < layout.lanes[:group_bits]))
                           for lane in range(group))),
            value_ok.eq(Cat((value < layout.depth >> group_bits)
                            | ((value == layout.depth >> group_bits) & (step < layout.depth[:group_bits]))
                            for value in range(dn))),
        ]
        with m.If(move):
            m.d.sync += [
                stages[0].eq(there.any()), leaving.eq(last),
                addressed.beat.eq(beat), addressed.clear.eq((step == 0) & fresh.bit_select(out_half, 1)),
                addressed.turned.eq(turned), addressed.lanes.eq(lane_ok), addressed.values.eq(value_ok),
                stages[1].eq(stages[0]), read.eq(addressed), self.beats.valid.eq(stages[1]),
            ]
            with m.If(there.any()):
                m.d.sync += beat.eq(Mux(last_beat, 0, beat + 1))
                with m.If(last_beat):
                    m.d.sync += step.eq(Mux(last, 0, step + 1))
                with m.If(last):
                    m.d.sync += out_half.eq(~out_half)

        # -- memory -------------------------------------------------------------------------------------------------
        bytes_read = []
        for bank in range(tn):
            memory: Memory = Memory(shape=8, depth=2 * config.oc_lanes, init=[], attrs={"ram_style": "distributed"})
            m.submodules[f"bank{bank}"] = memory
            write, port = memory.write_port(), memory.read_port()
            # Of lane `place % group` and reduction lane `place // group`.
            place, low, address = (Signal(bank_bits, name=f"{name}{bank}") for name in ("place", "low", "address"))
            block, at = beat >> bank_bits - group_bits, Signal(row_bits + 1, name=f"at{bank}", reset_less=True)
            m.d.comb += [
                place.eq(bank - turned),
                low.eq(Cat(step[:group_bits], place[group_bits:])),
                address.eq(Mux(layout.by_channels, low, Cat(place[:group_bits], within))),
                write.en.eq(writing), write.addr.eq(write_address),
                write.data.eq(write_data.word_select(bank, 8)),
                port.en.eq(move), port.addr.eq(at),
            ]
            with m.If(move):
                m.d.sync += at.eq(Cat(address, block[:row_bits - bank_bits], out_half))
            bytes_read.append(port.data)

        # -- beats --------------------------------------------------------------------------------------------------
        ordered: Value = Cat(bytes_read)
        for bit in range(bank_bits):
            ordered = Mux(read.turned[bit], ordered.rotate_right(8 << bit), ordered)
        with m.If(move):
            for lane in range(group):
                for value in range(dn):
                    byte = ordered.word_select(value * group + lane, 8)
                    m.d.sync += self.beats.payload.word_select(lane * dn + value, 8).eq(
                        byte & (read.lanes[lane] & read.values[value]).replicate(8))

        # -- sums of each output lane's weights -----------------------------------------------------------------------
        words: Memory = Memory(shape=group * SUM_BITS, depth=2 * beats, init=[], attrs={"ram_style": "distributed"})
        m.submodules.sums = words
        write, port = words.write_port(), words.read_port(domain="comb")
        out, adder = (record(found, name=name, reset_less=True) for name in ("out", "adder"))
        adding = Signal()
        parts = [Signal(signed(8 + exact_log2(dn)), name=f"part{lane}", reset_less=True) for lane in range(group)]
        with m.If(move):
            m.d.sync += out.eq(read)
        m.d.sync += [adding.eq(self.beats.valid & self.beats.ready), adder.eq(out)]
        lane_values = [[self.beats.payload.word_select(lane * dn + value, 8).as_signed() for value in range(dn)]
                       for lane in range(group)]
        m.d.sync += [part.eq(sum(values)) for part, values in zip(parts, lane_values, strict=True)]
        beat_bits = exact_log2(beats)
        old = [Mux(adder.clear, 0, port.data.word_select(lane, SUM_BITS)) for lane in range(group)]
        m.d.comb += [
            port.addr.eq(Mux(adding, Cat(adder.beat[:beat_bits], layout.bank),
                             Cat(self.sum_lane[group_bits:], self.sum_bank))),
            write.en.eq(adding), write.addr.eq(port.addr),
            write.data.eq(Cat((before.as_signed() + part)[:SUM_BITS] for before, part in zip(old, parts, strict=True))),
            self.busy.eq(claimed.any() | stages[1] | self.beats.valid | adding),
        ]
        m.d.sync += self.sum.eq(port.data.word_select(self.sum_lane[:group_bits], SUM_BITS).as_signed())
        return m
