"""`gen profile --on A --on B`: a model on several machines side by side, and what pruning would save on each."""

import argparse
import contextlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from boards.board import Board
from boards.clock import Clock
from boards.registry import get_board
from gen.cli.calibration import chosen_calibration
from gen.cli.common import console, messages, print_json
from gen.cli.errors import UsageError
from gen.cli.machine import add_machine_options, chosen_board, chosen_for, machine_given, machine_words, open_given
from gen.cli.memory import chosen_memory
from gen.cli.plots import plot_files, write_plots
from gen.files.write import write_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gen.run.application import Application
    from gen.run.calibration import Calibration

__all__ = ["machine_options", "side_by_side"]

Measure = Callable[["Application", str, Clock, Board | None], dict[str, Any]]

#: Of the weights, kept in the model that is pruned for the comparison, where a machine has steps as fine.
_KEPT = 0.25
_LETTERS = "ABCDEFGH"
#: Characters of a name in a plot.
_LONGEST_NAME = 60


class _Parser(argparse.ArgumentParser):
    """Says what is wrong as an ArgumentTypeError, which is of the option that it is the value of."""

    def error(self, message: str) -> Any:
        raise argparse.ArgumentTypeError(message)


def machine_options(text: str) -> argparse.Namespace:
    """Of --on: options of a machine as NAME=VALUE, separated by commas. Raises ArgumentTypeError."""
    words = []
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise argparse.ArgumentTypeError(f"must be options of a machine such as macs=256,features=gather+fusion, "
                                             f"not {text}")
        words += [f"--{name.strip().replace('_', '-')}", value.strip().replace("+", ",")]
    parser = _Parser(prog="--on", add_help=False, allow_abbrev=False)
    add_machine_options(parser)
    with contextlib.redirect_stderr(io.StringIO()):
        return parser.parse_args(words)


def side_by_side(arguments: argparse.Namespace, measure: Measure) -> None:
    """``measure``: the profile of an application as ``--json`` prints it, by target, clock and memory.

    Raises UsageError for options that do not go together, and what a profile does.
    """
    if not 2 <= len(arguments.on) <= len(_LETTERS):
        raise UsageError(f"--on: two to {len(_LETTERS)} machines are compared, not {len(arguments.on)}")
    if arguments.board is not None:
        raise UsageError(f"--on says what the machines are: give the board there, as in --on board={arguments.board},"
                         "macs=64", code="option-conflict")
    if machine_given(arguments):
        raise UsageError("--on says what the machines are: give options of a machine there, as in --on "
                         "macs=64,features=gather", code="option-conflict")
    for option in ("html", "density"):
        if getattr(arguments, option) is not None:
            raise UsageError(f"--{option} does not go with --on", code="option-conflict")
    calibration = chosen_calibration(arguments, lambda text: None)
    machines = [_measured(arguments, options, letter, measure, calibration)
                for options, letter in zip(arguments.on, _LETTERS, strict=False)]
    found = {"machines": [{name: value for name, value in one.items() if name != "layers"} for one in machines],
             "layers": _rows(machines)}
    if arguments.output:
        write_file(arguments.output / "profile.json", json.dumps(found, indent=2) + "\n")
        write_plots(arguments, arguments.output, "profile", _plot(found, arguments.model.stem, arguments.memory))
        messages.print(f"{arguments.output}: {', '.join(['profile.json', *plot_files(arguments, 'profile')])}",
                       soft_wrap=True)
    if arguments.json:
        print_json(found)
    else:
        _show(found)


def _measured(arguments: argparse.Namespace, options: argparse.Namespace, letter: str, measure: Measure,
              calibration: "Calibration | None") -> dict[str, Any]:
    """A machine: what it is, cycles and time of the model, and of each layer, as it is and pruned.

    Where its units are chosen they are for the model as it is.
    """
    from gen.hw.clock import clock_of
    from gen.passes.prune import rounded_density

    machine = chosen_for(argparse.Namespace(**{**vars(arguments), **vars(options)}), arguments.model,
                         calibration=calibration)
    sides = []
    for density in (None, _KEPT):
        one = argparse.Namespace(**{**vars(machine), "density": density})
        application = open_given(one, arguments.model, calibration=calibration, again=density is not None)
        program, *_ = application.programs()
        board = get_board(chosen_board(one).name)
        clock = Clock(arguments.clock, "given") if arguments.clock else clock_of(board, program.config)
        sides.append(measure(application, arguments.target, clock, chosen_memory(one)))
    whole, pruned = sides
    layers = [{layer["name"]: layer["cycles"] for layer in side["layers"]} for side in (whole, pruned)]
    return {"machine": letter, "what": machine_words(program.config, board.name),
            "kept": rounded_density(_KEPT, program.config), "clock_mhz": clock.mhz, "clock": clock.basis,
            "cycles": whole["total"]["cycles"], "ms": 1000 / whole["total"]["fps"],
            "utilisation": whole["total"]["utilisation"], "pruned_cycles": pruned["total"]["cycles"],
            "layers": {name: (cycles, layers[1].get(name)) for name, cycles in layers[0].items()}}


def _rows(machines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of each layer that any machine has, in order: its cycles on each, and as it is pruned; None where it is not."""
    names = dict.fromkeys(name for one in machines for name in one["layers"])
    return [{"name": name, "cycles": [one["layers"].get(name, (None, None))[0] for one in machines],
             "pruned": [one["layers"].get(name, (None, None))[1] for one in machines]} for name in names]


def _saved(cycles: int | None, pruned: int | None, total: int) -> float | None:
    """Percent of all cycles that pruning the layer saves."""
    return None if cycles is None or pruned is None else round(100 * (cycles - pruned) / max(1, total), 6) + 0.0


def _show(found: Mapping[str, Any]) -> None:
    machines = found["machines"]
    for one in machines:
        console.print(f"{one['machine']}: {one['what']}; {Clock(one['clock_mhz'], one['clock'])}; "
                      f"{one['ms']:.4g} ms, {100 * one['utilisation']:.0f} % used", soft_wrap=True)
    table = Table(box=box.SIMPLE, show_footer=True, padding=(0, 1, 0, 0))
    table.add_column("layer", "total", overflow="fold")
    first, *others = machines
    for one in machines:
        table.add_column(f"cycles\n{one['machine']}", f"{one['cycles']:,}", justify="right", no_wrap=True)
    for one in others:
        table.add_column(f"{first['machine']} over\n{one['machine']}", f"{first['cycles'] / one['cycles']:.2f}",
                         justify="right", no_wrap=True)
    for one in machines:
        table.add_column(f"saved %\n{one['machine']}",
                         f"{_saved(one['cycles'], one['pruned_cycles'], one['cycles']):.1f}", justify="right",
                         no_wrap=True)
    for row in found["layers"]:
        begin, *rest = row["cycles"]
        table.add_row(
            row["name"], *("" if value is None else f"{value:,}" for value in row["cycles"]),
            *("" if begin is None or not value else f"{begin / value:.2f}" for value in rest),
            *(_percent(_saved(cycles, pruned, one["cycles"])) for cycles, pruned, one in zip(
                row["cycles"], row["pruned"], machines, strict=True)))
    console.print(table)
    console.print(f"saved: percent of all cycles that a layer, or the model, takes less with {_kept(machines)} of each "
                  "block's weights: what is worth pruning", soft_wrap=True)


def _kept(machines: Sequence[Mapping[str, Any]]) -> str:
    """The share of the weights, of each machine where they differ: some have coarser steps."""
    shares = [f"{100 * one['kept']:.0f} %" for one in machines]
    if len(set(shares)) == 1:
        return shares[0]
    return ", ".join(f"{share} ({one['machine']})" for share, one in zip(shares, machines, strict=True))


def _percent(value: float | None) -> str:
    return "" if value is None else f"{round(value, 1) + 0.0:.1f}"


def _plot(found: Mapping[str, Any], name: str, memory: str) -> "Figure":
    """Bars of ms of each layer on each machine, the part that pruning saves lighter; ``memory``: theirs."""
    from gen.files.colours import COMPARED
    from gen.files.figure import new_figure, plain, title_of

    machines, rows = found["machines"], found["layers"]
    figure = new_figure(9, 1.5 + 0.2 * len(machines) * len(rows))
    axes = figure.subplots()
    height = 0.8 / len(machines)
    for number, one in enumerate(machines):
        places = [row - 0.4 + (number + 0.5) * height for row in range(len(rows))]
        per_ms = 1000 * one["clock_mhz"]
        whole = [(row["cycles"][number] or 0) / per_ms for row in rows]
        pruned = [whole[at] if row["pruned"][number] is None else row["pruned"][number] / per_ms
                  for at, row in enumerate(rows)]
        axes.barh(places, whole, height, alpha=0.4, color=COMPARED[number])
        axes.barh(places, pruned, height, label=f"{one['machine']}: {one['what']}",
                  color=COMPARED[number])
    axes.set_yticks(range(len(rows)), [plain(row["name"], _LONGEST_NAME) for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel(f"ms; lighter: what pruning to {_kept(machines)} of the weights saves")
    clocks = [str(Clock(one["clock_mhz"], one["clock"])) for one in machines]
    said = clocks[0] if len(set(clocks)) == 1 else "; ".join(
        f"{one['machine']}: {clock}" for one, clock in zip(machines, clocks, strict=True))
    axes.set_title(title_of([f"{name}, side by side", f"clock: {said}; memory: {memory}"]), fontsize="medium")
    axes.legend(fontsize="small")
    return figure
