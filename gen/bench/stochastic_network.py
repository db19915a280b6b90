"""Handwritten digits by networks of stochastic dot products: right answers against the length of the streams."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cores.arch.stochastic import Circuit
from gen.files.figure import new_figure, png
from gen.stochastic.accuracy import Examiner, lengths_of
from gen.stochastic.backbone import Backbone

__all__ = ["AccuracyRow", "BACKBONES", "measure_accuracy", "plot"]

BACKBONES = ("784-200-32-10", "784-100-200-10")


@dataclass(frozen=True)
class AccuracyRow:
    """Share of right answers of ``circuit`` with streams of ``length`` bits; the exact int8 network's has no length."""

    backbone: str
    circuit: str
    length: int | None
    images: int
    right: float


def measure_accuracy(examiner: Examiner, backbones: Sequence[Backbone],
                     remark: Callable[[str], None] = lambda step: None) -> Iterator[AccuracyRow]:
    """Of each backbone the exact network, on as many images as circuits are tested on, then each circuit by length.

    Raises BackboneError, DataError.
    """
    for backbone in backbones:
        remark(f"{backbone.word}: training")
        for count in sorted({examiner.tested(circuit) for circuit in Circuit}, reverse=True):
            yield AccuracyRow(backbone.word, "int8", None, count, examiner.accuracy(backbone, None, 0, count))
        for circuit in Circuit:
            for length in lengths_of(circuit):
                remark(f"{backbone.word}: {circuit.label}, {length} bits")
                yield AccuracyRow(backbone.word, circuit.label, length, examiner.tested(circuit),
                                  examiner.accuracy(backbone, circuit, length))


def plot(rows: Sequence[AccuracyRow]) -> bytes:
    """PNG: right answers by length, a line a circuit, backbones side by side."""

    words = list(dict.fromkeys(row.backbone for row in rows))
    figure = new_figure(1 + 6 * len(words), 4)
    for axes, word in zip(figure.subplots(1, len(words), squeeze=False, sharey=True)[0], words, strict=True):
        some = [row for row in rows if row.backbone == word]
        axes.axhline(100 * some[0].right, color="black", linewidth=1, label="int8")
        for circuit in Circuit:
            mine = {row.length: 100 * row.right for row in some if row.circuit == circuit.label and row.length}
            axes.plot(list(mine), list(mine.values()), marker="o", label=circuit.label)
        axes.set_xscale("log", base=2)
        axes.set(xlabel="bits of a stream", ylabel="right answers, %", title=word)
        axes.legend()
    return png(figure)
