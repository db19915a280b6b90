"""The page of `gen compare`: how far each layer is from onnxruntime, and the whole network."""

import math
from collections import Counter
from collections.abc import Sequence

from gen.check.compare import Compared, Comparison, LayerDifference
from gen.check.detections import Precisions
from gen.check.segments import SegmentsComparison
from gen.report.sheet import Bars, Column, Part, Section, Sheet, Table, repeat

__all__ = ["comparison_sheet"]

#: Differences of outputs that have a bar each; what is further off has the outermost ones.
_FURTHEST = 8


def comparison_sheet(name: str, found: Compared, precision: Precisions | None = None, *, command: str = "") -> Sheet:
    """``found``: a `Comparison` or a `SegmentsComparison` of the model ``name``; ``precision``: of a detector."""
    layers, wrong = found.layers, found.wrong
    differing = sum(one.differing > 0 for one in layers)
    cards = [(f"{len(wrong)}" if wrong else "none", "layers are computed wrongly"),
             (f"{differing} of {len(layers)}", "results of layers differ" + ("" if wrong else ", by rounding")),
             (f"{found.largest}", "steps of int8, the largest difference of a layer"), *_ends(found)]
    findings = [_verdict(wrong), *_noisiest(layers), *_words_of_ends(found)]
    sections = [
        Section(title="Difference of each layer", note="Each layer by itself, on the inputs that onnxruntime gave it: "
                "the share of its values that are another. What rounding explains is one step, or what the roundings "
                "in front of a result are worth there.", blocks=[_differences(layers)]),
        Section(title="Signal to noise of each layer", note="The same values: energy of onnxruntime's over that of the "
                "differences. No bar: no value differs.", blocks=[_noise(layers)]),
        Section(title="Table", note="Select a heading to sort. Steps are those of the int8 result.",
                blocks=[_table(layers)]),
        Section(title="What comes out in the end", note="The whole network, in which differences of layers add up, on "
                "its own inputs.", blocks=_outputs(found))]
    if precision is not None:
        sections.append(_precision(precision))
    if isinstance(found, SegmentsComparison):
        sections.append(Section(title="On the processor", note="Computed by onnxruntime itself.", blocks=[Table(
            label="Nodes on the processor", columns=[Column(name=name, number=False) for name in ("node", "why")],
            rows=list(found.host.items()))]))
    return Sheet(name=name, note=f"against onnxruntime, {found.samples} sample{'' if found.samples == 1 else 's'}",
                 cards=cards, findings=findings, sections=[*sections, repeat(command)])


def _verdict(wrong: Sequence[LayerDifference]) -> str:
    if not wrong:
        return "No layer differs from onnxruntime by more than rounding explains."
    worst = wrong[0]
    return (f"{worst.layer} ({worst.op}) is computed wrongly: {worst.beyond:,} of {worst.values:,} values differ by up "
            f"to {worst.largest} steps where {worst.allowed} are explained.")


def _noisiest(layers: Sequence[LayerDifference]) -> list[str]:
    known = [one for one in layers if one.sqnr_db is not None]
    if not known:
        return []
    worst = min(known, key=lambda one: one.sqnr_db or 0)
    said = (f"{worst.layer} has the most noise of rounding: {worst.sqnr_db:.1f} dB, "
            f"{100 * worst.differing / max(1, worst.values):.2g} % of its values are another.")
    return [said]


def _ends(found: Compared) -> list[tuple[str, str]]:
    if not isinstance(found, Comparison | SegmentsComparison) or not found.outputs:
        return []
    near = [one.sqnr_db for one in found.outputs if one.sqnr_db is not None]
    return [("exact" if not near else f"{min(near):.1f} dB", "signal to noise of the worst output"),
            (f"{100 * min(one.agreement for one in found.outputs):.1f} %", "of the answers are the same")]


def _words_of_ends(found: Compared) -> list[str]:
    if not isinstance(found, Comparison | SegmentsComparison) or not found.outputs:
        return []
    agreement, output = min((one.agreement, one.output) for one in found.outputs)
    return [f"Over the whole network {100 * agreement:.1f} % of the answers are the same"
            + (f", of output {output}, the worst." if len(found.outputs) > 1 else ".")]


def _called(layers: Sequence[LayerDifference]) -> list[str]:
    """Names, with the operation where a layer has several rows."""
    many = Counter(one.layer for one in layers)
    return [f"{one.layer}, {one.op}" if many[one.layer] > 1 else one.layer for one in layers]


def _share(count: int, one: LayerDifference) -> float:
    return round(100 * count / max(1, one.values), 4)


def _differences(layers: Sequence[LayerDifference]) -> Bars:
    return Bars(label="Share of values that differ, of each layer; the table has the figures", names=_called(layers),
                axis="values that differ, %", unit=" %", parts=[
                    Part(name="as rounding explains", role="light",
                         values=[_share(one.differing - one.beyond, one) for one in layers]),
                    *([Part(name="by more", role="wrong", values=[_share(one.beyond, one) for one in layers])]
                      if any(one.beyond for one in layers) else [])])


def _noise(layers: Sequence[LayerDifference]) -> Bars:
    return Bars(label="Signal to noise of each layer in dB; the table has the figures", names=_called(layers),
                axis="SQNR in dB: the more the better", unit=" dB",
                parts=[Part(name="SQNR", role="main", values=[_rounded(one.sqnr_db) for one in layers])])


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _table(layers: Sequence[LayerDifference]) -> Table:
    words = [Column(name=name, number=False) for name in ("layer", "operation", "tensor")]
    numbers = [Column(name=name) for name in ("values", "differing", "% differing", "largest", "allowed", "beyond",
                                               "SQNR dB")]
    return Table(label="Table of layers", columns=[*words, *numbers], rows=[
        (one.layer, one.op, one.tensor, one.values, one.differing, _share(one.differing, one), one.largest,
         one.allowed, one.beyond, _rounded(one.sqnr_db)) for one in layers],
        marked=[number for number, one in enumerate(layers) if one.beyond])


def _outputs(found: Compared) -> list[Bars | Table]:
    if isinstance(found, SegmentsComparison):
        columns = ["values", "differing", "largest difference", "SQNR dB", "% same answers"]
        return [Table(label="Outputs", columns=[Column(name="output", number=False), *map(_number, columns)], rows=[
            (one.output, one.values, one.differing, one.largest if math.isfinite(one.largest) else "another shape",
             _rounded(one.sqnr_db), round(100 * one.agreement, 2)) for one in found.outputs])]
    if not isinstance(found, Comparison):
        return []
    columns = ["values", "equal", "by one step", "by more", "largest", "SQNR dB", "% same answers",
               "differ in the host's part"]
    table = Table(label="Outputs", columns=[Column(name="output", number=False), *map(_number, columns)], rows=[
        (one.output, sum(one.distribution.values()), one.distribution.get(0, 0),
         sum(one.distribution.get(step, 0) for step in (-1, 1)),
         sum(many for step, many in one.distribution.items() if abs(step) > 1),
         max(map(abs, one.distribution), default=0), _rounded(one.sqnr_db), round(100 * one.agreement, 2),
         one.host_differing) for one in found.outputs])
    return [*(_distribution(one.output, one.distribution) for one in found.outputs
              if any(one.distribution)), table]


def _number(name: str) -> Column:
    return Column(name=name)


def _distribution(output: str, counted: dict[int, int]) -> Bars:
    """Values by how many steps they are off."""
    furthest = min(_FURTHEST, max(map(abs, counted)))
    within: Counter[int] = Counter()
    for step, many in counted.items():
        within[max(-furthest, min(furthest, step))] += many
    beyond = any(abs(step) > furthest for step in counted)
    names = [f"{step:+d}" if step else "0" for step in range(-furthest, furthest + 1)]
    if beyond:
        names[0], names[-1] = f"≤ {names[0]}", f"≥ {names[-1]}"
    whole = sum(counted.values())
    return Bars(label=f"Values of {output} by their difference; the table has the figures", names=names,
                across=f"{output}: steps from onnxruntime's value", axis="% of the values", unit=" %", upright=True,
                parts=[Part(name="values", role="main", values=[
                    round(100 * within[step] / whole, 3) for step in range(-furthest, furthest + 1)])])


def _precision(found: Precisions) -> Section:
    rows = [(name, round(100 * one.map_50, 2), round(100 * one.map, 2)) for name, one in (
        ("float", found.float), ("quantised, onnxruntime", found.quantized), ("this machine", found.machine))
        if one is not None]
    return Section(title="Mean average precision", note="Of the detector on the same samples.", blocks=[Table(
        label="Mean average precision", columns=[Column(name="model", number=False), _number("mAP 0.5, %"),
                                                 _number("mAP 0.5 to 0.95, %")], rows=rows)])
