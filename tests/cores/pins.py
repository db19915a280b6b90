"""Inputs and outputs of a component in a cocotb bench."""

from typing import Any

__all__ = ["Pins"]


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
        return int(getattr(self.dut, port).value)
