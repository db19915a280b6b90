"""Binary unit: XNOR-popcount of eight channels where the multiplier array has one."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from ...buffers.input_buffer import BankShape
from ...config import NpuConfig
from ...lib.component import Component, record
from ...timing.binary import BinaryUnitTiming
from .binary_row import BinaryRow
from .popcount import entry_parities

__all__ = ["BinaryUnit"]


class BinaryUnit(BinaryUnitTiming, Component):
    """How many bits of each pixel of a word equal the weights of each of ``binary_rows`` rows.

    ``latency`` cycles from pixels to counts, one word a cycle. Pixels are not put in order in front of the rows, as
    that would take a look-up table for every bit: ``swap`` puts the counts in order. Groups of output lanes are of
    ``binary_rows`` each.

    Golden model: ``sim.golden.binary_popcount``. Raises ValueError unless ``latency`` is at least `shortest_latency`.
    """

    def __init__(self, config: NpuConfig, *, latency: int):
        if latency < self.shortest_latency(config):
            raise ValueError(f"latency must be at least {self.shortest_latency(config)}, not {latency!r}")
        self.config = config
        self.latency = latency
        bits, rows, px = config.binary_bits, config.binary_rows, config.pixel_lanes
        super().__init__({
            "pixels": In(data.ArrayLayout(bits, config.banks)),  # as read from the banks
            "zeros": In(data.ArrayLayout(2, config.banks)),  # of each, which halves count half of their bits
            "first_bank": In(BankShape(config)),  # that pixel 0 was read from
            "weights": In(data.ArrayLayout(bits, rows)),  # of each row, of the next step
            # Their `entry_parities`, of the weights of the cycle before.
            "weight_parities": In(data.ArrayLayout(bits // 2, rows)),
            "load": In(1),                        # take the weights over, in the cycle of their first pixels
            "swap": In(1),                        # in the cycle of the counts: pixel 0 came from an odd bank
            # In that cycle: groups of output lanes that get the rows' counts; the others get zero.
            "take": In(config.binary_groups),
            # Equal bits, for each pixel of each output lane.
            "counts": Out(data.ArrayLayout(range(bits + 1), config.oc_lanes * px)),
        })

    def _sides(self, banks: list[Value]) -> list[Value]:
        """What the even and the odd bank of a word's pixels have; with one pixel, all there is."""
        config = self.config
        if config.banks == config.pixel_lanes:
            return banks
        # Two neighbours of four banks: where pixel 0 is odd, the even one is the next.
        even, odd = (self.first_bank + 1)[1], self.first_bank[1]
        return [Mux(even, banks[2], banks[0]), Mux(odd, banks[3], banks[1])]

    def elaborate(self, platform):
        m = Module()
        config = self.config
        bits, px = config.binary_bits, config.pixel_lanes

        x = record(data.ArrayLayout(bits, px), reset_less=True)
        x_parities = record(data.ArrayLayout(bits // 2, px), reset_less=True)
        load_parities = Signal()
        m.d.sync += [
            *[x[side].eq(value) for side, value in enumerate(self._sides(list(self.pixels)))],
            *[x_parities[side].eq(entry_parities(x[side], of_weights=False)) for side in range(px)],
            load_parities.eq(self.load),
        ]
        marks: Value = Cat(self._sides(list(self.zeros)))
        for cycle in range(BinaryRow.latency(config) - 1):
            # With a reset: it keeps the registers from becoming a look-up table.
            delayed = Signal(2 * px, name=f"marks{cycle}")
            m.d.sync += delayed.eq(marks)
            marks = delayed

        counts = []
        for number in range(config.binary_rows):
            m.submodules[f"row{number}"] = row = BinaryRow(config)
            m.d.comb += [
                row.bits.eq(x),
                row.parities.eq(x_parities),
                row.weights.eq(self.weights[number]),
                row.weight_parities.eq(self.weight_parities[number]),
                row.load.eq(self.load),
                row.load_parities.eq(load_parities),
                row.marks.eq(marks),
            ]
            delayed = row.counts
            for cycle in range(self.shortest_latency(config), self.latency):
                following = Signal.like(delayed, name=f"counts{number}_{cycle}")
                m.d.sync += following.eq(delayed)
                delayed = following
            counts.append(delayed)
        for pixel in range(px):
            for lane in range(config.oc_lanes):
                group, number = divmod(lane, config.binary_rows)
                sides = counts[number]
                count = Mux(self.swap, sides[px - 1 - pixel], sides[pixel])
                m.d.comb += self.counts[pixel * config.oc_lanes + lane].eq(Mux(self.take[group], count, 0))
        return m
