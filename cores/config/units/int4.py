"""Weights of four bits: half the beats of a step's weights."""

from collections.abc import Iterator
from dataclasses import dataclass

from cores.arch.isa import StepKind
from cores.config.core import Core
from cores.config.units.base import Unit

__all__ = ["INT4_BITS", "UNIT", "Int4Settings"]

#: Of a weight in memory and in the weight ring.
INT4_BITS = 4


@dataclass(frozen=True, kw_only=True)
class Int4Settings(Core):

    #: 1: steps can have weights of four bits, -8..7, which are expanded after the weight ring.
    int4: int = 0

    def beats_by_kind(self) -> Iterator[tuple[StepKind, int]]:
        yield from super().beats_by_kind()
        if self.int4:
            yield StepKind.INT4, self.weight_beats // 2
            yield StepKind.INT4_INDEXED, self.weight_beats // 2 + self.index_beats

    def check(self) -> None:
        super().check()
        self.require_switch("int4")
        self.require("int4", not self.int4 or self.weight_bits == 2 * INT4_BITS,
                     f"be 0 where weights have {self.weight_bits} bits, as with winograd=2")
        self.require("int4", not self.int4 or self.weight_beats % 2 == 0,
                     "be 0 where the weights of a step are a single beat")
        # Those of a step that has none are made beside its weights, a beat in a cycle.
        self.require("int4", not self.int4 or 2 * self.index_beats <= self.weight_beats,
                     f"be 0 with select_fanin={self.select_fanin}, whose indices take more beats than four-bit weights")


UNIT = Unit(
    name="int4",
    settings=Int4Settings,
    fields=("int4",),
    switch=True,
    area={"compute": lambda c: (c.int4 * c.beat_bits,)},
    in_all=False,
)
