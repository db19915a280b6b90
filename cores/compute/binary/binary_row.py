"""Binary row: XNOR-popcount of one output channel."""

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from ...config import NpuConfig
from ...lib.component import Component
from ...timing.binary import ADDITIONS, ONES, BinaryRowTiming
from .popcount import add_ones, carries, count_of, halves, parity_steps

__all__ = ["BinaryRow"]


class BinaryRow(BinaryRowTiming, Component):
    """For each pixel, how many of its ``binary_bits`` bits are equal to the weights': ``counts``, one word a cycle.

    Latency `BinaryRow.latency` from ``bits``. All rows of the unit are the same module. ``parities`` are those of
    `popcount.entry_parities`. Golden model: ``sim.golden.binary_popcount``.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        bits, px = config.binary_bits, config.pixel_lanes
        super().__init__({
            "bits": In(data.ArrayLayout(bits, px)),  # of each pixel
            "parities": In(data.ArrayLayout(bits // 2, px)),  # those of the bits of the cycle before
            "weights": In(bits),                     # of the next step
            "weight_parities": In(bits // 2),        # of the weights of the cycle before
            "load": In(1),                           # take the weights over, in the cycle before their first bits
            "load_parities": In(1),                  # take theirs over, a cycle later
            # Of each pixel, whether each half counts half of its bits; in the last cycle but one before the counts.
            "marks": In(data.ArrayLayout(2, px)),
            "counts": Out(data.ArrayLayout(range(bits + 1), px)),  # equal bits of each pixel
        })

    def elaborate(self, platform):
        m = Module()
        bits = self.config.binary_bits
        weights = Signal(bits, reset_less=True)
        weight_parities = Signal(bits // 2, reset_less=True)
        with m.If(self.load):
            m.d.sync += weights.eq(self.weights)
        with m.If(self.load_parities):
            m.d.sync += weight_parities.eq(self.weight_parities)

        half_bits = bits // 2
        steps, early = parity_steps(half_bits), half_bits // 3
        for pixel in range(self.config.pixel_lanes):
            pairs = zip(halves(list(self.bits[pixel])), halves(list(weights)), strict=True)
            chains = []
            for half, (x, w) in enumerate(pairs):
                own = slice(half * half_bits // 2, (half + 1) * half_bits // 2)
                parities, parities_of_weights = self.parities[pixel][own], weight_parities[own]
                digits = carries(x, w, steps[:early])
                # x is a cycle ahead of its parities; the few pairs that are left over take part in later steps.
                rest = Signal(half_bits - 3 * early, name=f"rest{pixel}_{half}")
                rest_weights = Signal.like(rest, name=f"rest_weights{pixel}_{half}")
                m.d.sync += [rest.eq(Cat(x[3 * early:])), rest_weights.eq(Cat(w[3 * early:]))]
                x_items = [*[None] * (3 * early), *rest, *parities]
                w_items = [*[None] * (3 * early), *rest_weights, *parities_of_weights]
                late = [*carries(x_items, w_items, steps[early:]), ~(x_items[-1] ^ w_items[-1])]
                chains.append(self._chain(m, f"{pixel}_{half}", self.marks[pixel][half], digits, late))
            (first, first_parity), (second, second_parity) = chains
            count = Signal(range(bits + 1), name=f"count{pixel}", reset_less=True)
            # Two parities are one more of weight 2.
            number = (Cat(Const(1), first) + Cat(first_parity & second_parity, second))[1:len(count)]
            m.d.sync += count.eq(Cat(first_parity ^ second_parity, number))
            m.d.comb += self.counts[pixel].eq(count)
        return m

    def _chain(self, m: Module, name: str, mark: Value, early: list[Value], late: list[Value]) -> tuple[Value, Value]:
        """Register ``early``, and a cycle later ``late``, whose last is of weight 1; add up all but that one.

        Returns the sum and that one. ``mark``: both are those of half the bits, whatever they are.
        """
        stages = self._adder_stages(self.config)

        def held(values, register_name, *, marked: int | None = None):
            # With a reset: without one, a few registers in a row would become shift-register look-up tables. A mark is
            # one too.
            register = Signal(len(values), name=f"{register_name}{name}", reset_less=marked is not None)
            m.d.sync += register.eq(Cat(values))
            if marked is not None:
                with m.If(mark):
                    m.d.sync += register.eq(marked)
            return list(register)

        ones = held(early, "early")
        begin = max(1, len(ones) + len(late) - 1 - ONES * ADDITIONS * (stages - 1))
        (number, maximum), ones = count_of(ones[:begin]), ones[begin:]
        for stage in range(stages):
            last, marks = stage == stages - 1, stage == stages - 2
            for _ in range(0 if last else ADDITIONS):
                if ones:
                    number, maximum, ones = add_ones(number, maximum, ones)
            if not last:
                number = Cat(held(list(number), f"number{stage}_",
                                  marked=self.config.binary_bits // 8 if marks else None))
                more = late[:-1] if stage == 0 else []
                ones, late = [*held([*ones, *more], f"ones{stage}_", marked=0 if marks else None)], held(
                    late[-1:], f"parity{stage}_", marked=0 if marks else None)
        assert stages > 1 and not ones
        return number, late[0]
