"""Stochastic lane: streams of N activations and N weights become the sum of their products."""

from collections.abc import Callable, Mapping, Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from ...arch.stochastic import ACC_BLOCK, MAX_LENGTH_LOG, Circuit
from ...lib.component import Component
from ...lib.trees import summed
from ...timing.stochastic import StochasticLaneTiming
from .logic import count_four
from .stream_source import StreamSelect

__all__ = ["StochasticLane"]


class StochasticLane(StochasticLaneTiming, Component):
    """One output of one pixel, by any `Circuit`: ``bits`` of each stream a cycle, the sum in ``count``.

    ``count`` has a word's sum in the cycle after the marks of its last bits, in units of one bit of the result's
    stream. Golden model: ``sim.stochastic.circuits.sums_by_bits``.

    Raises ValueError unless ``inputs`` is 4, 8, 16 or 32.
    """

    def __init__(self, *, circuit: Circuit, inputs: int, bits: int):
        if inputs not in (4, 8, 16, 32):
            raise ValueError(f"inputs must be 4, 8, 16 or 32, not {inputs!r}")
        self.circuit, self.inputs, self.bits = circuit, inputs, bits
        streams = data.ArrayLayout(inputs, bits)
        super().__init__({
            "activations": In(streams),  # of each bit of the cycle: those of all inputs
            "weights": In(streams),      # of the same bits
            "negative": In(inputs),      # products that are subtracted; not with bipolar streams
            "select": In(StreamSelect(inputs=inputs, bits=bits)),  # of these bits, when they are due
            "first_held": In(1),         # these bits are the word's first: nothing is held
            "first": In(1),              # the same, for the count
            "valid": In(1),              # there are bits
            "count": Out(signed(self.count_bits(inputs))),  # sum of the word so far
        })

    @staticmethod
    def count_bits(inputs: int) -> int:
        """Of a sum from -``inputs`` to ``inputs`` times the longest stream."""
        return (inputs - 1).bit_length() + MAX_LENGTH_LOG + 2

    def elaborate(self, platform):
        m = Module()
        products = [~(a ^ w) if self.circuit.bipolar else a & w
                    for a, w in zip(self.activations, self.weights, strict=True)]
        value = _ADDERS[self.circuit](self, m, products)
        if self.circuit == Circuit.XNOR_MUX:
            value = value << (self.inputs - 1).bit_length()
        with m.If(self.valid):
            m.d.sync += self.count.eq(Mux(self.first, 0, self.count) + value)
        return m

    # -- what a cycle's products add: registers up to the count's -----------------------------------------------------

    def _register(self, m: Module, value: Value, name: str) -> Signal:
        register = Signal(value.shape(), name=name, reset_less=True)
        m.d.sync += register.eq(value)
        return register

    def _twice_less(self, m: Module, ones: Sequence[Value]) -> Value:
        """Ones of a bipolar stream less its zeros."""
        count = summed(m, ones, "ones")
        return (count << 1) - len(ones) if len(ones) > 1 else Cat(Const(1, 1), ~ones[0]).as_signed()

    def _xnor_mux(self, m: Module, products: list[Value]) -> Value:
        ones = [self._register(m, product.bit_select(chosen, 1), f"chosen{bit}")
                for bit, (product, chosen) in enumerate(zip(products, self.select.inputs, strict=True))]
        return self._twice_less(m, ones)

    def _sides(self, products: Value) -> tuple[Value, Value]:
        """Positive and negative products."""
        return products & ~self.negative, products & self.negative

    def _and_sep_or(self, m: Module, products: list[Value]) -> Value:
        ones = []
        for bit, product in enumerate(products):
            either = []
            for side, set_ in zip("pn", self._sides(product), strict=True):
                fours = Cat(set_[begin:begin + 4].any() for begin in range(0, self.inputs, 4))
                either.append(self._register(m, fours, f"any_{side}{bit}").any())
            chosen = Mux(self.select.choose[bit], either[0], ~either[1])
            ones.append(self._register(m, chosen, f"chosen{bit}"))
        return self._twice_less(m, ones)

    def _counted(self, m: Module, bits: Value, name: str) -> Value:
        """How many of the inputs' bits are ones, one cycle and a tree later."""
        fours = [self._register(m, count_four(*bits[begin:begin + 4]), f"{name}_four{begin // 4}")
                 for begin in range(0, self.inputs, 4)]
        return summed(m, fours, name)

    def _held_bits(self) -> int:
        """Of what is held of a word, in halves, with its sign."""
        return (self.inputs - 1).bit_length() + MAX_LENGTH_LOG + 2

    def _and_sep_counter(self, m: Module, products: list[Value]) -> Value:
        out = []
        for side, set_ in zip("pn", self._sides(products[0]), strict=True):
            held = Signal(self._held_bits() - 2, name=f"held_{side}", reset_less=True)
            there = Mux(self.first_held, 0, held) + self._counted(m, set_, f"count_{side}")
            m.d.sync += held.eq(there - there.any())
            out.append(self._register(m, there.any(), f"out_{side}"))
        chosen = self._register(m, Mux(self.select.choose[0], out[0], ~out[1]), "chosen")
        return self._twice_less(m, [chosen])

    def _ugemm(self, m: Module, products: list[Value]) -> Value:
        count = self._counted(m, products[0], "count")
        added = self._register(m, (count << 1) - (self.inputs - 1), "added")
        held = Signal(signed(self._held_bits()), name="held", reset_less=True)
        before = Mux(self.first_held, 0, held)
        # The one that is given is two halves.
        kept, given = Signal.like(held, name="kept"), Signal.like(held, name="given")
        m.d.comb += [kept.eq(before + added), given.eq(before + (added - 2))]
        m.d.sync += held.eq(Mux(given[-1], kept, given))
        return self._twice_less(m, [self._register(m, ~given[-1], "out")])

    def _pairs(self, m: Module, products: list[Value]) -> list[Value]:
        """Of each two products their sum and 2: 0 to 4."""
        pairs: list[Value] = []
        for bit, product in enumerate(products):
            positive, negative = self._sides(product)
            for one in range(0, self.inputs, 2):
                ones = *positive[one:one + 2], *~negative[one:one + 2]
                pairs.append(self._register(m, count_four(*ones), f"pair{bit}_{one // 2}"))
        return pairs

    def _and_acc(self, m: Module, products: list[Value]) -> Value:
        pairs, given = self._pairs(m, products), []
        for block in range(self.inputs // ACC_BLOCK):
            added = self._register(m, pairs[2 * block] + pairs[2 * block + 1] - ACC_BLOCK, f"added{block}")
            held = Signal(signed(3 + MAX_LENGTH_LOG), name=f"held{block}", reset_less=True)
            there = Signal.like(held, name=f"there{block}")
            m.d.comb += there.eq(Mux(self.first_held, 0, held) + added)
            out = Cat(there.any(), there[-1]).as_signed()
            m.d.sync += held.eq(there - out)
            given.append(self._register(m, out, f"out{block}"))
        return summed(m, given, "given")

    def _and_loop(self, m: Module, products: list[Value]) -> Value:
        pairs = self._pairs(m, products)
        return summed(m, pairs, "sum") - 2 * len(pairs)


_ADDERS: Mapping[Circuit, Callable[[StochasticLane, Module, list[Value]], Value]] = {
    Circuit.XNOR_MUX: StochasticLane._xnor_mux, Circuit.AND_SEP_OR: StochasticLane._and_sep_or,
    Circuit.AND_SEP_COUNTER: StochasticLane._and_sep_counter, Circuit.UGEMM: StochasticLane._ugemm,
    Circuit.AND_ACC: StochasticLane._and_acc, Circuit.AND_LOOP: StochasticLane._and_loop,
}
