"""What becomes of a model on its way through a session: variants, their sizes, times and accuracies."""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

import onnx

from cores.config import NpuConfig
from gen.files.figure import new_figure, plain, title_of
from gen.prune.counts import Counts
from gen.prune.timing import cycles_of
from gen.train.session import Budget

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Variant", "as_csv", "measured", "over_loss", "plot", "within"]

_LONGEST = 60


@dataclass(frozen=True)
class Variant:
    """A model at the end of a round. ``accuracy``: on the test data, None without any; ``loss``: of the last epoch,
    None in front of the first; ``cycles``: an inference's, None where the machine can have nothing of the model; counts
    are those of `Counts`.
    """

    name: str
    accuracy: float | None
    loss: float | None
    cycles: int | None
    parameters: int
    nonzero: int
    macs: int
    useful_macs: int


def measured(model: onnx.ModelProto, name: str, *, macs: int, accuracy: float | None, loss: float | None) -> Variant:
    """Cycles are those of the time model, on the preset of ``macs`` multipliers."""
    cycles = cycles_of(model, NpuConfig.preset(macs), name=name)
    return Variant(name, accuracy, loss, cycles, **asdict(Counts.of(model)))


def within(budget: Budget, variant: Variant) -> bool:
    """Whether a variant is as small as a budget of cycles or parameters asks for; never where it asks for neither."""
    wanted = [(variant.cycles, budget.cycles), (variant.nonzero, budget.parameters)]
    limits = [(found, limit) for found, limit in wanted if limit is not None]
    return bool(limits) and all(found is not None and found <= limit for found, limit in limits)


def over_loss(budget: Budget, variant: Variant, before: Variant) -> bool:
    """Whether a variant loses more points than a budget allows, against the model ``before``."""
    if budget.loss is None or variant.accuracy is None or before.accuracy is None:
        return False
    return 100 * (before.accuracy - variant.accuracy) > budget.loss + 1e-9


def as_csv(variants: Sequence[Variant]) -> str:
    """A line each, after one with the names of the fields; what is None is empty."""
    file = io.StringIO()
    writer = csv.DictWriter(file, [field.name for field in fields(Variant)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(variant) for variant in variants)
    return file.getvalue()


def plot(variants: Sequence[Variant], title: Sequence[str]) -> "Figure":
    """Accuracy (or, without test data, the loss) over cycles, and over parameters that are not 0, under lines of title.
    """
    figure = new_figure(11, 5)
    judged = any(variant.accuracy is not None for variant in variants)
    heights = [variant.loss if not judged else None if variant.accuracy is None else 100 * variant.accuracy
               for variant in variants]
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, label, across in ((left, "cycles", [variant.cycles for variant in variants]),
                                (right, "parameters that are not 0", [variant.nonzero for variant in variants])):
        points = [(x, y, variant.name) for x, y, variant in zip(across, heights, variants, strict=True)
                  if x is not None and y is not None]
        axes.plot([x for x, *_ in points], [y for _, y, _ in points], marker="o", linewidth=0.8)
        for x, y, name in points:
            axes.annotate(plain(name, _LONGEST), (x, y), xytext=(4, 4), textcoords="offset points", fontsize="x-small")
        axes.set_xlabel(label)
        axes.set_ylabel("accuracy (%)" if judged else "loss")
        axes.set_xlim(left=0)
        axes.grid(alpha=0.3)
    figure.suptitle(title_of(title), fontsize="medium")
    return figure
