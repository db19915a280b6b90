"""What the parts of the unit share."""

from amaranth.hdl import Shape
from amaranth.lib import data

from cores.arch.axi import BOUNDARY_BYTES
from cores.arch.error_codes import ErrorCode
from cores.arch.instruction_layout import INDEX_BITS
from cores.config import NpuConfig

__all__ = ["PAGE_SHIFT", "limits_layout", "refusal_layout"]

#: Bits of an address within a page. No burst crosses one: it is inside or outside of limits that are pages.
PAGE_SHIFT = (BOUNDARY_BYTES - 1).bit_length()


def limits_layout(config: NpuConfig) -> data.StructLayout:
    """Pages ``first`` to ``last`` can be reached while ``locked``, and none otherwise."""
    bits = config.address_width - PAGE_SHIFT
    return data.StructLayout({"first": bits, "last": bits, "locked": 1})


def refusal_layout(config: NpuConfig) -> data.StructLayout:
    """A burst that is held back, with its ``address``: while ``valid``, until a reset."""
    return data.StructLayout({
        "valid": 1, "code": Shape.cast(ErrorCode), "index": INDEX_BITS, "address": config.address_width,
    })
