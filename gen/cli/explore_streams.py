"""`gen explore` of a space of stochastic networks."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from gen.cli.bench_part import named_folder
from gen.cli.common import console, print_json, refuse_to_replace
from gen.cli.errors import CommandError, UsageError
from gen.cli.examiner import required_examiner
from gen.cli.explore_search import explore_files, require_sensible_workers, searched, write_found, write_page
from gen.cli.html import require_html
from gen.cli.machine import chosen_board
from gen.files.write import require_writable

if TYPE_CHECKING:
    from gen.explore.report import Found
    from gen.explore.streams import StreamProblem
    from gen.explore.task import Task
    from gen.stochastic.accuracy import Examiner

__all__ = ["explore", "stream_problem", "stream_title"]

#: Options that only models have.
_OF_MODELS = ("calibrate", "space", "vary", "input", "limit", "shape")
#: Points that are shown, the best first.
_SHOWN = 10


def explore(arguments: argparse.Namespace) -> None:
    from gen.explore.convergence import best_so_far, plot_convergence
    from gen.explore.errors import ExploreError
    from gen.explore.methods import chosen_method
    from gen.stochastic.cycles import BASIS

    path = _space_file(arguments)
    problem = _problem(arguments, path)
    try:
        name, method = chosen_method(arguments.method, problem, arguments.evaluations, arguments.seed,
                                     problem.task.controller)
    except ExploreError as error:
        raise UsageError.of(error, str(error)) from None
    found = searched(arguments, problem, name, method)
    facts = {"space_of": "stochastic networks", "energy": "relative", "cycles": BASIS,
                            "board": chosen_board(arguments).name, "method": name,
                            "seed": arguments.seed if name != "grid" else None, "size": problem.space.size}
    result = found.to_dict(facts)
    if arguments.output:
        goal = problem.objectives[0]
        title = stream_title(path.stem, problem.task, chosen_board(arguments).title)
        figure = plot_convergence({name: [best_so_far(found.evaluations, goal)]}, goal.name, title)
        write_found(arguments, found, result, figure)
    write_page(arguments, found, facts)
    if arguments.json:
        print_json(result)
    else:
        _show(found, every=arguments.all)


def stream_title(name: str, task: "Task", board: str) -> list[str]:
    """Of a plot, in lines."""
    clocks = ", ".join(f"{level.mhz:g}" for level in task.table.used)
    return [f"{name}: stochastic networks", f"{task.macs} MACs on {board}; clock: {clocks} MHz, given by the levels"]


def _space_file(arguments: argparse.Namespace) -> Path:
    """Raises UsageError for options that have no meaning with it."""
    if len(arguments.models) > 1:
        raise UsageError("a space of stochastic networks is explored by itself; leave the models out",
                         code="option-conflict")
    given = next((name for name in _OF_MODELS if getattr(arguments, name)), None)
    if given is not None:
        raise UsageError(f"--{given} is for models, not for a space of stochastic networks", code="option-conflict")
    require_sensible_workers(arguments)
    require_html(arguments, *arguments.models)
    for name in explore_files(arguments) if arguments.output else ():
        require_writable(arguments.output / name)
        refuse_to_replace(arguments.output / name, *arguments.models)
    return arguments.models[0]


def _problem(arguments: argparse.Namespace, path: Path) -> "StreamProblem":
    from gen.explore.errors import ExploreError, SpaceError
    from gen.explore.streams import known_objectives
    from gen.explore.task import read_task
    from gen.stochastic.errors import BackboneError

    try:
        task = read_task(path)
    except SpaceError as error:
        raise CommandError.of(error, str(error)) from None
    unknown = next((name for name in arguments.objectives if name not in known_objectives()), None)
    if unknown is not None:
        raise UsageError(f"no objective {unknown!r}; there are {', '.join(known_objectives())}", code="unknown-name")
    folder = named_folder(arguments.images, "--images")
    try:
        judge = required_examiner(folder, task.example)
        return stream_problem(task, judge, chosen_board(arguments).family, arguments.objectives)
    except (BackboneError, ExploreError) as error:
        raise CommandError.of(error, f"{path}: {error}") from None


def stream_problem(task: "Task", judge: "Examiner", family: str, objectives: tuple[str, ...] = ()) -> "StreamProblem":
    """Raises BackboneError for images of another size, SpaceError."""
    from cores.config import NpuConfig
    from gen.explore.stream_meter import StreamMeter
    from gen.explore.streams import REWARD, StreamProblem
    from gen.stochastic.backbone import Backbone

    for backbone in (task.example, *map(Backbone, task.backbones)):
        judge.images.for_backbone(backbone, slice(0, 1))
    problem = StreamProblem(task, NpuConfig.preset(task.macs), family, StreamMeter(judge), objectives or (REWARD,))
    assert problem.space.size
    return problem


def _show(found: "Found", *, every: bool) -> None:
    """The best points, or all of them, and how many are none."""
    from gen.stochastic.cycles import BASIS

    goal = found.objectives[0]
    order = sorted(found.evaluations, key=lambda one: (not one.feasible, goal.loss(one.figures.get(goal.name, 0))))
    shown = order if every else [one for one in order if one.feasible][:_SHOWN]
    lengths = [name for name in found.space.axes if name.startswith("length_")]
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    for heading in ("backbone", "circuit"):
        table.add_column(heading, overflow="fold")
    for heading in (*(f"bits {name.removeprefix('length_')}" for name in lengths), "ms", "accuracy, %", "inferences",
                    "reward", ""):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in shown:
        figures: dict[str, Any] = dict(one.figures)
        accuracy = [figures.get(name.replace("length", "accuracy")) for name in lengths]
        table.add_row(
            str(one.facts.get("backbone", one.point.get("backbone"))), str(one.point["circuit"]),
            *(str(one.point[name]) for name in lengths),
            " ".join(_text(figures.get(name.replace("length", "ms")), ".4f") for name in lengths),
            " ".join("" if value is None else f"{100 * value:.1f}" for value in accuracy),
            _text(figures.get("inferences"), ","), f"{figures['reward']:.4f}", "" if one.feasible else "infeasible")
    console.print(table)
    feasible = sum(one.feasible for one in found.evaluations)
    console.print(f"{feasible:,} feasible of {len(found.evaluations):,} points looked at, {found.space.size:,} in all; "
                  f"cycles {BASIS}, energies relative", soft_wrap=True)


def _text(value: float | None, form: str) -> str:
    """"" where it is not known: a point that is no network has no figures."""
    return "" if value is None else format(value, form)
