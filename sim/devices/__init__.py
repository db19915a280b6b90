"""Back ends of the driver that simulate a device: the Verilog, the instruction-level simulator, the time model."""

from .functional import FunctionalBackend, InjectedFault
from .paced import PacedBackend
from .rtl import RtlBackend

__all__ = ["FunctionalBackend", "InjectedFault", "PacedBackend", "RtlBackend"]
