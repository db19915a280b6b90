"""One inference under way."""

from __future__ import annotations

from typing import Mapping, Protocol

import numpy as np

from .backend import Backend, Buffer
from .errors import DriverError
from .machine import Machine
from .program import DeployedProgram
from .registers import Job

__all__ = ["Inference", "Owner", "Queue", "Slot"]


class Slot:
    """A data region of a resident program: constants, an inference's inputs, its results.

    ``inference``: the last that was given it; its results are there until another is.
    """

    def __init__(self, region: Buffer) -> None:
        self.region = region
        self.inference: Inference | None = None


class Queue(Protocol):
    """What runs inferences one after the other: `npudriver.device.Device`."""

    backend: Backend
    machine: Machine
    progress_cycles: int | None
    stream_shift: int

    def enqueue(self, inference: Inference) -> None: ...

    def poll(self) -> None: ...

    def wait(self, inference: Inference, timeout: float | None) -> None: ...

    def abort(self, inference: Inference) -> None: ...

    def recover(self, inference: Inference) -> None: ...

    def forget(self, program: Owner) -> None: ...


class Owner(Protocol):
    """Whose inference it is: `npudriver.resident.ResidentProgram`."""

    device: Queue
    program: DeployedProgram
    region: tuple[int, int] | None

    def job(self, slot: Slot) -> Job: ...

    def read_outputs(self, slot: Slot) -> dict[str, np.ndarray]: ...


class Inference:
    """What `ResidentProgram.submit` gives: a promise of the outputs.

    ``cycles`` and ``counters`` (all of them where the device was opened with ``profile``) are there once it has ended.
    """

    def __init__(self, program: Owner, slot: Slot, stream_shift: int = 0) -> None:
        self.program, self.slot, self.stream_shift = program, slot, stream_shift
        self.cycles: int | None = None
        self.counters: Mapping[str, int] = {}
        #: Whether it has ended, in whatever way.
        self.ended = False
        self.error: DriverError | None = None
        self._outputs: dict[str, np.ndarray] | None = None

    @property
    def done(self) -> bool:
        """Whether it has ended, without waiting. Raises TransportError."""
        if not self.ended:
            self.program.device.poll()
        return self.ended

    def result(self, timeout: float | None = None) -> dict[str, np.ndarray]:
        """The outputs by name, as the model gives them for one sample.

        Waits ``timeout`` seconds, or the device's number of them; the time begins anew with each inference that was
        started before this one and ends.

        Raises WaitTimeoutError (it goes on), FaultError when the machine has stopped at an instruction, AbortedError,
        DeviceError, TransportError.
        """
        self.wait(timeout)
        return dict(self._fetched())

    def wait(self, timeout: float | None = None) -> None:
        """As `result`, without reading anything back."""
        self.program.device.wait(self, timeout)
        if self.error is not None:
            raise self.error

    def region(self) -> np.ndarray:
        """The whole data region as it was left, uint8; before the slot's next `submit`. Raises as `result`."""
        self.wait()
        if self.slot.inference is not self:
            raise DriverError("the slot of this inference has been given to another, or its program was unloaded",
                              code="slot-lost")
        return self.slot.region.read(0, self.slot.region.size)

    def abort(self) -> None:
        """Stop it, or take it out of the queue. Nothing happens where it has ended."""
        self.program.device.abort(self)

    def end(self, error: DriverError | None = None) -> None:
        """The device says so."""
        self.ended, self.error = True, error

    @property
    def fetched(self) -> bool:
        """Whether nobody needs what is in its slot any more."""
        return self.ended and (self.error is not None or self._outputs is not None)

    def keep(self) -> None:
        """Take the results out of the slot, which is needed for another."""
        if self.ended and self.error is None:
            self._fetched()

    def _fetched(self) -> dict[str, np.ndarray]:
        if self._outputs is None:
            self._outputs = self.program.read_outputs(self.slot)
        return self._outputs
