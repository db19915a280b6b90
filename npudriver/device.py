"""A device: what is in its memory, and what it is at."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import replace

from .backend import Backend
from .errors import AbortedError, DeviceError, DriverError, FaultError, WaitTimeoutError
from .inference import Inference, Owner
from .machine import Machine
from .program import DeployedProgram, layer_of
from .registers import Registers
from .resident import ResidentProgram
from .settling import FIRST_PAUSE, LONGEST_PAUSE, settles

__all__ = ["Device"]

#: Seconds after which an interrupt that was lost is found out.
_INTERRUPT_SLICE = 0.25


class Device:
    """An NPU that a `Backend` reaches. Programs are loaded into its memory; their inferences run one after the other.

    ``timeout``: seconds that a wait takes at most where it is not told otherwise, in the device's own time (see
    `Backend.time`). ``progress_cycles``: cycles without progress until the machine gives up by itself; None keeps what
    it has. ``interrupt`` False polls where there is an interrupt. ``profile``: read all counters of every inference,
    not its cycles alone. One thread at a time. Use it as a context manager, or call `close`.

    Raises DeviceError when the device is not ``machine``.
    """

    def __init__(self, backend: Backend, machine: Machine, *, timeout: float = 10.0, progress_cycles: int | None = None,
                 interrupt: bool = True, profile: bool = False) -> None:
        self.backend, self.machine, self.timeout = backend, machine, timeout
        #: Of inferences that are submitted from now on: streams are shorter by so many powers of two than their program
        #: says, of a machine that has any.
        self.stream_shift = 0
        self.progress_cycles, self.profile = progress_cycles, profile
        self._interrupt = interrupt and backend.has_interrupt
        try:
            self.registers = Registers(backend, machine)
            self._programs: list[ResidentProgram] = []
            self._running: Inference | None = None
            self._queue: deque[Inference] = deque()
            self._pause = FIRST_PAUSE
            self._started = backend.time()      # of the running inference
            if self.registers.status() & self.registers.busy:   # whoever had it before us is gone
                self.registers.command("ABORT")
                if not self._settles():
                    self.reset()
            self.registers.command("CLEAR")
        except BaseException:
            backend.close()
            raise

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Abort what is under way and let go of the device. Once more is no error.

        A machine that does not stop is reset, where the way to it can, as its memory goes with the backend.
        """
        programs, self._programs = self._programs, []
        try:
            for program in programs:
                program.unload()
        except DriverError:
            with suppress(DriverError):
                self.backend.reset()
        finally:
            self.backend.close()

    def load(self, program: DeployedProgram, *, slots: int = 2) -> ResidentProgram:
        """Put a program into memory, beside those that are there. Raises PackageError, OutOfMemoryError."""
        resident = ResidentProgram(self, program, slots)
        self._programs.append(resident)
        return resident

    @property
    def busy(self) -> bool:
        """Whether an inference is under way or in the queue."""
        self.poll()
        return self._running is not None or bool(self._queue)

    def reset(self) -> None:
        """Reset the hardware. The inference that was running is aborted; programs stay, and the queue goes on.

        A way to the device that has no reset stops it with ABORT. Raises DeviceError where that does not help.
        """
        if not self.backend.reset():
            self.registers.command("ABORT")
            if not self._settles():
                raise DeviceError("the device does not stop, as its bus owes answers, and cannot be reset from here: "
                                  "load its bitstream again", code="device-stuck")
        self.registers.identify()
        self.registers.command("CLEAR")
        self._end(AbortedError("the device was reset"))
        self._advance()

    # -- what inferences and programs ask ------------------------------------------------------------------------

    def enqueue(self, inference: Inference) -> None:
        """Start an inference, or put it after those that wait."""
        self._queue.append(inference)
        self.poll()
        self._advance()

    def poll(self) -> None:
        """Look whether the running inference has ended; if so, start the next."""
        if self._running is None:
            return
        registers, status = self.registers, self.registers.status()
        if status & (registers.done | registers.error):
            self._collect(self._running)
        elif not status & registers.busy:
            self._end(AbortedError("the device stopped without a result: was it reset?"))
        else:
            return
        self._advance()

    def wait(self, inference: Inference, timeout: float | None) -> None:
        """Until an inference has ended. Raises WaitTimeoutError, DeviceError, TransportError.

        ``timeout`` counts anew for each inference that is started in front of it.
        """
        timeout = self.timeout if timeout is None else timeout
        called = self.backend.time()
        while not inference.ended:
            self.poll()
            if inference.ended:
                return
            left = max(called, self._started) + timeout - self.backend.time()
            if left <= 0:
                raise WaitTimeoutError(f"program {inference.program.program.name}: no result after {timeout:g} s; "
                                       "wait longer, or abort it")
            if self._interrupt:
                self.backend.wait_interrupt(min(left, _INTERRUPT_SLICE))
            else:
                self.backend.pause(min(left, self._pause))
                self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def abort(self, inference: Inference) -> None:
        """See `Inference.abort`. Raises DeviceError when the device does not stop: reset it."""
        if inference in self._queue:
            self._queue.remove(inference)
            inference.end(AbortedError("taken out of the queue"))
        if inference is not self._running:
            return
        self.registers.command("ABORT")
        if not self._settles():
            raise DeviceError("the device does not stop, as its bus owes answers: reset it", code="device-stuck")
        if self.registers.status() & (self.registers.done | self.registers.error):
            self._collect(inference)    # it was quicker
        else:
            self._end(AbortedError("aborted"))
        self._advance()

    def recover(self, inference: Inference) -> None:
        """After an inference has failed: bring the device to where it takes programs, by a reset if need be.

        Others are not disturbed, but for one that does not end and that this one waits for, and one that a reset
        hits; they are aborted. Raises DeviceError.
        """
        try:
            if inference in self._queue and self._running is not None:
                self.abort(self._running)
            self.abort(inference)
        except DeviceError:
            self.reset()
            return
        if self._running is None and not self._settles():
            self.reset()

    def forget(self, program: Owner) -> None:
        """Abort all inferences of a program whose memory is to be given back. Raises DeviceError."""
        for inference in [*self._queue, *([self._running] if self._running else [])]:
            if inference.program is program:
                self.abort(inference)
        if self._running is None and not self._settles():   # what it was told to stop has transfers under way
            raise DeviceError("the device does not stop, as its bus owes answers: reset it", code="device-stuck")
        if self._running is None and program.region is not None:
            self.registers.release(*program.region)
        self._programs = [resident for resident in self._programs if resident is not program]

    # -- one after the other -------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Start what waits, if nothing runs."""
        while self._running is None and self._queue:
            inference = self._queue.popleft()
            if not self._settles():
                inference.end(DeviceError("the device is busy with what it was told to stop: its bus owes answers; "
                                          "reset it", code="device-stuck"))
                continue
            self._pause = FIRST_PAUSE
            # Before it is: whatever comes in between, Ctrl-C too, what may run is known.
            self._running, self._started = inference, self.backend.time()
            job = replace(inference.program.job(inference.slot), stream_shift=inference.stream_shift)
            self.registers.start(job, interrupt=self._interrupt)

    def _collect(self, inference: Inference) -> None:
        """The outcome of the running inference, which has ended."""
        if self.profile:
            inference.counters = self.registers.counters()
            inference.cycles = inference.counters["cycles"]
        else:
            inference.cycles = self.registers.counter("cycles")
        code, index = self.registers.finish()
        self._end(self._fault(inference.program.program, code, index) if code else None)

    def _end(self, error: DriverError | None) -> None:
        inference, self._running = self._running, None
        if inference is not None:
            inference.end(error)

    def _fault(self, program: DeployedProgram, code: int, index: int) -> FaultError:
        known = self.machine.errors.get(code)
        name, text = (known.name, known.text) if known else (f"error {code}", "not known to this driver")
        layer = layer_of(index, program.instruction_layers, program.layers)
        first = index * self.machine.instruction_bytes
        what = ""
        if first < len(program.code):
            opcode = program.code[first] & ((1 << self.machine.opcode_bits) - 1)
            what = f", {self.machine.operations.get(opcode, 'no known operation')}"
        place = f"instruction {index}{what}{f' of layer {layer}' if layer else ''}{self._refused_address(name)}"
        return FaultError(f"program {program.name}: {name} at {place}: {text}", number=code, name=name, index=index,
                          layer=layer)

    def _refused_address(self, name: str) -> str:
        """Of the burst that the limits have held back, as a part of an error of that ``name``."""
        if not (self.registers.has_limits and name.endswith("_LIMIT")):
            return ""
        address = self.registers.read("limit_address_low") | self.registers.read("limit_address_high") << 32
        return f", bus address {address:#x}"

    def _settles(self) -> bool:
        """Whether the machine is at rest, after a while if need be."""
        return settles(self.backend, self.registers)
