"""Digits and photographs by networks of stochastic dot products: right answers against the length of the streams."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cores.arch.stochastic import Circuit
from gen.files.figure import new_figure
from gen.stochastic.accuracy import Examiner, lengths_of
from gen.stochastic.backbone import Backbone

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ALEXNET", "AccuracyRow", "BACKBONES", "LENET", "measure_accuracy", "plot"]

BACKBONES = ("784-200-32-10", "784-100-200-10")
#: LeNet-5, its second convolution padded.
LENET = "28x28-c6k5-p2-c16k5-p2-120-84-10"
#: The published one for CIFAR-10, on the circuit that was found best, as it takes a hundred times as long.
ALEXNET = "32x32x3-c256k5-c32k3s2-c16k7s2-c16k5s2-c256k3-512-1024-10"
_BEST, _LONGEST = Circuit.AND_LOOP, 256
#: Of the plot, side by side.
_PANELS = 3


@dataclass(frozen=True)
class AccuracyRow:
    """Share of right answers of ``circuit`` with streams of ``length`` bits; the float network's and the exact int8
    network's have no length.
    """

    backbone: str
    circuit: str
    length: int | None
    images: int
    right: float


def measure_accuracy(examiner: Examiner, backbones: Sequence[Backbone],
                     remark: Callable[[str], None] = lambda step: None) -> Iterator[AccuracyRow]:
    """Of each backbone the float network, the exact one on as many images as circuits are tested on, and each circuit
    by length: of `ALEXNET` one circuit up to so many bits.

    Raises BackboneError, DataError.
    """
    for backbone in backbones:
        lengths = {circuit: lengths_of(circuit) for circuit in Circuit}
        if backbone.word == ALEXNET:
            lengths = {_BEST: tuple(length for length in lengths[_BEST] if length <= _LONGEST)}
        remark(f"{backbone.word}: training")
        yield AccuracyRow(backbone.word, "float", None, examiner.tested(None),
                          examiner.float_accuracy(backbone, remark))
        for count in sorted({examiner.tested(circuit) for circuit in lengths}, reverse=True):
            yield AccuracyRow(backbone.word, "int8", None, count, examiner.accuracy(backbone, None, 0, count))
        for circuit, some in lengths.items():
            for length in some:
                remark(f"{backbone.word}: {circuit.label}, {length} bits")
                yield AccuracyRow(backbone.word, circuit.label, length, examiner.tested(circuit),
                                  examiner.accuracy(backbone, circuit, length))


def plot(rows: Sequence[AccuracyRow]) -> "Figure":
    """Right answers by length, a line a circuit, a panel a backbone."""
    words = list(dict.fromkeys(row.backbone for row in rows))
    cols = min(_PANELS, len(words))
    lines = -(-len(words) // cols)
    figure = new_figure(1 + 6 * cols, 4 * lines)
    panels = figure.subplots(lines, cols, squeeze=False, sharey=True).flat
    for axes in list(panels)[len(words):]:
        axes.remove()
    for axes, word in zip(figure.axes, words, strict=True):
        some = [row for row in rows if row.backbone == word]
        axes.axhline(100 * next(row.right for row in some if row.circuit == "int8"), color="black", linewidth=1,
                     label="int8")
        for circuit in Circuit:
            mine = {row.length: 100 * row.right for row in some if row.circuit == circuit.label and row.length}
            if not mine:
                continue
            axes.plot(list(mine), list(mine.values()), marker="o", color=f"C{circuit.value}", label=circuit.label)
        axes.set_xscale("log", base=2)
        axes.set(xlabel="bits of a stream", ylabel="right answers, %", title=word)
    # One for all: a circuit's line looks the same in each panel.
    lines_of = {label: line for axes in figure.axes
                for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(lines_of.values(), lines_of.keys(), loc="outside right upper")
    return figure
