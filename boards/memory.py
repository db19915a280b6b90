"""The memory that a board's accelerator works on, as its data sheets and those who measured it describe it."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

__all__ = ["Basis", "MemoryPort"]

#: How a figure is known. ``measured``: on the board, by those named beside it; ``published``: by the maker of the
#: device; ``assumed``: of a like system, for want of either.
Basis = Literal["measured", "published", "assumed"]


@dataclass(frozen=True, kw_only=True)
class MemoryPort:
    """External memory at the NPU's AXI port. Times are in nanoseconds, rates in bytes a second.

    There are two ways to reckon with it, not to be mixed. ``sustained`` is what is left of the data rate for long
    bursts, all losses in it. A model that counts lost time itself begins with ``peak`` and takes off refreshes, rows
    that are opened and turns of the data bus.

    Raises ValueError for figures that cannot be.
    """

    #: What is soldered on, such as ``2 GB LPDDR4``.
    device: str
    #: Transfers a second on each data pin.
    transfers: float
    #: Data pins.
    width_bits: int
    #: Share of the peak rate that a master with long bursts gets, all losses in it.
    efficiency: float
    efficiency_basis: Basis
    #: From an address taken at the port to the first beat of its data, nothing else under way.
    read_latency_ns: float
    latency_basis: Basis
    #: Whether reads and writes take turns on the data pins, as in every DRAM. Without, each has the whole rate.
    shared: bool = True
    #: From one refresh to the next (tREFI), and how long the memory does nothing else (tRFC).
    refresh_interval_ns: float
    refresh_ns: float
    #: Bytes of a row over all data pins; what lies in one needs no other to be opened. Banks have one open row each.
    row_bytes: int
    banks: int
    #: To close a row and open another of the same bank (tRP + tRCD).
    row_miss_ns: float
    #: Between written data and the next read (tWTR).
    write_to_read_ns: float

    def __post_init__(self) -> None:
        for name in ("efficiency_basis", "latency_basis"):
            if getattr(self, name) not in get_args(Basis):
                raise ValueError(f"{name} must be one of {', '.join(get_args(Basis))}, not {getattr(self, name)!r}")
        for name in ("transfers", "width_bits", "read_latency_ns", "refresh_interval_ns", "row_bytes", "banks"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)!r}")
        for name in ("refresh_ns", "row_miss_ns", "write_to_read_ns"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, not {getattr(self, name)!r}")
        if not 0 < self.efficiency <= 1:
            raise ValueError(f"efficiency must be in 0..1, not {self.efficiency!r}")
        if not self.refresh_ns < self.refresh_interval_ns:
            raise ValueError(f"refresh_ns must be less than refresh_interval_ns, not {self.refresh_ns!r}")

    @property
    def peak(self) -> float:
        """Bytes a second on the data pins, nothing lost."""
        return self.transfers * self.width_bits / 8

    @property
    def sustained(self) -> float:
        """Bytes a second that a master with long bursts gets; reads and writes together if they share the pins."""
        return self.peak * self.efficiency

    def latency_cycles(self, clock_mhz: float) -> int:
        """Of a read, in cycles of the NPU's clock, at least one."""
        return max(1, round(self.read_latency_ns * clock_mhz / 1000))

    def beats_per_cycle(self, beat_bytes: int, clock_mhz: float) -> float:
        """Sustained rate in beats of ``beat_bytes`` a cycle of the NPU's clock; its port takes one at most."""
        return self.sustained / (beat_bytes * clock_mhz * 1e6)

    def to_dict(self) -> dict[str, Any]:
        """All figures, and the rates that follow from them."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**fields, "peak": self.peak, "sustained": self.sustained}
