"""The parts of `gen bench` on optional units: against the machine without them, and narrow Winograd's errors."""

import argparse
import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from rich import box
from rich.table import Table

from gen.cli.bench_part import Part, Rows, models_folder
from gen.cli.common import console, messages, status
from gen.cli.journal import Journal
from gen.cli.machine import chosen_config, described
from gen.cli.plots import write_plots
from gen.files.colours import colour_of
from gen.files.figure import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from cores.config import NpuConfig
    from gen.bench.comparisons import Case, Comparison
    from sim.rtl.machine import RtlMachine

__all__ = ["PARTS", "plot"]

_PLOT = "datapaths"

#: A gap to the ideal below this share needs no explanation.
_EXPLAINED = 0.05


#: Of all parts: each has its colour, whichever are drawn.
_NAMES = ("depthwise", "fusion", "few channels", "binary", "binary, full", "winograd narrow", "winograd exact")


class _Part(NamedTuple):
    name: str
    title: str
    #: The machine it is measured on: the one that the options describe, but for its units.
    config: "NpuConfig"
    cases: list["Case"]


def _parts(arguments: argparse.Namespace) -> tuple[_Part, ...]:
    from gen.bench import binary as binary_benchmarks
    from gen.bench import comparisons
    from gen.bench import winograd as winograd_benchmarks

    def features(*names: str) -> "NpuConfig":
        return chosen_config(arguments, names)

    signs = features("binary")
    binary = [*binary_benchmarks.binary_layers(), binary_benchmarks.bireal_network()]

    return (
        _Part("depthwise", "depthwise layers: one non-zero on the diagonal, and taps and pixels across the lanes",
              features("depthwise"), comparisons.depthwise()),
        _Part("fusion", "depthwise and pointwise layers: by memory, and through the input buffer",
              features("depthwise", "fusion"), comparisons.fusion()),
        _Part("few channels", "first layers: tap by tap, and with rows of the kernel gathered as channels",
              features("gather"), comparisons.few_channels()),
        _Part("binary", "BiRealNet-18: int8, and signs on eight bits for every int8 lane", signs, binary),
        _Part("binary, full", "the same on a fully populated unit",
              dataclasses.replace(signs, binary_rows=signs.oc_lanes), binary),
        _Part("winograd narrow", "VGG16: direct, and Winograd in 8-bit products, two to a multiplier both",
              features("winograd"), winograd_benchmarks.gains()),
        _Part("winograd exact", "VGG16: direct, and Winograd in 10 x 12 bits, one to a multiplier both; a machine of "
              "its own", winograd_benchmarks.EXACT, winograd_benchmarks.gains()),
    )


def _datapaths(arguments: argparse.Namespace) -> Rows:
    """A row for each layer of each part; a part is shown when it ends, even half way, unless JSON is asked for.

    Writes the plot if a folder is given. Raises ConfigError, UsageError, OSError.
    """
    rows: Rows = []
    with Journal() as journal:
        for part in _parts(arguments):
            own: Rows = []
            try:
                _measure(part, journal, own)
            finally:
                if own and not arguments.json:
                    _show(own)
            rows += own
    missed = [row for row in rows if row["reached"] is False]
    if missed:
        messages.print(f"{len(missed)} of {sum(row['goal'] is not None for row in rows)} goals are missed")
    if arguments.output is not None:
        write_plots(arguments, arguments.output, _PLOT, plot(rows),
                    title=["cycles with optional units and without, on the simulated Verilog: of no board or clock",
                           described(chosen_config(arguments), None)])
    return rows


def _measure(part: _Part, journal: Journal, rows: Rows) -> None:
    """Adds each row as it is measured."""
    from sim.rtl.machine import RtlMachine

    with status(part.name) as remark:
        remark("building the simulation (once, a minute or two)")
        with RtlMachine(part.config) as machine:
            for case in part.cases:
                remark(case.layer)
                rows.append(journal.row(f"{part.name}, {case.layer}, {part.config.to_json()}",
                                        partial(_compared, part, case, machine)))


def _compared(part: _Part, case: "Case", machine: "RtlMachine") -> dict[str, Any]:
    return _row(part, case.measure(machine))


def _row(part: _Part, comparison: "Comparison") -> dict[str, Any]:
    goal = comparison.goal
    return {
        "part": part.name, "title": part.title, "layer": comparison.layer, "before": comparison.before,
        "cycles": comparison.cycles, "times": comparison.times, "ideal": round(comparison.ideal),
        "used_%": 100 * comparison.used, "array_%": 100 * comparison.array,
        "goal": None if goal is None else {"of": goal.of, "value": goal.value}, "reached": comparison.reached,
        "wrong": comparison.wrong, "causes": comparison.causes if comparison.used < 1 - _EXPLAINED else {},
        "remark": comparison.remark}


def _goal(row: dict[str, Any]) -> str:
    if row["goal"] is None:
        return ""
    value = row["goal"]["value"]
    text = f"{value:g} times" if row["goal"]["of"] == "times" else f"{100 * value:g} %"
    return text if row["reached"] else f"{text}, missed"


def _causes(row: dict[str, Any]) -> str:
    shares = sorted(((100 * count / row["cycles"], name) for name, count in row["causes"].items()), reverse=True)
    return ", ".join(f"{name.replace('_', ' ')} {share:.1f} %" for share, name in shares if share >= 0.05)


def _cells(row: dict[str, Any], of_array: bool) -> list[str]:
    return [row["layer"], f"{row['before']:,}", f"{row['cycles']:,}", f"{row['times']:.2f}", f"{row['ideal']:,}",
            f"{row['used_%']:.1f}", *[f"{row['array_%']:.1f}"] * of_array, _goal(row), f"{row['wrong']:,}"]


def _show(rows: Rows) -> None:
    """One part's table; after it why layers fall short of the ideal, and remarks."""
    of_array = any(row["goal"] and row["goal"]["of"] == "array" for row in rows)
    headings = ["layer", "before", "cycles", "times", "ideal", "used %", *["array %"] * of_array, "goal", "wrong"]
    cells = [_cells(row, of_array) for row in rows]
    table = Table(title=rows[0]["title"], title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0))
    for number, heading in enumerate(headings):
        # Names give way when the terminal is narrow, figures do not.
        width = None if number == 0 else max(len(line[number]) for line in [headings, *cells])
        table.add_column(heading, justify="left" if heading in ("layer", "goal") else "right", no_wrap=True,
                         min_width=width)
    for line in cells:
        table.add_row(*line)
    console.print(table)
    for row in rows:
        said = "; ".join(text for text in (_causes(row), row["remark"]) if text)
        if said:
            console.print(f"  {row['layer']}: {said}", soft_wrap=True)
    console.print()


def _narrow(arguments: argparse.Namespace) -> Rows:
    """A row for each Winograd layer of ResNet-8 and each way to choose its shifts; shown unless JSON is asked for."""
    from gen.bench.winograd import resnet8_errors

    folder = models_folder(arguments)
    if folder is None:
        return []
    rows = []
    with status("winograd narrow: ResNet-8 on photographs"):
        found = resnet8_errors(folder)
    for shifts, errors in found.items():
        labels = {"labels_changed": errors.labels, "samples": errors.samples, "right": errors.right}
        rows += [{"shifts": shifts, **row, **labels} for row in errors.rows()]
    if arguments.json:
        return rows
    table = Table(title="ResNet-8 with narrow Winograd layers: signal to quantisation noise against direct, dB",
                  title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("layer")
    for shifts in found:
        table.add_column(f"{shifts}: alone", justify="right")
        table.add_column("in the network", justify="right")
    for name in next(iter(found.values())).layers:
        table.add_row(name, *(f"{value:.1f}" for errors in found.values() for value in errors.layers[name]))
    console.print(table)
    for shifts, errors in found.items():
        right = "" if errors.right is None else f"; right before {errors.right[0]}, now {errors.right[1]}"
        console.print(f"  shifts, {shifts}: {errors.labels} of {errors.samples} labels change{right}", soft_wrap=True)
    console.print()
    return rows


def plot(rows: Rows) -> "Figure":
    """How many times fewer cycles each layer takes, a group of bars for each part."""

    parts = list(dict.fromkeys(row["part"] for row in rows))
    figure = new_figure(9, 1.5 + 0.28 * len(rows))
    axes = figure.subplots()
    names = [f"{row['layer']} " for row in rows]
    for part in parts:
        places = [index for index, row in enumerate(rows) if row["part"] == part]
        axes.barh(places, [rows[index]["times"] for index in places], label=part,
                  color=colour_of(part, _NAMES))
    for index, row in enumerate(rows):
        axes.text(row["times"], index, f" {row['times']:.2f}", va="center", fontsize="small")
    axes.set_yticks(range(len(rows)), names)
    axes.margins(x=0.08, y=0.01)
    axes.invert_yaxis()
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel("cycles before, over cycles with the unit")
    axes.legend(fontsize="small", loc="upper right")
    return figure


PARTS = (
    Part("datapaths", "", _datapaths, _PLOT),
    Part("narrow", "", _narrow),
)
