"""How good a detector is as a float model, as a quantised one by onnxruntime, and as this machine computes it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from gen.detection.judge import Expected
from gen.detection.precision import Precision
from gen.ir import reference
from gen.onnx.runtime import RuntimeModel
from gen.partition.partition import Partition
from gen.quantize.sessions import Progress

__all__ = ["Precisions", "precisions"]

Values = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Precisions:
    """``float``: None where the model was quantised before."""

    float: Precision | None
    quantized: Precision
    machine: Precision


def precisions(cut: Partition, model: onnx.ModelProto, inputs: Values, expected: Expected, *,
               floating: onnx.ModelProto | None = None,
               progress: Progress = lambda done, total, what: None) -> Precisions:
    """Of the quantised ``model``, which was ``cut`` for the machine, on samples ``inputs`` (model input -> (N, ...));
    ``floating``: the model that it was made from. Raises HeadError, AnnotationError, GraphError.
    """
    def judged(run: Callable[[Values], Values], what: str) -> Precision:
        tally, count = expected.tally(), len(expected.pictures)
        for number, sample in enumerate(_samples(inputs, count)):
            progress(number, count, what)
            tally.add(run(sample))
        return tally.precision()

    return Precisions(
        None if floating is None else judged(_by_onnxruntime(floating), "the float model"),
        judged(_by_onnxruntime(model), "the quantised model"), judged(_by_machine(cut), "the machine"))


def _samples(inputs: Values, count: int) -> Iterator[Values]:
    for number in range(count):
        yield {name: np.ascontiguousarray(array[number:number + 1]) for name, array in inputs.items()}


def _of_sample(values: Values) -> Values:
    """Without the axis of samples, which rows of NonMaxSuppression have not."""
    return {name: value[0] if value.ndim > 2 else value for name, value in values.items()}


def _by_onnxruntime(model: onnx.ModelProto) -> Callable[[Values], Values]:
    runtime = RuntimeModel(model)
    return lambda sample: _of_sample(dict(zip(runtime.outputs, runtime.run(sample), strict=True)))


def _by_machine(cut: Partition) -> Callable[[Values], Values]:
    """By the reference, which the machine is like in every bit; what is the processor's by onnxruntime."""
    if cut.whole is not None:
        graph = cut.whole.graph
        return lambda sample: _of_sample(reference.run(graph, sample)[0])
    segments = [(RuntimeModel(segment.model.SerializeToString(), optimised="basic"), None)
                if segment.place != "accelerator" else (None, segment.imported.graph) for segment in cut.segments]

    def run(sample: Values) -> Values:
        values = dict(sample)
        for runtime, graph in segments:
            if runtime is not None:
                values.update(zip(runtime.outputs, runtime.run(values), strict=True))
            elif graph is not None:
                values.update(reference.run(graph, {name: values[name] for name in graph.inputs})[0])
        return _of_sample({name: values[name] for name in cut.model.outputs})

    return run
