"""Accumulator banks: partial sums of the tiles at hand."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import NpuConfig
from ..lib.component import Component
from ..timing.buffers import AccumulatorsTiming

__all__ = ["Accumulators"]

#: Accumulators side by side in one memory: four of 27 bits fill three 36-bit block RAM ports.
_SLICE_LANES = 4


class AccumulatorSlice(Component):
    """A few accumulators in one memory, and the copy of it that the store engine reads.

    All slices are the same module. ``carries`` are added with the sums.
    """

    def __init__(self, config: NpuConfig, *, lanes: int):
        if lanes < 1:
            raise ValueError(f"lanes must be at least 1, not {lanes!r}")
        self.config = config
        self.lanes = lanes
        #: What is written: the words' totals.
        self.totals = [Signal(signed(config.acc_width), name=f"total{lane}", reset_less=True) for lane in range(lanes)]
        address = range(2 * config.acc_depth)
        super().__init__({
            "read_address": In(address),   # word to add to, bank above the address
            "clear": In(1),                # a cycle after its address: replace the word
            "sums": In(data.ArrayLayout(signed(config.sum_bits), lanes)),  # two cycles after it
            "carries": In(lanes),          # added with the sums
            "write_enable": In(1),         # the total of the cycle is complete
            "write_address": In(address),  # word that it goes to
            "store_enable": In(1),         # read for the store engine
            "store_address": In(address),  # word that is read
            # That word, a cycle later and until the next is read.
            "store_data": Out(data.ArrayLayout(signed(config.acc_width), lanes)),
        })

    def _add(self, before: Value, addend: Value, carry: Value) -> Value:
        if not self.config.joins_sums:
            return before + addend + carry
        # As a subtraction it has a first operand, the one that goes to the carry chain's data input: so the choice of
        # the addend, in front of these ports, fits into the adder's own look-up tables. The lowest bit makes the carry.
        addend = Cat(addend, addend[-1].replicate(self.config.acc_width - len(addend)))
        return (Cat(0, before) - Cat(~carry, ~addend))[1:self.config.acc_width + 1]

    def elaborate(self, platform):
        m = Module()
        width = self.config.acc_width
        memories = {}
        for copy in ("add", "store"):
            memory: Memory
            m.submodules[copy] = memory = Memory(shape=width * self.lanes, depth=2 * self.config.acc_depth, init=[])
            memories[copy] = memory.write_port(), memory.read_port()
        read, store = memories["add"][1], memories["store"][1]
        for lane, total in enumerate(self.totals):
            before = Signal(signed(width), name=f"before{lane}", reset_less=True)
            m.d.sync += [
                before.eq(Mux(self.clear, 0, read.data.word_select(lane, width))),
                total.eq(self._add(before, self.sums[lane], self.carries[lane])),
            ]
        m.d.comb += [
            read.en.eq(1),
            read.addr.eq(self.read_address),
            store.en.eq(self.store_enable),
            store.addr.eq(self.store_address),
            Value.cast(self.store_data).eq(store.data),
        ]
        for write, _ in memories.values():
            m.d.comb += [
                write.en.eq(self.write_enable),
                write.addr.eq(self.write_address),
                write.data.eq(Cat(*self.totals)),
            ]
        return m


class Accumulators(AccumulatorsTiming, Component):
    """Two banks of ``acc_depth`` words of ``oc_lanes * pixel_lanes`` accumulators.

    A word with ``enable`` high is added to the word at ``address`` of ``bank``, or replaces it if ``first``. ``sums``
    come `READ_AHEAD` cycles after the address; the same word may be used again `HAZARD` cycles later. The store engine
    reads through a port of its own, one cycle latency, the data held until its next read.

    Each word is written to two memories that hold both banks, one read by the adders, one by the store engine: as many
    block RAMs as a memory for each bank, without the multiplexers in front of every adder.

    If `split`, ``upper_enable`` and ``upper_address`` are those of the upper half of the output lanes.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        lanes = min(_SLICE_LANES, config.oc_lanes)
        #: Of so many lanes each: pixel 0's output lanes first.
        self.slices = [AccumulatorSlice(config, lanes=lanes) for _ in range(config.acc_lanes // lanes)]
        super().__init__({
            "enable": In(1),                         # of the lower output lanes, or of all
            "first": In(1),                          # replace the word instead of adding to it
            "bank": In(1),                           # that the word is in
            "address": In(range(config.acc_depth)),  # of the word
            # `READ_AHEAD` cycles after the address.
            "sums": In(data.ArrayLayout(signed(config.sum_bits), config.acc_lanes)),
            "carries": In(config.oc_lanes),          # of each output lane, added to the sums of pixel 1
            "read_enable": In(1),                    # the store engine reads
            "read_bank": In(1),                      # that it reads
            "read_address": In(range(config.acc_depth)),  # word that it reads
            # That word, a cycle later and until the next is read.
            "read_data": Out(data.ArrayLayout(signed(config.acc_width), config.acc_lanes)),
            **({
                "upper_enable": In(1),  # the upper half of the output lanes has a word
                "upper_address": In(range(config.acc_depth)),  # of that word
            } if self.split(config) else {}),
        })

    @staticmethod
    def split(config: NpuConfig) -> bool:
        """Whether the upper group of output lanes has an address of its own."""
        return config.groups_alternate

    def _control(self, m: Module, name: str, enable: Value, address: Value) -> list[Value]:
        """Enable, first and address of the last cycles, the present one first."""
        stages: list[Value] = [Cat(enable, self.first, address, self.bank)]
        for number in range(3):
            stage = Signal(len(stages[0]), name=f"{name}{number + 1}")
            m.d.sync += stage.eq(stages[-1])
            stages.append(stage)
        return stages

    def elaborate(self, platform):
        m = Module()
        config = self.config
        groups = [self._control(m, "control", self.enable, self.address)]
        if self.split(config):
            groups.append(self._control(m, "upper", self.upper_enable, self.upper_address))
        for number, accumulators in enumerate(self.slices):
            lanes = accumulators.lanes
            base = number * lanes
            part = range(base, base + lanes)
            stages = groups[base % config.oc_lanes // config.ic_lanes % len(groups)]
            m.submodules[f"slice{number}"] = accumulators
            m.d.comb += [
                accumulators.read_address.eq(stages[0][2:]),
                accumulators.clear.eq(stages[1][1]),            # while the memory delivers
                Value.cast(accumulators.sums).eq(Cat(self.sums[lane] for lane in part)),
                accumulators.write_enable.eq(stages[3][0]),
                accumulators.write_address.eq(stages[3][2:]),
                accumulators.store_enable.eq(self.read_enable),
                accumulators.store_address.eq(Cat(self.read_address, self.read_bank)),
                *[self.read_data[lane].eq(accumulators.store_data[lane - base]) for lane in part],
            ]
            if base >= config.oc_lanes:                         # pixel 1
                m.d.comb += accumulators.carries.eq(self.carries[base - config.oc_lanes:base - config.oc_lanes + lanes])
        return m
