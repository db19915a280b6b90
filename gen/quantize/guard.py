"""Whether a quantised model has lost more than it may."""

import math
from collections.abc import Callable
from itertools import accumulate

from gen.quantize.report import LayerNoise, Report

__all__ = ["excess", "unasked", "worse_than"]

#: Layers that a line names at most.
_NAMED = 3
#: What a method may lose against another: in dB, and in points.
_DECIBELS, _POINTS = 3.0, 1.0


def unasked(report: Report) -> float:
    """The points that may be lost without a word: one, and 25 dB where nothing but energy judges."""
    return 1.0 if _judged(report) is not None or report.scores else 100 * 10 ** -2.5


def excess(report: Report, points: float, left: Callable[[], str] = lambda: "") -> str:
    """What a model has lost beyond ``points``, where, and what would help; "" if it has not. ``left`` tells where, if
    it is known better than by the table of layers.

    A point is a hundredth of, in this order: the labels' right answers; a detector's mAP at an overlap of 0.5; the
    answers of the first output, if they are scores of classes; an output's energy that is noise, of which 1 is 20 dB. A
    range that clips more than it gains is too much whatever the answers are, as a few hundred samples do not show all
    that it costs.
    """
    lost = _lost(report, points)
    rows = report.clipped
    if not lost and not rows:
        return ""
    if rows:
        where = ", ".join(f"{_named(row)} at {row.own_db:.1f} dB, {row.whole_db:.1f} with all values"
                          for row in rows[:_NAMED])
        lost = lost or "ranges clip more than they gain"
        return f"{lost}: the range clips {where}; --method minmax may help"
    if line := left():
        return f"{lost}: {line}"
    worst = _falls(report)
    where = ", ".join(f"{_named(row)}, {fall:.1f} dB to {row.sqnr_db:.1f}" for fall, row in worst)
    nodes = [row.layer for _, row in worst if row.layer]
    keep = f", or --keep-float {nodes[0]}" if nodes else ""
    return f"{lost}: most at {where}; more samples, --equalize with --bias-correction{keep} may help"


def worse_than(report: Report, other: Report, method: str) -> str:
    """That ``other``, of the same samples by ``method``, is better by more than 3 dB at an output, or by more than a
    point of accuracy or mAP; "" if not.
    """
    found = []
    mine, best = _judged(report), _judged(other)
    if mine is not None and best is not None and _points(best[2] - mine[2]) > _POINTS:
        found.append(f"{mine[0]} {100 * best[2]:.2f} in place of {100 * mine[2]:.2f} %")
    for name, sqnr in report.outputs.items():
        theirs = other.outputs[name]
        if sqnr is not None and theirs is not None and theirs - sqnr > _DECIBELS:
            found.append(f"output {name} at {theirs:.1f} in place of {sqnr:.1f} dB")
    return f"warning: --method {method} is better on these samples: {', '.join(found)}" if found else ""


def _points(share: float) -> float:
    """A difference of shares in points, without what floats add to a whole one."""
    return round(100 * share, 9)


def _named(row: LayerNoise) -> str:
    return f"{row.layer} ({row.tensor})" if row.layer else f"input {row.tensor}"


def _judged(report: Report) -> tuple[str, float, float] | None:
    """What a model is judged by, if objects or labels are known: of the float one and of the quantised one."""
    if report.precision_float is not None and report.precision_quantized is not None:
        return "mAP at an overlap of 0.5", report.precision_float.map_50, report.precision_quantized.map_50
    if report.accuracy_float is not None and report.accuracy_quantized is not None:
        return "accuracy", report.accuracy_float, report.accuracy_quantized
    return None


def _lost(report: Report, points: float) -> str:
    judged = _judged(report)
    if judged is not None:
        what, before, after = judged
        return (f"{what} falls from {100 * before:.2f} to {100 * after:.2f} %, by more than {points:g} points"
                if _points(before - after) > points else "")
    if report.scores:
        other = _points(1 - report.agreement)
        return f"{other:.2f} % of the answers are others, more than {points:g}" if other > points else ""
    bound = -10 * math.log10(points / 100) if points else math.inf
    poor = [(sqnr, name) for name, sqnr in report.outputs.items() if sqnr is not None and sqnr < bound]
    if not poor:
        return ""
    sqnr, name = min(poor)
    return f"output {name} is at {sqnr:.1f} dB, so more than {points:g} % of its energy are noise"


def _falls(report: Report) -> list[tuple[float, LayerNoise]]:
    """Tensors where the SQNR falls most below the lowest one of those before them."""
    rows = [row for row in report.layers if row.sqnr_db is not None]
    levels = [row.sqnr_db or 0.0 for row in rows]
    before = [max(levels, default=0.0), *accumulate(levels, min)]
    falls = [(low - level, row) for low, level, row in zip(before, levels, rows, strict=False)]
    return sorted((pair for pair in falls if pair[0] > 0), key=lambda pair: -pair[0])[:_NAMED]
