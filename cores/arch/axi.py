"""Numbers of the buses."""

import enum

__all__ = ["BOUNDARY_BYTES", "LENGTH_BITS", "LITE_ADDRESS_BITS", "MAX_BURST", "AxiResponse"]

#: Beats of the longest AXI4 INCR burst, bits of its AxLEN (beats - 1), and the boundary that no burst may cross.
MAX_BURST = 256
LENGTH_BITS = (MAX_BURST - 1).bit_length()
BOUNDARY_BYTES = 4096

#: Address bits of the register file, without pages that optional units have.
LITE_ADDRESS_BITS = 12


class AxiResponse(enum.IntEnum):
    """xRESP of AXI. EXOKAY cannot answer our accesses and counts as success."""

    OKAY = 0
    EXOKAY = 1
    SLVERR = 2
    DECERR = 3
