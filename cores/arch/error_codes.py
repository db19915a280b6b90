"""Why a machine stops: codes in its registers, and what each means."""

import enum
from collections.abc import Mapping

__all__ = ["ERROR_CODES", "ERROR_TEXTS", "ErrorCode", "LimitCode", "error_code"]


class ErrorCode(enum.IntEnum):
    """Why the machine stopped; readable in the register file beside the instruction's index."""

    NONE = 0
    ILLEGAL = 1
    READ_RANGE = 2
    WRITE_RANGE = 3
    READ_SLVERR = 4
    READ_DECERR = 5
    WRITE_SLVERR = 6
    WRITE_DECERR = 7
    BUFFER = 8
    NO_END = 9
    TIMEOUT = 10
    TOKEN = 11


class LimitCode(enum.IntEnum):
    """What a machine with limits has beside `ErrorCode`, of which its name begins with the engine. An enumeration of
    their own: the names of `ErrorCode` are in the Verilog of every machine.
    """

    FETCH_LIMIT = 12
    LOAD_LIMIT = 13
    STORE_LIMIT = 14


ERROR_CODES: tuple[ErrorCode | LimitCode, ...] = (*ErrorCode, *LimitCode)


def error_code(value: int) -> ErrorCode | LimitCode:
    """Raises KeyError for a number that no machine has."""
    return {code.value: code for code in ERROR_CODES}[value]


#: What each code means, for whoever reads a register map or an error of the driver.
ERROR_TEXTS: Mapping[ErrorCode | LimitCode, str] = {
    ErrorCode.NONE: "no error",
    ErrorCode.ILLEGAL: "unknown opcode, reserved bit set, zero count, foreign token flag, or geometry never set",
    ErrorCode.READ_RANGE: "a load outside the data region",
    ErrorCode.WRITE_RANGE: "a store outside the writable part of the data region",
    ErrorCode.READ_SLVERR: "the memory answered a read with an error",
    ErrorCode.READ_DECERR: "nothing on the bus answers at the address of a read",
    ErrorCode.WRITE_SLVERR: "the memory answered a write with an error",
    ErrorCode.WRITE_DECERR: "nothing on the bus answers at the address of a write",
    ErrorCode.BUFFER: "an input-buffer or accumulator address out of bounds",
    ErrorCode.NO_END: "the program's length was reached without END",
    ErrorCode.TIMEOUT: "no progress for so many cycles as the timeout register has: a missing token, a starved ring "
                       "or a silent bus",
    ErrorCode.TOKEN: "a token counter overflowed",
    LimitCode.FETCH_LIMIT: "the program lies outside of the limits, or these are not locked",
    LimitCode.LOAD_LIMIT: "a load outside of the limits",
    LimitCode.STORE_LIMIT: "a store outside of the limits",
}
