"""Samples through a simulated system: every byte of the data region beside the instruction-level simulator's."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gen.ir import reference
from gen.run.inputs import Samples
from gen.run.runner import Inference
from gen.run.workload import Workload
from gen.soc.host import Host
from gen.soc.simulator import SerialLine
from sim import functional
from sim.cycles import estimate

__all__ = ["Outcome", "connect", "infer_all"]


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


def connect(line: SerialLine) -> Any:
    """LiteX's end of UARTBone at a simulated line: reads and writes words of the system's bus."""
    from litex.tools.remote.comm_uart import CommUART

    class UartBone(CommUART):
        def __init__(self) -> None:     # not LiteX's, which opens a port by its name
            self.port, self.debug, self.addr_bytes = line, False, 4

    return UartBone()


def infer_all(host: Host, workload: Workload, samples: Samples, *,
              progress: Callable[[int, int], None] = lambda done, cycles: None) -> Outcome:
    """Run every sample; the memory is awake. ``progress`` hears of the samples done, and the cycles of the last one.

    Raises HostError, DriverError and MachineError as `Host` does.
    """
    program = workload.program
    job = host.load(program)
    cycles: list[int] = []
    predictions: list[int | None] = []
    wrong = 0
    expected = program.image()
    for number in range(len(samples)):
        tensors = _input_tensors(workload, samples, number)
        for tensor, values in tensors.items():
            program.pack_input(expected, tensor, values)
        functional.run(program.config, program.code, expected, write_start=program.write_start)
        cycles.append(host.infer(program, job, tensors))
        found = host.data_region(job, program.config.beat_bytes)
        wrong += int(np.count_nonzero(found != expected))
        predictions.append(_prediction(workload, found))
        progress(number + 1, cycles[-1])
    right = None if samples.labels is None else int(np.count_nonzero(np.array(predictions) == samples.labels))
    return Outcome(cycles, estimate(program.config, program.code).cycles, expected.size, wrong, predictions, right)


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
