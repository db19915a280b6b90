"""A program in the device's memory."""

from __future__ import annotations

from collections import deque
from itertools import accumulate
from typing import Any, Iterable, Iterator, Mapping, Sequence

import numpy as np

from .backend import PartBuffer
from .errors import AbortedError, DeviceError, FaultError, OutOfMemoryError, PackageError, WaitTimeoutError
from .inference import Inference, Queue, Slot
from .program import DeployedProgram, Port
from .registers import Job

__all__ = ["ResidentProgram"]


class ResidentProgram:
    """What `Device.load` gives: the code, and a data region for each of its slots.

    With two slots or more the inputs of the next inferences are loaded while one runs. Each slot has a copy of the
    constants, as all addresses of a program are relative to its data region.
    """

    def __init__(self, device: Queue, program: DeployedProgram, slots: int) -> None:
        if slots < 1:
            raise ValueError(f"slots must be 1 or more, not {slots}")
        machine = device.machine
        if program.digest != machine.fingerprint["config"]:
            raise PackageError(f"program {program.name} was compiled for another machine; compile it again",
                               code="other-machine")
        program.require_sense(machine)
        program.require_steps(machine)
        self.device, self.program = device, program
        self._closed = False
        self._buffers: list[Any] = []
        #: First and last byte of its memory, which is in one piece where the machine has limits; else None.
        self.region: tuple[int, int] | None = None
        try:
            # Fetch reads whole beats.
            code = np.frombuffer(program.code.ljust(-(-len(program.code) // machine.beat_bytes) * machine.beat_bytes,
                                                    b"\0"), np.uint8)
            self.code, *regions = self._allocated([code.size, *[program.data_beats * machine.beat_bytes] * slots])
            self.code.write(0, code)
            self.slots = [Slot(region) for region in regions]
            for slot in self.slots:
                slot.region.write(0, np.frombuffer(program.constants, np.uint8))
        except BaseException:
            self._free()
            raise
        #: The one to be used next comes first.
        self._turns = deque(self.slots)

    def _allocated(self, sizes: Sequence[int]) -> list[Any]:
        """Memory of these sizes. Limits go around one piece that is the program's alone, in whole pages."""
        if "limit_lock" not in self.device.machine.registers:
            return [self._piece(size) for size in sizes]
        alignment = self.device.machine.alignment
        ends = list(accumulate(-(-size // alignment) * alignment for size in sizes))
        whole = self._piece(ends[-1])
        self.region = whole.address, whole.address + whole.size - 1
        return [PartBuffer(whole, first, size) for first, size in zip([0, *ends], sizes)]

    def _piece(self, size: int) -> Any:
        buffer = self.device.backend.allocate(size, self.device.machine.alignment)
        self._buffers.append(buffer)
        bits = self.device.machine.address_bits
        if (buffer.address + size - 1) >> bits:
            raise OutOfMemoryError(f"memory at {buffer.address:#x} is out of the machine's reach, whose bus has {bits} "
                                   "address bits; reserve lower memory")
        return buffer

    def _free(self) -> None:
        while self._buffers:
            self._buffers.pop().free()

    @property
    def inputs(self) -> dict[str, Port]:
        return {port.name: port for port in self.program.inputs}

    @property
    def outputs(self) -> dict[str, Port]:
        return {port.name: port for port in self.program.outputs}

    def __enter__(self) -> ResidentProgram:
        return self

    def __exit__(self, *exception: object) -> None:
        self.unload()

    def unload(self) -> None:
        """Give its memory back; what of it is under way is aborted, results that are there are kept.

        Once more is no error. Raises DeviceError, and keeps the memory, when the device does not stop; after a reset
        it is given back once this is called again.
        """
        self._closed = True
        if self._buffers:
            self.device.forget(self)
            for slot in self.slots:
                if slot.inference is not None:
                    slot.inference.keep()
                    slot.inference = None
            self._free()

    # -- running -------------------------------------------------------------------------------------------------

    def submit(self, inputs: Mapping[str, np.ndarray]) -> Inference:
        """Load one sample, a value for each input without the axis of samples, and start it or put it in the queue.

        Waits where all slots are under way. Raises PackageError for inputs that do not fit, and as `Inference.wait`
        with the errors of the device; an inference's own error waits for its `result`.
        """
        missing = [name for name in self.inputs if name not in inputs]
        unknown = [name for name in inputs if name not in self.inputs]
        if missing or unknown:
            what = f"input {missing[0]!r} is missing" if missing else f"there is no input {unknown[0]!r}"
            raise PackageError(f"program {self.program.name}: {what}; its inputs are {', '.join(self.inputs)}",
                               code="bad-input")
        beat = self.device.machine.beat_bytes
        # Before the slot is waited for: this is the work that goes on while the device is at another.
        packed = {name: port.encode(inputs[name], beat) for name, port in self.inputs.items()}
        return self.submit_packed({self.inputs[name].offset: data for name, data in packed.items()})

    def submit_packed(self, regions: Mapping[int, np.ndarray]) -> Inference:
        """As `submit`, of bytes (uint8) that go to beats of the data region as they are."""
        if self._closed:
            raise DeviceError(f"program {self.program.name} has been unloaded", code="slot-lost")
        slot = self._free_slot()
        beat = self.device.machine.beat_bytes
        for offset, data in regions.items():
            slot.region.write(offset * beat, data)
        slot.inference = Inference(self, slot, self.device.stream_shift)
        self.device.enqueue(slot.inference)
        return slot.inference

    def _free_slot(self) -> Slot:
        """One whose results have been fetched, else the one that has waited longest, once it has ended."""
        slot = next((slot for slot in self._turns if slot.inference is None or slot.inference.fetched), self._turns[0])
        if slot.inference is not None:
            self.device.wait(slot.inference, None)
            slot.inference.keep()
        self._turns.remove(slot)
        self._turns.append(slot)
        return slot

    def run(self, inputs: Mapping[str, np.ndarray], *, timeout: float | None = None,
            retries: int = 0) -> dict[str, np.ndarray]:
        """One inference from beginning to end; see `Inference.result`. ``retries``: as of `stream`."""
        return next(self.stream([inputs], timeout=timeout, retries=retries))

    def stream(self, samples: Iterable[Mapping[str, np.ndarray]], *, timeout: float | None = None,
               retries: int = 0) -> Iterator[dict[str, np.ndarray]]:
        """The outputs of sample after sample, in order; inputs are loaded while the device is at samples before.

        A sample fails by a bus error, a machine that gives up, or a wait that takes too long. It is tried again as
        often as is asked for, each time after the device has been brought to rest; then its error is raised. Raises as
        `Inference.result`.
        """
        if retries < 0:
            raise ValueError(f"retries must be 0 or more, not {retries}")
        under_way: deque[tuple[Inference, Mapping[str, np.ndarray]]] = deque()
        try:
            for inputs in samples:
                if len(under_way) == len(self.slots):
                    yield self.settle(*under_way.popleft(), timeout, retries)
                under_way.append((self.submit(inputs), inputs))
            while under_way:
                yield self.settle(*under_way.popleft(), timeout, retries)
        finally:
            for inference, _ in under_way:
                inference.abort()

    def settle(self, inference: Inference, inputs: Mapping[str, np.ndarray], timeout: float | None,
               retries: int) -> dict[str, np.ndarray]:
        """The result of an inference of these inputs, which is tried again as `stream` says."""
        while True:
            try:
                return inference.result(timeout)
            except (FaultError, WaitTimeoutError, AbortedError, DeviceError):
                if not retries:
                    raise
                retries -= 1
                self.device.recover(inference)
                inference = self.submit(inputs)

    # -- what inferences ask -------------------------------------------------------------------------------------

    def read_outputs(self, slot: Slot) -> dict[str, np.ndarray]:
        """The outputs that are in a slot."""
        beat = self.device.machine.beat_bytes
        return {name: port.decode(slot.region.read(port.offset * beat, port.beats(beat) * beat), beat)
                for name, port in self.outputs.items()}

    def job(self, slot: Slot) -> Job:
        program = self.program
        return Job(self.code.address, len(program.code) // self.device.machine.instruction_bytes, slot.region.address,
                   program.data_beats, program.write_start, self.device.progress_cycles, region=self.region)
