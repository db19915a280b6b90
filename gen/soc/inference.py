"""Samples through a simulated system: every byte of the data region beside the instruction-level simulator's."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cores.device import driver_machine
from gen.ir import reference
from gen.run.inputs import Samples
from gen.run.runner import Inference
from gen.run.workload import Workload
from gen.soc.host import SystemClient, windows_of
from gen.soc.simulator import SerialLine
from npudriver.backend import Backend
from npudriver.backends.remote import Client, RemoteBackend
from npudriver.device import Device
from sim import functional
from sim.cycles import estimate

__all__ = ["Outcome", "awake_client", "connect", "infer_all"]

#: How many times the cycles on the ideal bus an inference may take.
_PATIENCE = 20


@dataclass(frozen=True)
class Outcome:
    """Of all samples. ``cycles``: of each, by the machine's counter. ``ideal_cycles``: of one, by the time model on the
    bus that it has unless told otherwise. ``wrong_bytes``: of the data region, over all samples; ``compared``: bytes of
    it. ``predictions``: the class of each sample, if the model has classes; ``right``: how many are as labelled.
    """

    cycles: list[int]
    ideal_cycles: int
    compared: int
    wrong_bytes: int
    predictions: list[int | None]
    right: int | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class _SimulatedBackend(RemoteBackend):
    """Its time is that of the simulated clock."""

    def __init__(self, client: Client, line: SerialLine, description: Mapping[str, Any]) -> None:
        self._line, self._hertz = line, description["clock_mhz"] * 1e6
        super().__init__(client, windows_of(description))

    def pause(self, seconds: float) -> None:
        self._line.run(round(seconds * self._hertz))

    def time(self) -> float:
        return self._line.cycle / self._hertz


def connect(line: SerialLine, description: Mapping[str, Any]) -> Backend:
    """The driver's way to the system at a simulated line; its memory is awake. Raises HostError."""
    return _SimulatedBackend(awake_client(line, description), line, description)


def awake_client(line: SerialLine, description: Mapping[str, Any]) -> SystemClient:
    """The system at a simulated line, by LiteX's end of UARTBone; its memory is awake. Raises HostError."""
    from litex.tools.remote.comm_uart import CommUART

    class UartBone(CommUART):
        def __init__(self) -> None:     # not LiteX's, which opens a port by its name
            self.port, self.debug, self.addr_bytes = line, False, 4

    client = SystemClient(UartBone(), description)
    client.wake_memory()
    return client


def infer_all(backend: Backend, workload: Workload, samples: Samples, *, clock_mhz: float,
              progress: Callable[[int, int], None] = lambda done, cycles: None) -> Outcome:
    """Run every sample; ``progress`` hears of the samples done, and the cycles of the last one.

    Raises DriverError, and HostError when the memory does not hold what is written to it.
    """
    program = workload.program
    cycles: list[int] = []
    predictions: list[int | None] = []
    wrong = 0
    expected = program.image()
    ideal = estimate(program.config, program.code).cycles
    timeout = _PATIENCE * ideal / (clock_mhz * 1e6)
    with Device(backend, driver_machine(program.config), timeout=timeout) as device:
        resident = device.load(program.deployed, slots=1)
        resident.slots[0].region.write(0, expected)     # all of it: what is never written is compared too
        for number in range(len(samples)):
            tensors = _input_tensors(workload, samples, number)
            for tensor, values in tensors.items():
                program.pack_input(expected, tensor, values)
            functional.run(program.config, program.code, expected, write_start=program.write_start)
            inference = resident.submit_packed(program.packed_inputs(tensors))
            found = inference.region()
            cycles.append(inference.cycles or 0)
            wrong += int(np.count_nonzero(found != expected))
            predictions.append(_prediction(workload, found))
            progress(number + 1, cycles[-1])
    right = None if samples.labels is None else int(np.count_nonzero(np.array(predictions) == samples.labels))
    return Outcome(cycles, ideal, expected.size, wrong, predictions, right)


def _input_tensors(workload: Workload, samples: Samples, number: int) -> dict[str, np.ndarray]:
    """Tensor -> int8 (C, H, W), of one sample."""
    inputs = {name: array[number:number + 1] for name, array in samples.inputs.items()}
    _, kept = reference.run(workload.graph, inputs, keep=True)
    assert kept is not None
    return {tensor: kept[tensor][0] for tensor in workload.program.inputs.values()}


def _prediction(workload: Workload, image: np.ndarray) -> int | None:
    outputs = {name: reference.host_output(workload.graph, name, workload.program.unpack_tensor(image, tensor)[None])
               for name, tensor in workload.program.outputs.items()}
    return Inference(outputs, 0.0).prediction
