"""Bus signatures and the layouts that the memory engines share with their users."""

from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..arch.axi import LENGTH_BITS, LITE_ADDRESS_BITS, AxiResponse
from ..arch.error_codes import ErrorCode
from ..arch.instruction_layout import INDEX_BITS, field_shape
from ..arch.isa import Opcode
from ..config import NpuConfig

__all__ = [
    "Axi4Read", "Axi4Write", "AxiLite", "ErrorReport", "memory_attributes", "read_data_layout", "read_request_layout",
    "write_run_layout",
]

#: A pulse that stops the machine: what went wrong (`ErrorCode`) and in which instruction.
ErrorReport = data.StructLayout({"valid": 1, "code": ErrorCode, "index": INDEX_BITS})


def read_request_layout(config: NpuConfig) -> data.StructLayout:
    """One request to the read engine: ``length`` + 1 beats from byte ``address``, which is a multiple of a beat."""
    return data.StructLayout({"address": config.address_width, "length": LENGTH_BITS})


def read_data_layout(config: NpuConfig) -> data.StructLayout:
    """What answers a read request: a beat in each cycle with ``valid``; ``last`` marks the last beat of the request."""
    return data.StructLayout({"valid": 1, "data": config.beat_bits, "last": 1, "response": AxiResponse})


def write_run_layout(config: NpuConfig) -> data.StructLayout:
    """A run of contiguous beats to write at byte ``address`` for instruction ``index``.

    ``length`` is AXI's, one less than they are. ``last`` marks the instruction's last run; with ``post`` its completion
    is reported.
    """
    return data.StructLayout({
        "address": config.address_width, "length": field_shape(Opcode.STORE_SET, "cols"), "last": 1, "post": 1,
        "index": INDEX_BITS,
    })


class Axi4Read(wiring.Signature):
    """The read channels of an AXI4 master: full-width INCR bursts, one ID."""

    def __init__(self, *, address_width: int, data_bits: int):
        super().__init__({
            # Read addresses.
            "arid": Out(1), "araddr": Out(address_width), "arlen": Out(LENGTH_BITS), "arsize": Out(3),
            "arburst": Out(2), "arcache": Out(4), "arprot": Out(3), "arvalid": Out(1), "arready": In(1),
            # Read data.
            "rid": In(1), "rdata": In(data_bits), "rresp": In(2), "rlast": In(1), "rvalid": In(1), "rready": Out(1),
        })


class Axi4Write(wiring.Signature):
    """The write channels of an AXI4 master: full-width INCR bursts, one ID."""

    def __init__(self, *, address_width: int, data_bits: int):
        super().__init__({
            # Write addresses.
            "awid": Out(1), "awaddr": Out(address_width), "awlen": Out(LENGTH_BITS), "awsize": Out(3),
            "awburst": Out(2), "awcache": Out(4), "awprot": Out(3), "awvalid": Out(1), "awready": In(1),
            # Write data.
            "wdata": Out(data_bits), "wstrb": Out(data_bits // 8), "wlast": Out(1), "wvalid": Out(1), "wready": In(1),
            # Write responses.
            "bid": In(1), "bresp": In(2), "bvalid": In(1), "bready": Out(1),
        })


class AxiLite(wiring.Signature):
    """A 32-bit AXI4-Lite port seen from its master; a slave has it as In."""

    def __init__(self, *, address_width: int = LITE_ADDRESS_BITS):
        super().__init__({
            # Write addresses, data and responses.
            "awaddr": Out(address_width), "awprot": Out(3), "awvalid": Out(1), "awready": In(1),
            "wdata": Out(32), "wstrb": Out(4), "wvalid": Out(1), "wready": In(1),
            "bresp": In(2), "bvalid": In(1), "bready": Out(1),
            # Read addresses and data.
            "araddr": Out(address_width), "arprot": Out(3), "arvalid": Out(1), "arready": In(1),
            "rdata": In(32), "rresp": In(2), "rvalid": In(1), "rready": Out(1),
        })


def memory_attributes(prefix: str, config: NpuConfig) -> dict[str, int]:
    """The constant fields of an address channel (``prefix`` "ar" or "aw"): incrementing, full width, normal memory."""
    return {
        f"{prefix}id": 0,
        f"{prefix}size": (config.beat_bytes - 1).bit_length(),
        f"{prefix}burst": 1,      # INCR
        f"{prefix}cache": 0b0011,  # normal, non-cacheable, bufferable
        f"{prefix}prot": config.axi_prot,
    }
