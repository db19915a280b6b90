"""Run samples on one of the targets and compare every tensor with the reference."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Literal

import numpy as np

from gen.detection.judge import Expected
from gen.detection.precision import Precision
from gen.ir import reference
from gen.ir.parts import without_gaps
from gen.onnx.scores import are_scores
from gen.partition.partition import called
from gen.passes.batch import of_batch, of_sample
from gen.passes.streams import shorten_streams
from gen.run.application import Application
from gen.run.host import HostSegment
from gen.run.inputs import Samples
from gen.run.targets import BoardTarget, Executor, functional_target, rtl_target
from gen.run.workload import Workload
from npudriver import Device
from sim.rtl.machine import RtlMachine
from sim.rtl.run import RtlResult

__all__ = ["Run", "run_model"]

Target = Literal["reference", "functional", "rtl", "board"]


@dataclass(frozen=True, eq=False)
class Inference:
    """One sample. ``mismatches``: tensor -> values that differ from the reference.

    ``seconds``: of the target; ``host_seconds``: of the processor's segments. ``cycles``: of the accelerator's, where
    the target has any. ``rtl``: reports of the simulated Verilog, one for each segment on the accelerator.
    ``counters``: of a device that was opened to count, of all of them together.
    """

    outputs: dict[str, np.ndarray]
    seconds: float
    host_seconds: float = 0.0
    mismatches: dict[str, int] = field(default_factory=dict)
    cycles: int | None = None
    rtl: tuple[RtlResult, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)

    @property
    def predictions(self) -> dict[str, int]:
        """Output -> the class with the highest score, of those that are a vector of scores."""
        return {name: int(scores.argmax()) for name, scores in self.outputs.items() if are_scores(scores.shape)}

    @property
    def prediction(self) -> int | None:
        """By the one output that the model has."""
        return next(iter(self.predictions.values()), None) if len(self.outputs) == 1 else None


@dataclass(frozen=True, eq=False)
class Run:
    """All samples; ``compared`` is the number of values compared with the reference in each, 0 on the reference.

    ``expected``: objects in the samples, of a detector.
    """

    target: Target
    inferences: list[Inference]
    labels: np.ndarray | None
    compared: int
    expected: Expected | None = None

    @cached_property
    def precision(self) -> Precision | None:
        """Of a detector. Raises HeadError, AnnotationError."""
        if self.expected is None:
            return None
        tally = self.expected.tally()
        for inference in self.inferences:
            tally.add(inference.outputs)
        return tally.precision()

    @property
    def outputs(self) -> dict[str, np.ndarray]:
        """Model output -> (N, ...); ``output/N`` for each sample of one whose shape depends on the sample."""
        found = {}
        for name in self.inferences[0].outputs:
            arrays = [inference.outputs[name] for inference in self.inferences]
            if len({array.shape for array in arrays}) == 1:
                found[name] = np.stack(arrays)
            else:
                found |= {f"{name}/{number}": array for number, array in enumerate(arrays)}
        return found

    @property
    def mismatches(self) -> int | None:
        """Values that differ from the reference; None where nothing was compared."""
        return None if not self.compared else sum(sum(inference.mismatches.values()) for inference in self.inferences)

    @property
    def seconds(self) -> float:
        """Of the target alone, without the reference and the processor's segments."""
        return sum(inference.seconds for inference in self.inferences)

    @property
    def host_seconds(self) -> float:
        """Of the processor's segments."""
        return sum(inference.host_seconds for inference in self.inferences)

    @property
    def cycles(self) -> float | None:
        """Of one inference, on average."""
        cycles = [inference.cycles for inference in self.inferences if inference.cycles is not None]
        return sum(cycles) / len(cycles) if cycles else None

    @property
    def accuracy(self) -> float | None:
        """Share of the labelled samples that are right, by the one output that the model has."""
        return next(iter(self.accuracies.values()), None) if len(self.inferences[0].outputs) == 1 else None

    @property
    def labelled(self) -> bool:
        return self.labels is not None and bool((self.labels >= 0).any())

    @property
    def accuracies(self) -> dict[str, float]:
        """Output -> share of the labelled samples that are right by it, of those that are a vector of scores."""
        if self.labels is None or not (known := self.labels >= 0).any():
            return {}
        predicted = {name: np.array([one.predictions[name] for one in self.inferences]) for name in self.judged}
        return {name: float((classes == self.labels)[known].mean()) for name, classes in predicted.items()}

    @property
    def judged(self) -> list[str]:
        """Outputs that are a vector of scores, for every sample."""
        return [name for name in self.inferences[0].outputs if all(name in one.predictions for one in self.inferences)]


def _run_batch(workload: Workload, inputs: dict[str, np.ndarray], execute: Executor,
               progress: Callable[[int], None]) -> list[Inference]:
    """A batch of samples, (N, ...) each, in one run; their outputs are as of `Inference`. Fewer samples than the
    program has are followed by the last one again.
    """
    graph, program, samples = workload.graph, workload.program, len(next(iter(inputs.values())))
    whole = {name: np.concatenate([array, np.repeat(array[-1:], workload.batch - samples, axis=0)])
             for name, array in inputs.items()}
    _, kept = reference.run(graph, whole, keep=True)
    assert kept is not None
    expected = {name: of_batch(name, kept) for name in program.tensors if name in set(program.written)}
    done = execute(workload, expected, progress, stream_shift=0)
    found = {name: program.unpack_tensor(done.image, name) for name in expected if program.holds(name)}
    wrong = {name: int(np.count_nonzero(without_gaps(workload.whole.tensors[name], values != expected[name])))
             for name, values in found.items()}
    cycles = None if done.cycles is None else done.cycles // workload.batch
    inferences = []
    for sample in range(samples):
        outputs = {name: reference.host_output(graph, name, found[of_sample(tensor, sample)][None])[0]
                   for name, (tensor, _) in graph.outputs.items()}
        inferences.append(Inference(outputs, done.seconds / samples, cycles=cycles))
    inferences[0] = replace(inferences[0], rtl=() if done.rtl is None else (done.rtl,),
                            mismatches={name: count for name, count in wrong.items() if count})
    return inferences


def _run_segment(workload: Workload, inputs: dict[str, np.ndarray], execute: Executor | None,
                 progress: Callable[[int], None], stream_shift: int) -> Inference:
    """One sample, (1, ...) each, on the accelerator (None: the reference alone); of the outputs all axes."""
    graph = shorten_streams(workload.graph, stream_shift)
    began = time.perf_counter()
    outputs, kept = reference.run(graph, inputs, keep=execute is not None)
    if execute is None or kept is None:
        return Inference(outputs, time.perf_counter() - began)
    program = workload.program
    tensors = {name: value[0] for name, value in kept.items()}
    expected = {name: value for name, value in tensors.items() if program.holds(name)}
    done = execute(workload, tensors, progress, stream_shift=stream_shift)
    found = {name: program.unpack_tensor(done.image, name) for name in expected}
    wrong = {name: int(np.count_nonzero(without_gaps(graph.tensors[name], found[name] != expected[name])))
             for name in program.written if name in expected}
    outputs = {name: reference.host_output(graph, name, found[tensor][None])
               for name, (tensor, _) in graph.outputs.items()}
    return Inference(outputs, done.seconds, mismatches={name: count for name, count in wrong.items() if count},
                     cycles=done.cycles, rtl=() if done.rtl is None else (done.rtl,),
                     counters=done.counters)


def _infer(model: Workload | Application, inputs: dict[str, np.ndarray], execute: Executor | None,
           progress: Callable[[str], None], stream_shift: int) -> Inference:
    """One sample through all segments."""
    values, done = dict(inputs), Inference({}, 0.0)
    outputs = {name: value[0] for name, value in inputs.items()}    # of one sample, without its axis
    for number, segment in enumerate(model.segments):
        name = called(number, len(model.segments), host=isinstance(segment, HostSegment))
        progress(name)
        if isinstance(segment, HostSegment):
            began = time.perf_counter()
            made = segment.run(values)
            done = replace(done, host_seconds=done.host_seconds + time.perf_counter() - began)
            values.update(made)
            outputs.update((name, segment.of_sample(name, value)) for name, value in made.items())
            continue
        one = _run_segment(segment, {name: values[name] for name in segment.inputs}, execute,
                           partial(_tell_cycles, progress, name), stream_shift)
        values.update(one.outputs)
        outputs.update((name, value[0]) for name, value in one.outputs.items())
        done = replace(done, seconds=done.seconds + one.seconds, mismatches={**done.mismatches, **one.mismatches},
                       cycles=None if one.cycles is None else (done.cycles or 0) + one.cycles,
                       rtl=(*done.rtl, *one.rtl),
                       counters={name: done.counters.get(name, 0) + value for name, value in one.counters.items()})
    return replace(done, outputs={name: outputs[name] for name in model.outputs})


def _tell_cycles(progress: Callable[[str], None], name: str, cycles: int) -> None:
    progress(f"{name}{', ' if name else ''}{cycles:,} cycles")


def _executor(target: Target, machine: RtlMachine | None, device: Device | None) -> Executor | None:
    if target == "rtl":
        assert machine is not None
        return rtl_target(machine)
    if target == "board":
        if device is None:
            raise ValueError("the target board needs a device")
        return BoardTarget(device)
    return functional_target if target == "functional" else None


def run_model(model: Workload | Application, samples: Samples, target: Target, *, machine: RtlMachine | None = None,
              device: Device | None = None,
              progress: Callable[[int, str], None] = lambda samples, present: None,
              stream_shifts: Sequence[int] = (0,)) -> Run:
    """Run every sample on ``target``; outputs are those that the target computed, and the processor after it.

    ``machine`` is the simulation to use for ``rtl``, else one is made (and built if need be); ``device`` is for
    ``board``.
    ``progress`` is called with the samples done and how far the present one is: its segment, and the cycles of that.
    ``stream_shifts``: one of them in turn for each sample, whose streams are shorter by so many powers of two, those of
    the reference too.

    Raises GraphError for inputs that do not fit, MachineError when the machine stops with an error, ToolError when the
    simulation cannot be built, DriverError of a device.
    """
    workloads = [segment for segment in model.segments if isinstance(segment, Workload)]
    if target == "rtl" and machine is None:
        with RtlMachine(workloads[0].program.config) as own:
            return run_model(model, samples, target, machine=own, progress=progress, stream_shifts=stream_shifts)
    execute = _executor(target, machine, device)
    inferences: list[Inference] = []
    batch = workloads[0].batch
    for number in range(0, len(samples), batch) if batch > 1 else ():
        if execute is None:
            break
        progress(number, "")
        inputs = {name: array[number:number + batch] for name, array in samples.inputs.items()}
        inferences += _run_batch(workloads[0], inputs, execute, partial(_tell_cycles, partial(progress, number), ""))
    for number in range(len(inferences), len(samples)):
        progress(number, "")
        inputs = {name: array[number:number + 1] for name, array in samples.inputs.items()}
        shift = stream_shifts[number % len(stream_shifts)]
        inferences.append(_infer(model, inputs, execute, partial(progress, number), shift))
    progress(len(samples), "")
    programs = [] if target == "reference" else [workload.program for workload in workloads]
    compared = sum(int(np.prod(program.tensors[name].shape)) for program in programs
                   for name in program.written if program.holds(name)) // batch
    return Run(target, inferences, samples.labels, compared, samples.expected)
