"""The register map: one table that the register file, the runner, the driver header and the documents read.

32-bit registers on AXI4-Lite; addresses in bytes. Reserved addresses read as zero. While BUSY the regions cannot be
written.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from .axi import LITE_ADDRESS_BITS
from .stochastic import LENGTH_BITS, MIN_LENGTH_LOG

__all__ = [
    "BASE_ALIGNMENT", "COUNTERS", "COUNTER_BITS", "Control", "ENGINE_STATES", "LANES", "LIMITS_PAGE",
    "LIMIT_REGISTERS", "MAGIC", "REGION_BITS", "REGISTERS", "Register", "STATE_BITS", "STATE_CODES", "Status",
    "VERSION", "address_of", "counters_of", "port_bits", "registers_of", "settings_of",
]

#: Of `cores.config.NpuConfig`, the fields that multiply to a machine's MACs: the bytes of a register, lowest first.
LANES = ("oc_lanes", "ic_lanes", "nnz_lanes", "pixel_lanes")

#: ID register: "NPUG".
MAGIC = 0x4E505547
VERSION = 6


class Control(enum.IntFlag):
    """START begins a program; ABORT stops the machine once its bus transfers have ended; CLEAR drops DONE and ERROR.

    START does nothing while BUSY, and CLEAR leaves BUSY as it is.
    """

    START = 1
    ABORT = 2
    CLEAR = 4


class Status(enum.IntFlag):
    BUSY = 1
    DONE = 2
    ERROR = 4


#: Programs and data regions begin at multiples of this many bytes.
BASE_ALIGNMENT = 4096

#: Bits of a number of beats of the data region.
REGION_BITS = 32

#: States of the engines, in the order of their codes on the trace ports. ``busy``: the engine moves data or computes
#: this cycle; ``wait_X``: it holds an instruction and lacks X; ``setup``: it prepares the next loop.
ENGINE_STATES: Mapping[str, tuple[str, ...]] = {
    "load": ("idle", "busy", "setup", "wait_compute", "wait_store", "wait_ring", "wait_bus"),
    "compute": ("idle", "busy", "setup", "wait_load", "wait_store", "wait_weights"),
    "store": ("idle", "busy", "setup", "wait_compute", "wait_side", "wait_bus"),
}

STATE_CODES: Mapping[str, Mapping[str, int]] = {
    engine: {state: code for code, state in enumerate(states)} for engine, states in ENGINE_STATES.items()
}
#: Bits of a state's code on the trace ports.
STATE_BITS = 4

#: Counters, cleared by START: cycles in each state of each engine but idle, and a few totals.
COUNTERS: tuple[str, ...] = (
    "cycles",               # start to done
    "instructions",         # dispatched (a count)
    "fetch_wait_queue",     # cycles in which the next instruction's queue is full
    "read_beats",           # a count
    "write_beats",          # a count
    *(f"{engine}_{state}" for engine, states in ENGINE_STATES.items() for state in states[1:]),
)


@dataclass(frozen=True)
class Register:
    """``feature``: the field of `NpuConfig` without which a machine does not have it, ``unless`` that with which it
    does not. ``engine``: whose setting it is;
    a port of its name, of ``bits``, that stands still during a run.
    """

    name: str
    address: int
    writable: bool
    text: str
    feature: str = ""
    unless: str = ""
    engine: str = ""
    bits: int = 32


_FIXED = (
    Register("id", 0x00, False, "NPUG"),
    Register("version", 0x04, False, "register map and instruction set"),
    Register("config", 0x08, False, "fingerprint of the configuration; a program runs only where it matches"),
    Register("lanes", 0x0C, False, f"{', '.join(LANES)}, a byte each from the low end"),
    Register("control", 0x10, True, "see Control; reads as zero"),
    Register("status", 0x14, False, "see Status"),
    Register("error_code", 0x18, False, "see ErrorCode; held until the next START or CLEAR"),
    Register("error_index", 0x1C, False, "index of the instruction that failed"),
    Register("program_low", 0x20, True, f"bus address of the program, a multiple of {BASE_ALIGNMENT}"),
    Register("program_high", 0x24, True, ""),
    Register("program_length", 0x28, True, "instructions, fewer than 2^24"),
    Register("data_low", 0x30, True, f"bus address of the data region, a multiple of {BASE_ALIGNMENT}"),
    Register("data_high", 0x34, True, ""),
    Register("data_beats", 0x38, True, "beats of the data region; loads must stay inside"),
    Register("write_start", 0x3C, True, "first beat of the data region that stores may write"),
    Register("timeout", 0x40, True, "cycles without progress until TIMEOUT; 0 never; resets to 1,048,576"),
    Register("irq_enable", 0x44, True, "bit 0: raise irq while DONE or ERROR"),
    Register("limit_address_low", 0x4C, False, "bus address of the burst that the limits have held back (FETCH_LIMIT, "
             "LOAD_LIMIT, STORE_LIMIT); until the next START", "limits"),
    Register("limit_address_high", 0x50, False, "", "limits"),
    Register("stream_shift", 0x48, True, "streams are shorter by so many powers of two than COMPUTEs say, down to "
             f"{1 << MIN_LENGTH_LOG} bits", "stochastic_rows", engine="compute", bits=LENGTH_BITS),
)

#: Bits of a counter: 32 would be full after 13 seconds at 333 MHz. In two registers: reading the low half holds the
#: high one until it is read.
COUNTER_BITS = 64
_COUNTER_BASE = 0x80

#: Limits have a page of their own, so that a system can keep it from who has the other registers.
LIMITS_PAGE = 1 << LITE_ADDRESS_BITS
_LIMITS = (
    Register("limit_lock", LIMITS_PAGE, True, "bit 0: the limits are locked; while they are not, no memory is reached; "
             "a write while BUSY does nothing", "limits"),
    Register("limit_first_low", LIMITS_PAGE + 0x08, True, "bus address of the first byte that may be reached, a "
             f"multiple of {BASE_ALIGNMENT}; stands still while locked", "limits"),
    Register("limit_first_high", LIMITS_PAGE + 0x0C, True, "", "limits"),
    Register("limit_last_low", LIMITS_PAGE + 0x10, True, "bus address of the last byte that may be reached, the last "
             f"of {BASE_ALIGNMENT}; stands still while locked", "limits"),
    Register("limit_last_high", LIMITS_PAGE + 0x14, True, "", "limits"),
)
#: Names of the registers of that page.
LIMIT_REGISTERS = tuple(register.name for register in _LIMITS)

REGISTERS: tuple[Register, ...] = _FIXED + _LIMITS + tuple(
    Register(f"counter_{name}_{half}", _COUNTER_BASE + 8 * index + 4 * (half == "high"), False,
             "" if half == "low" else "as it was when the low half was read",
             unless="" if name == "cycles" else "cycles_only")
    for index, name in enumerate(COUNTERS) for half in ("low", "high")
)


def registers_of(config: object) -> tuple[Register, ...]:
    """The registers that a machine of this `NpuConfig` has."""
    return tuple(register for register in REGISTERS
                 if (not register.feature or getattr(config, register.feature))
                 and not (register.unless and getattr(config, register.unless)))


def counters_of(config: object) -> tuple[str, ...]:
    """Those of `COUNTERS` that a machine of this `NpuConfig` has, in order."""
    names = {register.name for register in registers_of(config)}
    return tuple(name for name in COUNTERS if f"counter_{name}_low" in names)


def port_bits(config: object) -> int:
    """Bits of an address of the register port of a machine of this `NpuConfig`."""
    return max(LITE_ADDRESS_BITS, *(register.address.bit_length() for register in registers_of(config)))


def settings_of(engine: str, config: object) -> tuple[Register, ...]:
    """The settings of an engine that a machine of this `NpuConfig` has."""
    return tuple(register for register in registers_of(config) if register.engine and register.engine == engine)


def address_of(name: str) -> int:
    """Byte address of a register. Raises KeyError for an unknown name."""
    for register in REGISTERS:
        if register.name == name:
            return register.address
    raise KeyError(name)
