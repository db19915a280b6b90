"""What can go wrong with a device; each message is one line for the user."""

from __future__ import annotations

from typing import Any, TypeVar

__all__ = [
    "AbortedError", "CodedError", "DeviceError", "DriverError", "FaultError", "OutOfMemoryError", "PackageError",
    "TransportError", "WaitTimeoutError", "fault_code",
]

_Error = TypeVar("_Error", bound="CodedError")


class CodedError(Exception):
    """The base of all exceptions of the project, not of the driver alone.

    ``code``: which mistake it is, by a name that stays while the message may change: docs/errors.md lists them. A class
    that stands for one mistake has its code as an attribute; others are given one. ``fields``: what the message is
    about, by name.
    """

    code = ""

    def __init__(self, message: str, *, code: str = "", **fields: object) -> None:
        super().__init__(message)
        self.code, self.fields = code or type(self).code, fields

    @classmethod
    def of(cls: type[_Error], error: Exception, message: str, **fields: Any) -> _Error:
        """What ``error`` says, in the words of whoever knows more: a code and fields stay, ``fields`` are added."""
        if isinstance(error, CodedError):
            return cls(message, code=error.code, **{**error.fields, **fields})
        return cls(message, **fields)


class DriverError(CodedError):
    """The base of all; the message says what happened and, where something can be done, what."""


class DeviceError(DriverError):
    """The device is not the one that is wanted, or is not in a state for what is asked of it."""


class TransportError(DriverError):
    """The way to the device: a file, a connection, a library that is missing, or that has failed."""

    code = "transport"


class OutOfMemoryError(DriverError):
    """The memory that the device reaches has no room for a buffer."""

    code = "device-memory"


class PackageError(DriverError):
    """A deployed program that is damaged, or is for another machine; or an input that does not fit it."""

    code = "damaged-package"


class WaitTimeoutError(DriverError):
    """A job has not ended in time. It goes on: wait again, or abort it."""

    code = "timeout"


class AbortedError(DriverError):
    """A job that was aborted, or was waiting when the device was reset. Its results are lost, its inputs are not."""

    code = "aborted"


class FaultError(DriverError):
    """The machine stopped at an instruction.

    ``number`` and ``index``: as in its registers; ``name``: of the number, as is the ``code``; ``layer``: of the
    instruction, "" where none is known.
    """

    def __init__(self, message: str, *, number: int, name: str, index: int, layer: str = "") -> None:
        self.number, self.name, self.index, self.layer = number, name, index, layer
        super().__init__(message, code=fault_code(name), number=number, index=index, layer=layer)


def fault_code(name: str) -> str:
    """The code of a machine's error that its registers call ``name``."""
    return f"machine-{name.lower().replace('_', '-')}"
