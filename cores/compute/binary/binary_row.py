"""Binary row: XNOR-popcount of one output channel."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...config import NpuConfig
from .popcount import FIRST_ONES, add_ones, adders, carries, count_of, parity_steps

__all__ = ["BinaryRow"]

#: Additions between two registers.
_ADDITIONS = 2


class BinaryRow(wiring.Component):
    """For each pixel, how many of its ``binary_bits`` bits are equal to the weights': ``counts``, one word a cycle.

    Latency `BinaryRow.latency` from ``bits``. All rows of the unit are the same module. Golden model:
    ``sim.golden.binary_popcount``.
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
            # Pixels that count half their bits; in the last cycle before the counts.
            "half": In(px),
            "counts": Out(data.ArrayLayout(range(bits + 1), px)),  # equal bits of each pixel
        })

    @staticmethod
    def _adder_stages(config: NpuConfig) -> int:
        return -(-adders(config.binary_bits // 2) // (2 * _ADDITIONS))

    @classmethod
    def latency(cls, config: NpuConfig) -> int:
        """Cycles: majorities, then a few additions in each."""
        return 1 + cls._adder_stages(config)

    def elaborate(self, platform):
        m = Module()
        bits = self.config.binary_bits
        weights = Signal(bits, reset_less=True)
        weight_parities = Signal(bits // 2, reset_less=True)
        with m.If(self.load):
            m.d.sync += weights.eq(self.weights)
        with m.If(self.load_parities):
            m.d.sync += weight_parities.eq(self.weight_parities)

        steps, early = parity_steps(bits), bits // 3
        for pixel in range(self.config.pixel_lanes):
            x, parities = self.bits[pixel], self.parities[pixel]
            digits = carries(list(x), list(weights), steps[:early])
            # x is a cycle ahead of its parities; the few pairs that are left over take part in later steps.
            rest = Signal(bits - 3 * early, name=f"rest{pixel}")
            m.d.sync += rest.eq(x[3 * early:])
            rest_weights = Signal.like(rest, name=f"rest_weights{pixel}")
            m.d.sync += rest_weights.eq(weights[3 * early:])
            x_items = [*[None] * (3 * early), *rest, *parities]
            w_items = [*[None] * (3 * early), *rest_weights, *weight_parities]
            late = [*carries(x_items, w_items, steps[early:]), ~(x_items[-1] ^ w_items[-1])]
            self._count(m, pixel, digits, late)
        return m

    def _count(self, m: Module, pixel: int, early: list, late: list) -> None:
        """Register ``early``, and a cycle later ``late``, whose last is of weight 1; add up."""
        bits, stages = self.config.binary_bits, self._adder_stages(self.config)

        def held(values, name):
            # With a reset: without one, a few registers in a row would become shift-register look-up tables.
            register = Signal(len(values), name=f"{name}{pixel}")
            m.d.sync += register.eq(Cat(values))
            return list(register)

        ones = held(early, "early")
        # Two chains of additions beside each other, whose sums are added in the place of the last stage's last one.
        chains = [count_of(ones[:1]), count_of(ones[1:1 + FIRST_ONES])]
        ones = ones[1 + FIRST_ONES:]
        for stage in range(stages):
            last = stage == stages - 1
            for _ in range(_ADDITIONS - last):
                for chain, (number, maximum) in enumerate(chains):
                    if ones:
                        number, maximum, ones = add_ones(number, maximum, ones)
                        chains[chain] = number, maximum
            if not last:
                chains = [(Cat(held(list(number), f"number{stage}_{chain}_")), maximum)
                          for chain, (number, maximum) in enumerate(chains)]
                if stage == 0:
                    ones, late = [*held(ones, "ones0_"), *held(late[:-1], "late")], held(late[-1:], "parity0_")
                else:
                    ones, late = held(ones, f"ones{stage}_"), held(late, f"parity{stage}_")
        (first, _), (second, _) = chains
        count = Signal(range(bits + 1), name=f"count{pixel}", reset_less=True)
        # The last of the ones is the carry.
        assert len(ones) <= 1
        carry = ones[0] if ones else Const(0)
        number = (Cat(Const(1), first) + Cat(carry, second))[1:len(count)]
        m.d.sync += count.eq(Mux(self.half[pixel], bits // 2, Cat(late[-1], number)))
        m.d.comb += self.counts[pixel].eq(count)
