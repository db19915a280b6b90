"""How far a model is from onnxruntime of which the processor runs a part: layers, and what comes out in the end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console

from gen.check.compare import Compared, LayerDifference, agreement_of, compare_layers, print_layers, sqnr
from gen.ir import reference
from gen.onnx.model import Model
from gen.onnx.runtime import RuntimeModel
from gen.onnx.scores import answers
from gen.partition.partition import Partition, called
from gen.quantize.sessions import Progress

__all__ = ["SegmentsComparison", "compare_segments", "print_segments"]

Values = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class EndDifference:
    """An output of the model: ``differing`` of its ``values``, by ``largest`` at most, in its own numbers.

    ``sqnr_db``: energy of onnxruntime's values over that of the differences, None where nothing differs.
    ``agreement``: share of the answers (`gen.onnx.scores.answers`) that are the same. Samples that give another shape
    count as a difference of every value, in the SQNR of all that there is, and as infinitely far off.
    """

    output: str
    values: int
    differing: int
    largest: float
    sqnr_db: float | None
    agreement: float


@dataclass(frozen=True)
class SegmentsComparison(Compared):
    """``host``: nodes that the processor has -> why; nothing of these is compared but what comes of them."""

    outputs: list[EndDifference]
    host: Mapping[str, str]


def compare_segments(cut: Partition, inputs: Values, whole: Model, *,
                     progress: Progress = lambda done, total, what: None) -> SegmentsComparison:
    """The model ``whole``, ``cut``, on samples: model input -> (N, ...).

    The layers of each segment get the inputs that the segments before it make of the samples, the layers' rounding
    included. Raises GraphError for what onnxruntime does not run.
    """
    count = len(next(iter(inputs.values())))
    values: list[dict[str, np.ndarray]] = [
        {name: array[n:n + 1] for name, array in inputs.items()} for n in range(count)]
    layers: list[LayerDifference] = []
    for number, segment in enumerate(cut.segments):
        name = called(number, len(cut.segments), host=segment.place == "host")
        if segment.place != "accelerator":
            runtime = RuntimeModel(segment.model.SerializeToString(), optimised="basic")
            for sample, one in enumerate(values):
                progress(sample, count, name)
                one.update(zip(runtime.outputs, runtime.run(one), strict=True))
            continue
        imported = segment.imported
        taken = {name: np.concatenate([one[name] for one in values]) for name in imported.graph.inputs}
        layers += compare_layers(imported, taken, progress=_within(progress, name))
        made, _ = reference.run(imported.graph, taken)
        for n, one in enumerate(values):
            one.update((name, array[n:n + 1]) for name, array in made.items())
    original, names = RuntimeModel(whole.proto), list(cut.model.outputs)
    samples = ({name: array[n:n + 1] for name, array in inputs.items()} for n in range(count))
    theirs = [dict(zip(names, original.run(sample, names), strict=True)) for sample in samples]
    ends = [_end(name, [one[name] for one in values], [one[name] for one in theirs]) for name in names]
    return SegmentsComparison(count, layers, ends, cut.host)


def _within(progress: Progress, name: str) -> Progress:
    """Says what it is a part of."""
    return lambda done, total, what: progress(done, total, f"{name}, {what}" if name else what)


def _end(name: str, ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> EndDifference:
    differing, largest, agreeing = 0, 0.0, 0.0
    pairs: list[tuple[np.ndarray, np.ndarray]] = []
    for mine, other in zip(ours, theirs, strict=True):
        if mine.shape != other.shape:
            differing, largest = differing + other.size, float("inf")
            pairs.append((np.zeros(other.size), other.ravel()))
            continue
        pairs.append((mine.ravel(), other.ravel()))
        apart = np.abs(mine.astype(np.float64) - other.astype(np.float64))
        differing += int(np.count_nonzero(apart))
        largest = max(largest, float(apart.max(initial=0)))
        agreeing += float((answers(mine) == answers(other)).mean()) if other.size and other.ndim else 1
    near = sqnr(*(np.concatenate(parts) for parts in zip(*pairs, strict=True)))
    return EndDifference(name, sum(other.size for other in theirs), differing, largest, near, agreeing / len(ours))


def print_segments(comparison: SegmentsComparison, console: Console) -> None:
    print_layers(comparison.samples, comparison.layers, console)
    count = len(comparison.host)
    nodes = f"{count} node{' runs' if count == 1 else 's run'}"
    console.print(f"{nodes} on the processor, by onnxruntime itself. What comes out in the end, in which differences "
                  "of layers add up:", soft_wrap=True)
    for end in comparison.outputs:
        console.print(f"{end.output}: {end.differing:,} of {end.values:,} values differ, by {end.largest:.4g} at most; "
                      f"{agreement_of(end.sqnr_db, end.agreement)}", soft_wrap=True)
