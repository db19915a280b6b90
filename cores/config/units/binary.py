"""Binary layers: XNOR and popcount of signs, eight channels where the multiplier array has one."""

from collections.abc import Iterator
from dataclasses import dataclass

from cores.arch.isa import StepKind
from cores.arch.numerics import COUNT_SHIFT, SIGN_BLOCKS
from cores.config.units.base import Unit
from cores.config.units.gather import GatherSettings

__all__ = ["UNIT", "BinarySettings"]


@dataclass(frozen=True, kw_only=True)
class BinarySettings(GatherSettings):

    #: Output lanes of the binary unit, each with 8 * ic_lanes bits of each of ``pixel_lanes`` pixels; 0: no unit.
    #: ``oc_lanes * nnz_lanes / ic_lanes`` make eight times the MACs, ``oc_lanes`` populate it fully.
    binary_rows: int = 0
    #: 1: the binary unit is an engine of its own, with its own input buffer and accumulators, instead of a part of the
    #: compute engine. Binary and other COMPUTEs then cannot add to the same sums.
    binary_engine: int = 0

    @property
    def binary_bits(self) -> int:
        """Channels of a block of a binary COMPUTE, a bit each: they fill an entry of the input buffer."""
        return self.beat_bits

    @property
    def sign_bytes(self) -> int:
        """Bytes of the signs of a pixel of an int8 block."""
        return self.beat_bytes // SIGN_BLOCKS

    @property
    def binary_macs(self) -> int:
        """Products of bits that the binary unit makes in a cycle."""
        return self.binary_bits * self.binary_rows * self.pixel_lanes

    @property
    def sum_bits(self) -> int:
        counts = self.binary_bits.bit_length() + COUNT_SHIFT + 1 if self.binary_rows else 0
        return max(super().sum_bits, counts)

    @property
    def binary_groups(self) -> int:
        return self.unit_groups(StepKind.BINARY)

    def rows_by_kind(self) -> Iterator[tuple[StepKind, int]]:
        yield from super().rows_by_kind()
        yield StepKind.BINARY, self.binary_rows

    def check(self) -> None:
        super().check()
        rows = self.require_rows("binary_rows")
        self.require("gather", self.gather == 1 or not rows, "be 1 with binary_rows: maps of signs are gathered")
        self.require_switch("binary_engine")
        self.require("binary_engine", self.binary_engine == 0 or rows != 0, "be 0 without binary_rows")


UNIT = Unit(
    name="binary",
    settings=BinarySettings,
    fields=("binary_rows",),
    always_written=True,
    revision=1,
    needs=("gather",),
    # Eight binary lanes for each of the int8 lanes.
    standard=lambda c: {"binary_rows": c.oc_lanes * c.nnz_lanes // c.ic_lanes},
    area={
        "compute": lambda c: (c.binary_rows * c.binary_bits,),
        "store": lambda c: ((c.binary_rows > 0) * c.ic_lanes,),
    },
)
