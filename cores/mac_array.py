"""Multiplier array: select, multiply, sum."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .config import NpuConfig

__all__ = ["MacArray", "MacRow", "packed_products", "sum_bits"]

PRODUCT_BITS = 16


def packed_products(config: NpuConfig) -> int:
    """How many products of two packed pixels can be summed before they must be separated; 0 when pixels are not packed.

    ``(x1 << s) + x0`` needs ``s + 9`` bits; ``s`` = 16 holds one product of int8 by int8, each bit more doubles that.
    """
    if config.pixel_lanes == 1 or config.multiplier_width < PRODUCT_BITS + 9:
        return 0
    return min(1 << config.multiplier_width - PRODUCT_BITS - 9, config.nnz_lanes)


def sum_bits(config: NpuConfig) -> int:
    """Bits of a sum of ``nnz_lanes`` products."""
    return PRODUCT_BITS + (config.nnz_lanes - 1).bit_length()


def _channel_layout(config: NpuConfig) -> data.ArrayLayout:
    """A channel's pixels on their way to the multipliers: packed, x0 and above it x1 less x0's borrow; else singly."""
    parts = [17] if packed_products(config) else [8] * config.pixel_lanes
    return data.StructLayout({f"part{number}": bits for number, bits in enumerate(parts)})


def _select(index: Value, choices: list[Value]) -> Value:
    """``choices[index]`` as a tree of two-way multiplexers, which maps to look-up tables better than a case."""
    for bit in index:
        choices = [Mux(bit, high, low) for low, high in zip(choices[::2], choices[1::2], strict=True)]
    return choices[0]


class MacRow(wiring.Component):
    """One output channel: ``nnz_lanes`` multipliers with their selectors, weights and adder tree.

    Latency from ``channels`` to ``sums``: `MacRow.latency`. All rows of an array are the same module.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            "channels": In(data.ArrayLayout(_channel_layout(config), config.ic_lanes)),
            "weights": In(data.ArrayLayout(signed(8), config.nnz_lanes)),
            "indices": In(data.ArrayLayout(unsigned(config.index_bits), config.nnz_lanes)),
            "load_indices": In(1),
            "load_weights": In(1),
            "sums": Out(data.ArrayLayout(signed(sum_bits(config)), config.pixel_lanes)),
            "carry": Out(1),
        })

    @staticmethod
    def latency(config: NpuConfig) -> int:
        """Cycles: select, multiply and one for each level of the adder tree."""
        return 2 + (config.nnz_lanes - 1).bit_length()

    def elaborate(self, platform):
        m = Module()
        config = self.config
        group = packed_products(config)
        shift = PRODUCT_BITS + (group - 1).bit_length() if group else 0

        products: list[list[tuple[Value, Value | None]]] = []
        for lane in range(config.nnz_lanes):
            weight = Signal(signed(8), name=f"weight{lane}", reset_less=True)
            index = Signal(config.index_bits, name=f"index{lane}", reset_less=True)
            with m.If(self.load_weights):
                m.d.sync += weight.eq(self.weights[lane])
            with m.If(self.load_indices):
                m.d.sync += index.eq(self.indices[lane])
            base = config.window_base(lane)
            window = [self.channels[channel] for channel in range(base, base + config.select_fanin)]
            lane_products: list[tuple[Value, Value | None]] = []
            for part in _channel_layout(config).members:
                chosen = _select(index, [channel[part] for channel in window])
                selected = Signal(len(chosen), name=f"selected{lane}_{part}", reset_less=True)
                m.d.sync += selected.eq(chosen)
                if group:
                    operand = Cat(selected[:8], selected[7].replicate(shift - 8), selected[8:]).as_signed()
                else:
                    operand = selected.as_signed()
                product = Signal(signed(len(operand) + 8), name=f"product{lane}_{part}", reset_less=True)
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
        width, level, summed = PRODUCT_BITS, 0, 1

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
                    total = Signal(signed(max(len(a), len(b)) + 1 if packed else width),
                                   name=f"sum{level}_{number}_{part}", reset_less=True)
                    carry = None
                    if carry_a is None:
                        m.d.sync += total.eq(a + b)
                    else:
                        carry = Signal(name=f"carry{level}_{number}", reset_less=True)
                        m.d.sync += [total.eq(a + b + carry_a), carry.eq(carry_b)]
                    node.append((total, carry))
                following.append(separate(node[0][0]) if group and summed == group else node)
            products = following
        for pixel, (total, carry) in enumerate(products[0]):
            m.d.comb += self.sums[pixel].eq(total)
            if carry is not None:
                m.d.comb += self.carry.eq(carry)


class MacArray(wiring.Component):
    """Sum of ``nnz_lanes`` selected products for each output channel and pixel.

    ``pixels`` are read from the banks (``swap``: pixel 0 is in bank 1). Latency from ``pixels`` to ``sums``:
    ``MacArray.latency(config)``; one word a cycle. Weights and indices are taken over from the weight loader by the
    first word of a step: its indices one cycle (``load_indices``) and its weights two cycles (``load_weights``) behind
    the address, when the stages that use them are between two steps. ``carries`` are to be added to pixel 1's sums.

    Golden model: ``sim.golden.conv2d_accumulate``.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        lanes = config.oc_lanes * config.nnz_lanes
        super().__init__({
            "pixels": In(data.ArrayLayout(data.ArrayLayout(signed(8), config.ic_lanes), config.pixel_lanes)),
            "swap": In(1),
            "weights": In(data.ArrayLayout(signed(8), lanes)),
            "indices": In(data.ArrayLayout(unsigned(config.index_bits), lanes)),
            "load_indices": In(1),
            "load_weights": In(1),
            "sums": Out(data.ArrayLayout(signed(sum_bits(config)), config.acc_lanes)),
            "carries": Out(config.oc_lanes),
        })

    @staticmethod
    def latency(config: NpuConfig) -> int:
        """Cycles from ``pixels`` to ``sums``: align, then a row."""
        return 1 + MacRow.latency(config)

    def elaborate(self, platform):
        m = Module()
        config = self.config
        channels = Signal(data.ArrayLayout(_channel_layout(config), config.ic_lanes), reset_less=True)
        for channel in range(config.ic_lanes):
            x = [self.pixels[pixel][channel] for pixel in range(config.pixel_lanes)]
            if config.pixel_lanes == 2:
                x = [Mux(self.swap, x[1], x[0]).as_signed(), Mux(self.swap, x[0], x[1]).as_signed()]
            if packed_products(config):
                m.d.sync += channels[channel].part0.eq(Cat(x[0], (x[1] - x[0][7])[:9]))
            else:
                for pixel, value in enumerate(x):
                    m.d.sync += channels[channel][f"part{pixel}"].eq(value)

        for oc in range(config.oc_lanes):
            row = MacRow(config)
            m.submodules[f"row{oc}"] = row
            lanes = range(oc * config.nnz_lanes, (oc + 1) * config.nnz_lanes)
            m.d.comb += [
                row.channels.eq(channels),
                Value.cast(row.weights).eq(Cat(self.weights[lane] for lane in lanes)),
                Value.cast(row.indices).eq(Cat(self.indices[lane] for lane in lanes)),
                row.load_indices.eq(self.load_indices),
                row.load_weights.eq(self.load_weights),
                self.carries[oc].eq(row.carry),
                *[self.sums[pixel * config.oc_lanes + oc].eq(row.sums[pixel]) for pixel in range(config.pixel_lanes)],
            ]
        return m
