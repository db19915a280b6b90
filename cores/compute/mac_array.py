"""Multiplier array: select, multiply, sum."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..buffers.input_buffer import BankShape
from ..config import NpuConfig
from ..lib.bits import select
from ..lib.component import Component
from ..timing.compute import PRODUCT_BITS, MacArrayTiming, MacRowTiming, packed_products
from .lane_sources import channel_layout
from .word_parts import sources_of

__all__ = ["MacArray", "MacRow"]


def _clear_port(config: NpuConfig) -> dict[str, wiring.Member]:
    """Where other units make sums in the array's place."""
    return {"clear_weights": In(1)} if config.joins_sums else {}  # instead of new weights all become zero


class MacRow(MacRowTiming, Component):
    """One output channel: ``nnz_lanes`` multipliers with their selectors, weights and adder tree.

    Latency from ``channels`` to ``sums``: `MacRow.latency`. All rows of an array are the same module.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            "channels": In(sources_of(config).layout()),  # what the selectors choose from
            "weights": In(data.ArrayLayout(signed(config.weight_bits), config.nnz_lanes)),  # of the next step
            # Of the next step: channel of each lane.
            "indices": In(data.ArrayLayout(unsigned(config.index_bits), config.nnz_lanes)),
            "load_indices": In(1),                    # take the indices over
            "load_weights": In(1),                    # take the weights over, a cycle later
            **_clear_port(config),
            **sources_of(config).row_ports(),
            "sums": Out(data.ArrayLayout(signed(config.array_sum_bits), config.pixel_lanes)),  # of each pixel
            "carry": Out(1),                          # to be added to the sum of pixel 1
        })

    def elaborate(self, platform):
        m = Module()
        config, sources = self.config, sources_of(self.config)
        group = packed_products(config)
        shift = PRODUCT_BITS + (group - 1).bit_length() if group else 0

        takes_own: Value = Const(0, 1)      # the step is of windows
        if sources.row_ports():
            takes_own = Signal(name="takes_own", reset_less=True)
            with m.If(self.load_indices):
                m.d.sync += takes_own.eq(self.window)
        products: list[list[tuple[Value, Value | None]]] = []
        for lane in range(config.nnz_lanes):
            weight = Signal(signed(config.weight_bits), name=f"weight{lane}", reset_less=True)
            index = Signal(config.index_bits, name=f"index{lane}", reset_less=True)
            with m.If(self.load_weights):
                m.d.sync += weight.eq(self.weights[lane])
            if config.joins_sums:
                with m.If(self.clear_weights):
                    m.d.sync += weight.eq(0)
            with m.If(self.load_indices):
                m.d.sync += index.eq(self.indices[lane])
            base = config.window_base(lane)
            channels = sources.of_lane(self.channels, lane)
            window = [channels[channel] for channel in range(base, base + config.select_fanin)]
            own = sources.own_tap(self.channels, lane)
            lane_products: list[tuple[Value, Value | None]] = []
            for part in channel_layout(config).members:
                chosen = select(index, [channel[part] for channel in window])
                if own is not None:
                    chosen = Mux(takes_own, own[part], chosen)
                selected = Signal(len(chosen), name=f"selected{lane}_{part}", reset_less=True)
                m.d.sync += selected.eq(chosen)
                if group:
                    operand = Cat(selected[:8], selected[7].replicate(shift - 8), selected[8:]).as_signed()
                else:
                    operand = selected.as_signed()
                product = Signal(signed(len(operand) + len(weight)), name=f"product{lane}_{part}", reset_less=True)
                m.d.sync += product.eq(operand * weight)
                lane_products.append((product, None))
            products.append(lane_products)
        self._sum(m, products, group, shift)
        return m

    def _sum(self, m: Module, products: list[list[tuple[Value, Value | None]]], group: int, shift: int) -> None:
        """Adder tree, a register a level.

        A packed sum is separated once it holds ``group`` products. Separating leaves the low half's borrow to be given
        back to the high half; an adder takes one such bit as its carry-in and passes the other on, so one is left at
        the end.
        """
        width, level, summed = self.config.activation_bits + self.config.weight_bits, 0, 1

        def separate(packed: Value) -> list[tuple[Value, Value | None]]:
            return [(packed[:shift].as_signed(), None), (packed[shift:].as_signed(), packed[shift - 1])]

        if group == 1:
            products = [separate(lane[0][0]) for lane in products]
        while len(products) > 1:
            level, summed, width = level + 1, summed * 2, width + 1
            following = []
            for number, (left, right) in enumerate(zip(products[::2], products[1::2], strict=True)):
                node: list[tuple[Value, Value | None]] = []
                for part, ((a, carry_a), (b, carry_b)) in enumerate(zip(left, right, strict=True)):
                    packed = group and summed <= group
                    bits = max(len(a), len(b)) + 1 if packed else width
                    total = Signal(signed(bits), name=f"sum{level}_{number}_{part}", reset_less=True)
                    carry: Value | None = None
                    if carry_a is None:
                        m.d.sync += total.eq(a + b)
                    else:
                        carry = Signal(name=f"carry{level}_{number}", reset_less=True)
                        assert carry_b is not None
                        m.d.sync += [total.eq(a + b + carry_a), carry.eq(carry_b)]
                    node.append((total, carry))
                following.append(separate(node[0][0]) if group and summed == group else node)
            products = following
        assert 2 + level == self.latency(self.config)
        for pixel, (last, borrow) in enumerate(products[0]):
            m.d.comb += self.sums[pixel].eq(last)
            if borrow is not None:
                m.d.comb += self.carry.eq(borrow)


class MacArray(MacArrayTiming, Component):
    """Sum of ``nnz_lanes`` selected products for each output channel and pixel.

    Latency from ``pixels`` to ``sums``: ``MacArray.latency(config)``; one word a cycle. A step's indices and weights
    are taken over from the weight loader between the last word of the step before and its own first: ``load_indices``
    comes ``MacArray.align(config)`` - 1 cycles after that word's ``pixels``. Which pixels a word has follows from
    `LaneSources`. Where sums are cleared, those of another unit take their place.

    Golden model: ``sim.golden.conv2d_accumulate``.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        self.sources = sources_of(config)
        lanes = config.oc_lanes * config.nnz_lanes
        activations = data.ArrayLayout(signed(config.activation_bits), config.ic_lanes)
        super().__init__({
            "pixels": In(data.ArrayLayout(activations, config.banks)),  # as read from the banks
            "turn": In(BankShape(config)),    # bank of pixel 0; the others follow
            **self.sources.ports(),
            # Of the next step, for each reduction lane of each output lane.
            "weights": In(data.ArrayLayout(signed(config.weight_bits), lanes)),
            "indices": In(data.ArrayLayout(unsigned(config.index_bits), lanes)),  # channels that they select
            # Take the indices over, in the cycle in which the first word's channels are registered.
            "load_indices": In(1),
            "load_weights": In(1),            # take the weights over, a cycle later
            **_clear_port(config),            # this step's sums are zero
            # Of each pixel of each output lane.
            "sums": Out(data.ArrayLayout(signed(config.array_sum_bits), config.acc_lanes)),
            "carries": Out(config.oc_lanes),  # to be added to pixel 1's sums
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        # Pixels in order, channel by channel: pixel q is in bank (q + turn) % banks.
        ordered = [[select(self.turn, [self.pixels[(q + turn) % config.banks][channel] for turn in range(config.banks)])
                    for q in range(config.banks)] for channel in range(config.ic_lanes)]
        sources = self.sources.build(m, self, ordered)

        for oc in range(config.oc_lanes):
            row = MacRow(config)
            m.submodules[f"row{oc}"] = row
            lanes = range(oc * config.nnz_lanes, (oc + 1) * config.nnz_lanes)
            m.d.comb += [
                Value.cast(row.channels).eq(Value.cast(self.sources.of_row(sources, oc))),
                Value.cast(row.weights).eq(Cat(self.weights[lane] for lane in lanes)),
                Value.cast(row.indices).eq(Cat(self.indices[lane] for lane in lanes)),
                row.load_indices.eq(self.load_indices),
                row.load_weights.eq(self.load_weights),
                *[getattr(row, name).eq(getattr(self, name)) for name in (
                    *_clear_port(config), *self.sources.row_ports())],
                self.carries[oc].eq(row.carry),
                *[self.sums[pixel * config.oc_lanes + oc].eq(row.sums[pixel]) for pixel in range(config.pixel_lanes)],
            ]
        return m
