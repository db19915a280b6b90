"""Inputs and outputs of a component in a cocotb bench."""

from typing import Any

from cores.arch.error_codes import ErrorCode
from cores.bus.axi import ErrorReport

__all__ = ["Pins", "reported", "value_of"]


def value_of(signal: Any) -> int:
    """``int(signal.value)`` in a third of the time: without cocotb's objects of single bits.

    Raises ValueError where a bit is X or Z.
    """
    return int(signal._handle.get_signal_val_binstr(), 2)


def reported(bits: int) -> tuple[ErrorCode, int] | None:
    """Code and index of an `ErrorReport`; none in most cycles, and taking a layout apart takes longer than a cycle."""
    if not bits & 1:    # valid
        return None
    report = ErrorReport.from_bits(bits)
    return ErrorCode(report.code), report.index


class Pins:
    """Of ``dut``; ``driven``: port -> value that it was set to."""

    dut: Any
    driven: dict[str, int]

    def drive(self, port: str, value: int) -> None:
        """Set an input. Only changes are passed on: crossing over to the simulator takes most of a bench's time."""
        if self.driven.get(port) != value:
            self.driven[port] = value
            getattr(self.dut, port).value = value

    def sample(self, port: str) -> int:
        return value_of(getattr(self.dut, port))
