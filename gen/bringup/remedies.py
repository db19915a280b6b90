"""What would help where a machine has stopped, error by error."""

from collections.abc import Mapping

from cores.arch.error_codes import ErrorCode, LimitCode

__all__ = ["REMEDIES"]

_OWN = ("a program of the compiler does not do this: compare the bytes in memory with code.bin, and the bitstream with "
        "the package")
_BUS = "compare the regions' addresses with the board's memory map, and look at the interconnect after the memory port"

REMEDIES: Mapping[ErrorCode | LimitCode, str] = {
    ErrorCode.ILLEGAL: "the machine has read other bytes than the compiler wrote: a cache that is not written back, "
                       "swapped bytes, or a program of another machine; `npudriver doctor` tells these apart",
    ErrorCode.READ_RANGE: _OWN,
    ErrorCode.WRITE_RANGE: _OWN,
    ErrorCode.READ_SLVERR: _BUS,
    ErrorCode.READ_DECERR: _BUS,
    ErrorCode.WRITE_SLVERR: _BUS,
    ErrorCode.WRITE_DECERR: _BUS,
    ErrorCode.BUFFER: _OWN,
    ErrorCode.NO_END: "compare program_length with the program's, and the bytes in memory with code.bin",
    ErrorCode.TIMEOUT: "see below which engine waited, and for what; the timeout register may be too small for a slow "
                       "memory",
    ErrorCode.TOKEN: _OWN,
    LimitCode.FETCH_LIMIT: "lock the limits around the program, as the driver does, or let who has locked them do so",
    LimitCode.LOAD_LIMIT: "lock the limits around the data region; limit_address has what was asked for",
    LimitCode.STORE_LIMIT: "lock the limits around the data region; limit_address has what was asked for",
}
