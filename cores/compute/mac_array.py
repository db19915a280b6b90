"""Multiplier array: select, multiply, sum."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from ..buffers.input_buffer import BankShape
from ..config import NpuConfig
from ..lib.bits import select
from ..lib.component import Component, record
from ..timing.compute import PRODUCT_BITS, MacArrayTiming, MacRowTiming, packed_products

__all__ = ["MacArray", "MacRow"]


def _channel_layout(config: NpuConfig) -> data.StructLayout:
    """A channel's pixels on their way to the multipliers: packed, x0 and above it x1 less x0's borrow; or singly."""
    parts = [17] if packed_products(config) else [config.activation_bits] * config.pixel_lanes
    return data.StructLayout({f"part{number}": bits for number, bits in enumerate(parts)})


def _sources_layout(config: NpuConfig) -> data.ArrayLayout:
    """What a row selects from: the channels of a block, with ``depthwise`` for each of its lanes."""
    channels = data.ArrayLayout(_channel_layout(config), config.ic_lanes)
    return data.ArrayLayout(channels, config.nnz_lanes) if config.depthwise else channels


#: With ``depthwise``: which of the pixels read a word's pixels are; docs/architecture.md, "Spread words".
#: ``part``: which of a read's words, unless spread.
SourceSelect = data.StructLayout({"part": 1, "spread": 1, "window": 1, "alternate": 1})


class MacRow(MacRowTiming, Component):
    """One output channel: ``nnz_lanes`` multipliers with their selectors, weights and adder tree.

    Latency from ``channels`` to ``sums``: `MacRow.latency`. All rows of an array are the same module.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            "channels": In(_sources_layout(config)),  # what the selectors choose from
            "weights": In(data.ArrayLayout(signed(config.weight_bits), config.nnz_lanes)),  # of the next step
            # Of the next step: channel of each lane.
            "indices": In(data.ArrayLayout(unsigned(config.index_bits), config.nnz_lanes)),
            "load_indices": In(1),                    # take the indices over
            "load_weights": In(1),                    # take the weights over, a cycle later
            **({"clear_weights": In(1)} if config.joins_sums else {}),  # instead: all weights become zero
            "sums": Out(data.ArrayLayout(signed(config.array_sum_bits), config.pixel_lanes)),  # of each pixel
            "carry": Out(1),                          # to be added to the sum of pixel 1
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        group = packed_products(config)
        shift = PRODUCT_BITS + (group - 1).bit_length() if group else 0

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
            channels = self.channels[lane] if config.depthwise else self.channels
            window = [channels[channel] for channel in range(base, base + config.select_fanin)]
            lane_products: list[tuple[Value, Value | None]] = []
            for part in _channel_layout(config).members:
                chosen = select(index, [channel[part] for channel in window])
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
    comes ``MacArray.align(config)`` - 1 cycles after that word's ``pixels``. With ``depthwise``, words with ``window``
    reach back over ``window_reads`` reads. Where sums are cleared, those of another unit take their place.

    Golden model: ``sim.golden.conv2d_accumulate``.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        lanes = config.oc_lanes * config.nnz_lanes
        activations = data.ArrayLayout(signed(config.activation_bits), config.ic_lanes)
        super().__init__({
            "pixels": In(data.ArrayLayout(activations, config.banks)),  # as read from the banks
            "turn": In(BankShape(config)),    # bank of pixel 0; the others follow
            # Which pixels the groups of output lanes take; belongs to the pixels of the cycle before.
            **({"source": In(SourceSelect)} if config.depthwise else {}),
            # Of the next step, for each reduction lane of each output lane.
            "weights": In(data.ArrayLayout(signed(config.weight_bits), lanes)),
            "indices": In(data.ArrayLayout(unsigned(config.index_bits), lanes)),  # channels that they select
            # Take the indices over, in the cycle in which the first word's channels are registered.
            "load_indices": In(1),
            "load_weights": In(1),            # take the weights over, a cycle later
            **({"clear_weights": In(1)} if config.joins_sums else {}),  # instead: this step's sums are zero
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
        sources = self._gathered(m, ordered) if config.depthwise else [self._aligned(m, ordered)]

        for oc in range(config.oc_lanes):
            row = MacRow(config)
            m.submodules[f"row{oc}"] = row
            lanes = range(oc * config.nnz_lanes, (oc + 1) * config.nnz_lanes)
            m.d.comb += [
                row.channels.eq(sources[oc // config.ic_lanes % len(sources)]),
                Value.cast(row.weights).eq(Cat(self.weights[lane] for lane in lanes)),
                Value.cast(row.indices).eq(Cat(self.indices[lane] for lane in lanes)),
                row.load_indices.eq(self.load_indices),
                row.load_weights.eq(self.load_weights),
                *([row.clear_weights.eq(self.clear_weights)] if config.joins_sums else []),
                self.carries[oc].eq(row.carry),
                *[self.sums[pixel * config.oc_lanes + oc].eq(row.sums[pixel]) for pixel in range(config.pixel_lanes)],
            ]
        return m

    def _pair(self, x: list[Value]) -> Value:
        """A channel's pixels as `_channel_layout` has them."""
        if packed_products(self.config):
            return Cat(x[0], (x[1] - x[0][7])[:9])
        return Cat(*x)

    def _aligned(self, m: Module, ordered: list[list[Value]]) -> Value:
        """All rows and lanes work on the pixels read."""
        channels = record(_sources_layout(self.config), reset_less=True)
        for channel, x in enumerate(ordered):
            m.d.sync += Value.cast(channels[channel]).eq(self._pair([value.as_signed() for value in x]))
        return channels

    def _gathered(self, m: Module, ordered: list[list[Value]]) -> list[Value]:
        """Sources of each group of output lanes: a multiplexer of four for every group, lane, channel and pixel.

        Pixels are kept for ``window_reads`` reads, the oldest first: lane j's tap is j pixels to the right.
        """
        config, px = self.config, self.config.pixel_lanes
        history: list[list[Value]] = []                # by channel
        for channel, pixels in enumerate(ordered):
            reads: list[list[Value]] = []
            for age in range(config.window_reads):
                registers: list[Value] = [
                    Signal(signed(config.activation_bits), name=f"read{age}_{channel}_{q}", reset_less=True)
                    for q in range(config.banks)]
                newer = reads[-1] if reads else pixels
                m.d.sync += [register.eq(value) for register, value in zip(registers, newer, strict=True)]
                reads.append(registers)
            history.append([pixel for read in reversed(reads) for pixel in read])

        source = self.source
        oldest = (config.window_reads - 1) * config.banks   # where the newest read begins
        groups = []
        for g in range(config.oc_groups):
            # Registers would make these late; they are wires of a few bits.
            second = Signal(2, name=f"choice{g}")
            part = Mux(source.spread, g, source.part) if config.oc_groups > 1 else 0
            m.d.comb += second.eq(Cat(Mux(source.window, source.alternate, part), source.window))
            channels = record(_sources_layout(config), name=f"sources{g}", reset_less=True)
            for lane in range(config.nnz_lanes):
                for channel, window in enumerate(history):
                    x = []
                    for p in range(px):
                        plain = [window[oldest + p], window[oldest + (px + p) % config.banks]]
                        columns, rows = window[px * g + p + lane], window[min(2 * p + lane, len(window) - 1)]
                        x.append(select(second, [*plain, columns, rows]).as_signed())
                    m.d.sync += Value.cast(channels[lane][channel]).eq(self._pair(x))
            groups.append(channels)
        return groups
