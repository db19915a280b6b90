"""Accumulator banks: partial sums of the tiles at hand."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .config import NpuConfig
from .mac_array import MacArray

__all__ = ["Accumulators"]

#: Accumulators side by side in one memory: four of 27 bits fill three 36-bit block RAM ports.
_LANES_A_MEMORY = 4


class Accumulators(wiring.Component):
    """Two banks of ``acc_depth`` words of ``oc_lanes * pixel_lanes`` accumulators.

    A word with ``enable`` high is added to the word at ``address`` of ``bank``, or replaces it if ``first``. ``sums`` come
    `READ_AHEAD` cycles behind the address; the same word may be used again `HAZARD` cycles later. The store engine reads
    through a port of its own, one cycle latency, the data held until its next read.

    Each word is written to two memories that hold both banks, one read by the adders, one by the store engine: as many
    block RAMs as a memory for each bank, without the multiplexers in front of every adder.
    """

    #: Cycles from the address to the sums it belongs to: memory, register.
    READ_AHEAD = 2
    #: Cycles from an address to the first in which the word can be used again.
    HAZARD = 4
    #: Cycles from the address until the word can be read by the store engine.
    LATENCY = 4

    def __init__(self, config: NpuConfig):
        self.config = config
        word = data.ArrayLayout(signed(config.acc_width), config.acc_lanes)
        super().__init__({
            "enable": In(1),
            "first": In(1),
            "bank": In(1),
            "address": In(range(config.acc_depth)),
            "sums": In(data.ArrayLayout(signed(MacArray.sum_bits(config)), config.acc_lanes)),
            "carries": In(config.acc_lanes),
            "read_enable": In(1),
            "read_bank": In(1),
            "read_address": In(range(config.acc_depth)),
            "read_data": Out(word),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        width = config.acc_width

        address = Cat(self.address, self.bank)
        control = Cat(self.enable, self.first, address)
        stages = [control]
        for stage in range(3):
            delayed = Signal(len(control), name=f"control{stage + 1}")
            m.d.sync += delayed.eq(stages[-1])
            stages.append(delayed)
        clear = stages[1][1]                              # first, while the memory delivers
        write_enable, write_address = stages[3][0], stages[3][2:]

        lanes = min(_LANES_A_MEMORY, config.acc_lanes)
        for base in range(0, config.acc_lanes, lanes):
            copies = []
            for copy in ("add", "store"):
                m.submodules[f"{copy}{base}"] = memory = Memory(shape=width * lanes, depth=2 * config.acc_depth, init=[])
                copies.append((memory.write_port(), memory.read_port()))
            (write_add, read_add), (write_store, read_store) = copies
            totals = []
            for lane in range(base, base + lanes):
                part = slice((lane - base) * width, (lane - base + 1) * width)
                before, total = Signal(signed(width), name=f"before{lane}"), Signal(signed(width), name=f"total{lane}")
                m.d.sync += before.eq(Mux(clear, 0, read_add.data[part]))
                if lane < config.oc_lanes:                # pixel 0 has no borrow
                    m.d.sync += total.eq(before + self.sums[lane])
                else:
                    m.d.sync += total.eq(before + self.sums[lane] + self.carries[lane])
                totals.append(total)
                m.d.comb += self.read_data[lane].eq(read_store.data[part])
            m.d.comb += [
                read_add.en.eq(1),
                read_add.addr.eq(address),
                read_store.en.eq(self.read_enable),
                read_store.addr.eq(Cat(self.read_address, self.read_bank)),
            ]
            for write in (write_add, write_store):
                m.d.comb += [write.en.eq(write_enable), write.addr.eq(write_address), write.data.eq(Cat(*totals))]
        return m
