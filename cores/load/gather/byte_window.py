"""Byte window: runs of bytes out of the last beats of a stream."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from ...lib.bits import lanes_below, select
from ...lib.component import Component, record
from ...timing.gather import ByteWindowTiming

__all__ = ["ByteWindow"]


class ByteWindow(ByteWindowTiming, Component):
    """Entries whose byte ``place + i`` is the ``i``-th byte from any position of the last ``SLOTS`` beats.

    Beats go to the slots in turn. A run begins at byte ``offset`` of slot ``slot`` and goes on in the slots after it;
    ``turn`` is (offset - place) modulo ``lanes``: as every byte of a beat keeps its lane, finding the bytes is one
    multiplexer of slots for each lane, and bringing them to their place one rotation.

    Latency `LATENCY`, ``runs`` runs a cycle; a beat comes a cycle after ``enter`` and can be taken from that cycle on.
    ``lane_bits`` is what belongs to a byte. ``lanes`` is a power of two.
    """

    def __init__(self, *, lanes: int, runs: int, lane_bits: int = 8):
        if lanes & lanes - 1:
            raise ValueError(f"lanes must be a power of two, not {lanes!r}")
        self.lanes, self.runs, self.lane_bits = lanes, runs, lane_bits
        super().__init__({
            "enter": In(1),                       # a beat comes in the next cycle
            "enter_slot": In(range(self.SLOTS)),  # where it goes
            "beat": In(data.ArrayLayout(unsigned(lane_bits), lanes)),  # of a cycle ago: what belongs to each byte
            "slot": In(data.ArrayLayout(range(self.SLOTS), runs)),  # of each run's first byte
            "offset": In(data.ArrayLayout(range(lanes), runs)),  # of that byte in its slot
            "turn": In(data.ArrayLayout(range(lanes), runs)),  # (offset - place) modulo ``lanes``
            # Entries, `LATENCY` cycles later.
            "output": Out(data.ArrayLayout(data.ArrayLayout(unsigned(lane_bits), lanes), runs)),
        })

    def elaborate(self, platform):
        m = Module()
        slots = [record(data.ArrayLayout(unsigned(self.lane_bits), self.lanes), name=f"slot{number}", reset_less=True)
                 for number in range(self.SLOTS)]
        # A beat is a cycle late, and the runs that want it wait for that.
        entering = Signal(self.SLOTS)
        m.d.sync += entering.eq(Mux(self.enter, 1 << self.enter_slot, 0))
        for number, slot in enumerate(slots):
            with m.If(entering[number]):
                m.d.sync += slot.eq(self.beat)
        for run in range(self.runs):
            chosen = record(data.ArrayLayout(unsigned(self.lane_bits), self.lanes), name=f"chosen{run}",
                            reset_less=True)
            found_turn, turn, opposite = (Signal(range(self.lanes), name=f"{name}{run}", reset_less=True)
                                          for name in ("found_turn", "turn", "opposite"))
            m.d.sync += [found_turn.eq(self.turn[run]), turn.eq(found_turn), opposite.eq(~found_turn)]
            # Lanes below the first byte's have their bytes in the next slot.
            beyond = lanes_below(self.offset[run], self.lanes)
            for lane in range(self.lanes):
                chosen_slot = Signal(range(self.SLOTS), name=f"slot_of{run}_{lane}", reset_less=True)
                m.d.sync += [chosen_slot.eq(self.slot[run] + beyond[lane]),
                             chosen[lane].eq(select(chosen_slot, [slot[lane] for slot in slots]))]
            # Rotated by four amounts at a time: a multiplexer of four is a LUT. But of its three two-way ones another
            # lane has one too, and a synthesiser that shares it needs two LUTs; so that lane uses the opposite amount.
            rotated: list[Value] = list(chosen)
            for low in range(0, len(turn), 2):
                bits = slice(low, min(low + 2, len(turn)))
                turned = []
                for lane in range(self.lanes):
                    value = Signal(self.lane_bits, name=f"turned{run}_{low}_{lane}")
                    choices = [rotated[(lane + (code << low)) % self.lanes] for code in range(1 << len(turn[bits]))]
                    if lane >> low + 1 & 1:
                        m.d.comb += value.eq(select(opposite[bits], choices[::-1]))
                    else:
                        m.d.comb += value.eq(select(turn[bits], choices))
                    turned.append(value)
                rotated = list(turned)
            result = Signal(self.lane_bits * self.lanes, name=f"result{run}", reset_less=True)
            m.d.sync += result.eq(Cat(*rotated))
            m.d.comb += self.output.as_value()[run * len(result):(run + 1) * len(result)].eq(result)
        return m
