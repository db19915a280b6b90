"""The delay model of a device family's speed grade."""

import math
from dataclasses import dataclass

__all__ = ["Delays"]


@dataclass(frozen=True, kw_only=True)
class Delays:
    """Delay model of a speed grade, in nanoseconds. What is not known before placement is a typical value.

    docs/timing.md says where the values are from, and how far estimates are from placed and routed designs.
    """

    #: Speed grade that the values are for.
    grade: str
    lut: float
    #: A multiplexer after LUTs.
    mux: float
    #: Into a carry chain, along one of its bits, and out of it at a sum.
    carry_in: float
    carry: float
    carry_out: float
    #: A net that a routing channel carries: to one load, and more for each doubling of its loads.
    net: float
    net_doubling: float
    #: Flip-flop: from the clock to its output, and before the clock.
    clock_to_output: float
    setup: float
    #: Block RAM: from the clock to its data, without a register inside, and before the clock.
    ram_output: float
    ram_setup: float
    #: Multiplier: from its operands to its product.
    multiplier: float
    #: Of a multiplier with registers inside in the netlist: an operand before the clock, if it has a register and
    #: if only the product has one, and what comes out of its last register.
    operand_setup: float = 0.0
    product_setup: float = 0.0
    product_output: float = 0.0
    #: Of a slice's adder after its multiplier: from what is added to the sum, or to the clock, and a sum after it
    #: where only the product has a register.
    addend: float = 0.0
    addend_setup: float = 0.0
    addend_output: float = 0.0

    def wire(self, loads: int) -> float:
        """Of a net with ``loads`` loads, at least one."""
        return self.net + self.net_doubling * math.log2(loads)
