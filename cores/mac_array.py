"""Multiplier array: select, multiply, sum."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .config import NpuConfig

__all__ = ["MacArray", "packed_products"]

PRODUCT_BITS = 16


def packed_products(config: NpuConfig) -> int:
    """How many products of two packed pixels can be summed before they must be separated; 0 when pixels are not packed.

    ``(x1 << s) + x0`` needs ``s + 9`` bits; ``s`` = 16 holds one product of int8 by int8, every further bit doubles that.
    """
    if config.pixel_lanes == 1 or config.multiplier_width < PRODUCT_BITS + 9:
        return 0
    return min(1 << config.multiplier_width - PRODUCT_BITS - 9, config.nnz_lanes)


def _select(index: Value, choices: list[Value]) -> Value:
    """``choices[index]`` as a tree of two-way multiplexers, which maps to look-up tables better than a case."""
    for bit in index:
        choices = [Mux(bit, high, low) for low, high in zip(choices[::2], choices[1::2], strict=True)]
    return choices[0]


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
            "sums": Out(data.ArrayLayout(signed(self.sum_bits(config)), config.acc_lanes)),
            "carries": Out(config.acc_lanes),
        })

    @staticmethod
    def sum_bits(config: NpuConfig) -> int:
        return PRODUCT_BITS + (config.nnz_lanes - 1).bit_length()

    @staticmethod
    def latency(config: NpuConfig) -> int:
        """Cycles from ``pixels`` to ``sums``: align, select, multiply and one for each level of the adder tree."""
        return 3 + (config.nnz_lanes - 1).bit_length()

    def elaborate(self, platform):
        m = Module()
        config = self.config
        group = packed_products(config)
        shift = PRODUCT_BITS + (group - 1).bit_length() if group else 0

        # Align: pixel 0 and 1 of each channel; packed, one number for both: x0 below, x1 less x0's borrow above.
        sources: list[list[Value]] = []
        for channel in range(config.ic_lanes):
            x = [self.pixels[pixel][channel] for pixel in range(config.pixel_lanes)]
            if config.pixel_lanes == 2:
                x = [Mux(self.swap, x[1], x[0]).as_signed(), Mux(self.swap, x[0], x[1]).as_signed()]
            if group:
                low, high = Signal(signed(8), name=f"low{channel}"), Signal(signed(9), name=f"high{channel}")
                m.d.sync += [low.eq(x[0]), high.eq(x[1] - x[0][7])]
                sources.append([Cat(low, high)])
            else:
                aligned = [Signal(signed(8), name=f"x{pixel}_{channel}") for pixel in range(config.pixel_lanes)]
                m.d.sync += [a.eq(value) for a, value in zip(aligned, x, strict=True)]
                sources.append(list(aligned))

        for row in range(config.oc_lanes):
            products: list[list[tuple[Value, Value | None]]] = []
            for j in range(config.nnz_lanes):
                lane = row * config.nnz_lanes + j
                weight = Signal(signed(8), name=f"weight{lane}")
                index = Signal(config.index_bits, name=f"index{lane}")
                with m.If(self.load_weights):
                    m.d.sync += weight.eq(self.weights[lane])
                with m.If(self.load_indices):
                    m.d.sync += index.eq(self.indices[lane])
                base = config.window_base(j)
                window = sources[base:base + config.select_fanin]
                lane_products: list[tuple[Value, Value | None]] = []
                for part in range(len(window[0])):
                    chosen = _select(index, [source[part] for source in window])
                    selected = Signal(17 if group else signed(8), name=f"selected{lane}_{part}")
                    m.d.sync += selected.eq(chosen)
                    if group:
                        operand = Cat(selected[:8], selected[7].replicate(shift - 8), selected[8:]).as_signed()
                    else:
                        operand = selected
                    product = Signal(signed(len(operand) + 8), name=f"product{lane}_{part}")
                    m.d.sync += product.eq(operand * weight)
                    lane_products.append((product, None))
                products.append(lane_products)
            self._sum_row(m, row, products, group, shift)
        return m

    def _sum_row(self, m: Module, row: int, products: list, group: int, shift: int) -> None:
        """Adder tree of one output channel, a register a level.

        A packed sum is separated once it holds ``group`` products. Separating leaves the low half's borrow to be given back to
        the high half; an adder takes one such bit as its carry-in and passes the other on, so one is left at the end.
        """
        config = self.config
        width, level, summed = PRODUCT_BITS, 0, 1

        def separate(packed: Value) -> list[tuple[Value, Value | None]]:
            return [(packed[:shift].as_signed(), None), (packed[shift:].as_signed(), packed[shift - 1])]

        if group == 1:
            products = [separate(lane[0][0]) for lane in products]
        while len(products) > 1:
            level, summed, width = level + 1, summed * 2, width + 1
            following = []
            for number, (left, right) in enumerate(zip(products[::2], products[1::2], strict=True)):
                node = []
                for part, ((a, carry_a), (b, carry_b)) in enumerate(zip(left, right, strict=True)):
                    packed = group and summed <= group
                    total = Signal(signed(max(len(a), len(b)) + 1 if packed else width),
                                   name=f"sum{row}_{level}_{number}_{part}")
                    carry = None
                    if carry_a is None:
                        m.d.sync += total.eq(a + b)
                    else:
                        carry = Signal(name=f"carry{row}_{level}_{number}")
                        m.d.sync += [total.eq(a + b + carry_a), carry.eq(carry_b)]
                    node.append((total, carry))
                following.append(separate(node[0][0]) if group and summed == group else node)
            products = following
        for pixel, (total, carry) in enumerate(products[0]):
            lane = pixel * config.oc_lanes + row
            m.d.comb += self.sums[lane].eq(total)
            if carry is not None:
                m.d.comb += self.carries[lane].eq(carry)
