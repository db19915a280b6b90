"""Run samples on one of the targets and compare every tensor with the reference."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np

from gen.ir import reference
from gen.run.inputs import Samples
from gen.run.workload import Workload
from sim import functional
from sim.rtl.machine import RtlMachine
from sim.rtl.run import RtlResult, run_program

__all__ = ["Run", "run_model"]

Target = Literal["reference", "functional", "rtl"]


@dataclass(frozen=True, eq=False)
class Inference:
    """One sample. ``mismatches``: tensor -> values that differ from the reference. ``rtl``: the machine's report."""

    outputs: dict[str, np.ndarray]
    seconds: float
    mismatches: dict[str, int] = field(default_factory=dict)
    rtl: RtlResult | None = None

    @property
    def cycles(self) -> int | None:
        return self.rtl.cycles if self.rtl else None

    @property
    def prediction(self) -> int | None:
        """The class with the highest score, where the model has one vector of scores."""
        scores = np.squeeze(next(iter(self.outputs.values())))
        return int(scores.argmax()) if len(self.outputs) == 1 and scores.ndim == 1 else None


@dataclass(frozen=True, eq=False)
class Run:
    """All samples; ``compared`` is the number of values compared with the reference in each, 0 on the reference."""

    target: Target
    inferences: list[Inference]
    labels: np.ndarray | None
    compared: int

    @property
    def outputs(self) -> dict[str, np.ndarray]:
        """Model output -> (N, ...)."""
        return {name: np.stack([inference.outputs[name] for inference in self.inferences])
                for name in self.inferences[0].outputs}

    @property
    def mismatches(self) -> int | None:
        """Values that differ from the reference; None where nothing was compared."""
        return None if not self.compared else sum(sum(inference.mismatches.values()) for inference in self.inferences)

    @property
    def seconds(self) -> float:
        """Of the target alone, without the reference."""
        return sum(inference.seconds for inference in self.inferences)

    @property
    def cycles(self) -> float | None:
        """Of one inference, on average."""
        cycles = [inference.cycles for inference in self.inferences if inference.cycles is not None]
        return sum(cycles) / len(cycles) if cycles else None

    @property
    def accuracy(self) -> float | None:
        """Share of the labelled samples that are right."""
        if self.labels is None or self.inferences[0].prediction is None or not (labelled := self.labels >= 0).any():
            return None
        predictions = np.array([inference.prediction for inference in self.inferences])
        return float((predictions == self.labels)[labelled].mean())


def _run_on_image(workload: Workload, tensors: dict[str, np.ndarray], machine: RtlMachine | None,
                  progress: Callable[[int], None]) -> tuple[np.ndarray, RtlResult | None]:
    """The data region after one inference."""
    program = workload.program
    image = program.image()
    for tensor in program.inputs.values():
        program.pack_input(image, tensor, tensors[tensor])
    if machine is None:
        functional.run(program.config, program.code, image, write_start=program.write_start)
        return image, None
    result = run_program(program.config, program.code, image, write_start=program.write_start, machine=machine,
                         progress=progress)
    return result.image, result


def run_model(workload: Workload, samples: Samples, target: Target, *, machine: RtlMachine | None = None,
              progress: Callable[[int, int], None] = lambda samples, cycles: None) -> Run:
    """Run every sample on ``target``; outputs are those that the target computed.

    ``machine`` is the simulation to use for ``rtl``, else one is made (and built if need be).
    ``progress`` is called with the samples done and the cycles of the present one.

    Raises GraphError for inputs that do not fit, MachineError when the machine stops with an error, ToolError when the
    simulation cannot be built.
    """
    if target == "rtl" and machine is None:
        with RtlMachine(workload.program.config) as own:
            return run_model(workload, samples, target, machine=own, progress=progress)
    graph = workload.graph
    inferences = []
    for number in range(len(samples)):
        progress(number, 0)
        inputs = {name: array[number:number + 1] for name, array in samples.inputs.items()}
        began = time.perf_counter()
        outputs, kept = reference.run(graph, inputs, keep=target != "reference")
        if kept is None:
            elapsed = time.perf_counter() - began
            inferences.append(Inference({name: value[0] for name, value in outputs.items()}, elapsed))
            continue
        program = workload.program
        tensors = {name: value[0] for name, value in kept.items()}
        expected = {name: value for name, value in tensors.items() if program.holds(name)}
        began = time.perf_counter()
        image, rtl = _run_on_image(workload, tensors, machine if target == "rtl" else None, partial(progress, number))
        elapsed = rtl.seconds if rtl else time.perf_counter() - began
        found = {name: program.unpack_tensor(image, name) for name in expected}
        wrong = {name: int(np.count_nonzero(found[name] != value)) for name, value in expected.items()}
        outputs = {name: reference.host_output(graph, name, found[tensor][None])[0]
                   for name, (tensor, _) in graph.outputs.items()}
        inferences.append(Inference(outputs, elapsed, {name: count for name, count in wrong.items() if count}, rtl))
    progress(len(samples), 0)
    compared = 0
    if target != "reference":
        program = workload.program
        compared = sum(int(np.prod(place.shape)) for name, place in program.tensors.items() if program.holds(name))
    return Run(target, inferences, samples.labels, compared)
