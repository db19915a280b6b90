"""The generated Verilog in Verilator: memory model, register driver, trace."""

from .build import build_library
from .driver import Driver, DriverError, RegisterPort
from .machine import Bus, BusFault, ProtocolError, RtlMachine, Trace
from .run import RtlResult, run_program

__all__ = [
    "Bus", "BusFault", "Driver", "DriverError", "ProtocolError", "RegisterPort", "RtlMachine", "RtlResult", "Trace",
    "build_library", "run_program",
]
