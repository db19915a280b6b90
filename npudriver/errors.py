"""What can go wrong with a device; each message is one line for the user."""

from __future__ import annotations

__all__ = [
    "AbortedError", "DeviceError", "DriverError", "FaultError", "OutOfMemoryError", "PackageError", "TransportError",
    "WaitTimeoutError",
]


class DriverError(Exception):
    """The base of all; the message says what happened and, where something can be done, what."""


class DeviceError(DriverError):
    """The device is not the one that is wanted, or is not in a state for what is asked of it."""


class TransportError(DriverError):
    """The way to the device: a file, a connection, a library that is missing, or that has failed."""


class OutOfMemoryError(DriverError):
    """The memory that the device reaches has no room for a buffer."""


class PackageError(DriverError):
    """A deployed program that is damaged, or is for another machine; or an input that does not fit it."""


class WaitTimeoutError(DriverError):
    """A job has not ended in time. It goes on: wait again, or abort it."""


class AbortedError(DriverError):
    """A job that was aborted, or was waiting when the device was reset. Its results are lost, its inputs are not."""


class FaultError(DriverError):
    """The machine stopped at an instruction.

    ``code`` and ``index``: as in its registers; ``name``: of the code; ``layer``: of the instruction, "" where none is
    known.
    """

    def __init__(self, message: str, *, code: int, name: str, index: int, layer: str = "") -> None:
        self.code, self.name, self.index, self.layer = code, name, index, layer
        super().__init__(message)
