"""The generated Verilog in Verilator: memory model, register driver, trace."""

from .build import build_library
from .driver import Driver, DriverError, Transport
from .machine import Bus, BusFault, ProtocolError, RtlMachine, Trace
from .run import RtlResult, run_program

__all__ = [
    "Bus", "BusFault", "Driver", "DriverError", "ProtocolError", "RtlMachine", "RtlResult", "Trace", "Transport",
    "build_library", "run_program",
]
