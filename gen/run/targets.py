"""What executes a program on a data region: the simulators, the Verilog, a device by the driver."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from cores.config import NpuConfig
from cores.device import driver_machine
from gen.run.workload import Workload
from npudriver import Backend, Device, ResidentProgram, open_backend
from sim import functional
from sim.devices import FunctionalBackend, RtlBackend
from sim.rtl.machine import RtlMachine
from sim.rtl.run import RtlResult, run_program

__all__ = ["BoardTarget", "Executed", "Executor", "functional_target", "open_device", "rtl_target"]

#: Devices that are simulated, by what stands in place of a URL.
_SIMULATED: Mapping[str, Callable[[NpuConfig], Backend]] = {"functional": FunctionalBackend, "rtl": RtlBackend}
_DEFAULT = "uio:"
#: Seconds of an inference: the machine itself gives up long before, once nothing moves.
_TIMEOUT = 3600.0


@dataclass(frozen=True, eq=False)
class Executed:
    """``image``: the data region afterwards, uint8. ``cycles``: where the target has any; ``seconds``: of the target.
    ``counters``: of a device that was opened to count.
    """

    image: np.ndarray
    seconds: float
    cycles: int | None = None
    rtl: RtlResult | None = None
    counters: Mapping[str, int] = field(default_factory=dict)


class Executor(Protocol):
    """``tensors``: int8 (C, H, W), of which the program's inputs are taken; ``progress`` is told cycles.

    ``stream_shift``: what goes to the register of that name.
    """

    def __call__(self, workload: Workload, tensors: Mapping[str, np.ndarray], progress: Callable[[int], None], *,
                 stream_shift: int) -> Executed: ...


def _image(workload: Workload, tensors: Mapping[str, np.ndarray]) -> np.ndarray:
    program = workload.program
    image = program.image()
    for tensor in program.inputs.values():
        program.pack_input(image, tensor, tensors[tensor])
    return image


def functional_target(workload: Workload, tensors: Mapping[str, np.ndarray], progress: Callable[[int], None], *,
                      stream_shift: int = 0) -> Executed:
    """The instruction-level simulator. Raises MachineError."""
    program, image = workload.program, _image(workload, tensors)
    began = time.perf_counter()
    functional.run(program.config, program.code, image, write_start=program.write_start, stream_shift=stream_shift)
    return Executed(image, time.perf_counter() - began)


def rtl_target(machine: RtlMachine) -> Executor:
    """The Verilog. What it gives raises as `run_program`."""
    def execute(workload: Workload, tensors: Mapping[str, np.ndarray], progress: Callable[[int], None], *,
                stream_shift: int = 0) -> Executed:
        program = workload.program
        result = run_program(machine, program.code, _image(workload, tensors), write_start=program.write_start,
                             progress=progress, stream_shift=stream_shift)
        return Executed(result.image, result.seconds, result.cycles, result)

    return execute


def open_device(url: str, config: NpuConfig, backend: Backend | None = None, *, counting: bool = False) -> Device:
    """A device of ``config``: of a URL as `npudriver.open_backend` takes them, "" for the usual one of a board, or
    ``functional`` or ``rtl`` for one that is simulated; or by a ``backend`` that is open already. ``counting``: all
    counters are read after every inference.

    Raises DriverError, ToolError when the simulation cannot be built.
    """
    make = _SIMULATED.get(url)
    backend = backend or (make(config) if make else open_backend(url or _DEFAULT))
    return Device(backend, driver_machine(config), timeout=_TIMEOUT, profile=counting)


class BoardTarget:
    """A device; programs stay in its memory once they have been executed."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._loaded: dict[Workload, ResidentProgram] = {}

    def __call__(self, workload: Workload, tensors: Mapping[str, np.ndarray], progress: Callable[[int], None], *,
                 stream_shift: int = 0) -> Executed:
        """Raises DriverError."""
        program = workload.program
        if workload not in self._loaded:
            # What it leaves in memory is read back before the next inference.
            self._loaded[workload] = self._device.load(program.deployed, slots=1)
        self._device.stream_shift = stream_shift
        began = time.perf_counter()
        inference = self._loaded[workload].submit_packed(program.packed_inputs(tensors))
        inference.wait()
        seconds = time.perf_counter() - began
        return Executed(inference.region(), seconds, inference.cycles, counters=inference.counters)
