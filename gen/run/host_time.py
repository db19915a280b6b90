"""What the processor's part of a model takes, on the processor at hand."""

import time
from collections.abc import Callable, Mapping

import numpy as np

from gen.ir import reference
from gen.partition.partition import called
from gen.run.application import Application
from gen.run.host import HostSegment
from gen.run.inputs import arbitrary_samples
from gen.run.workload import Workload

__all__ = ["host_seconds"]

#: How often a segment runs to be timed: the first time takes longer.
_TIMES = 3


def host_seconds(application: Application, progress: Callable[[str], None] = lambda text: None) -> list[float]:
    """Of each segment of the processor, the least of a few times, for one sample.

    What the accelerator would hand over is random: nothing is computed there. ``progress`` hears which segment it is.
    Raises GraphError when onnxruntime fails.
    """
    values, found = dict(arbitrary_samples(application.inputs, seed=0).inputs), []
    for number, segment in enumerate(application.segments):
        if isinstance(segment, HostSegment):
            progress(called(number, len(application.segments)))
            seconds, made = _timed(segment, values)
            found.append(seconds)
            values.update(made)
        else:
            values.update(_arbitrary_outputs(segment))
    return found


def _timed(segment: HostSegment, values: Mapping[str, np.ndarray]) -> tuple[float, dict[str, np.ndarray]]:
    times = []
    for _ in range(_TIMES):
        began = time.perf_counter()
        made = segment.run(values)
        times.append(time.perf_counter() - began)
    return min(times), made


def _arbitrary_outputs(workload: Workload) -> dict[str, np.ndarray]:
    """Outputs of a segment of the accelerator, whatever its inputs."""
    graph, rng = workload.graph, np.random.default_rng(0)
    tensors = {tensor: rng.integers(-128, 128, (1, *graph.tensors[tensor].shape), np.int8)
               for tensor, _ in graph.outputs.values()}
    return {name: reference.host_output(graph, name, tensors[tensor]) for name, (tensor, _) in graph.outputs.items()}
