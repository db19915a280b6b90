"""Back ends of the driver that simulate a device: the Verilog, and the instruction-level simulator."""

from .functional import FunctionalBackend, Mishap
from .rtl import RtlBackend

__all__ = ["FunctionalBackend", "Mishap", "RtlBackend"]
