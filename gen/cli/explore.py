"""``gen explore``"""

import argparse
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boards.registry import BOARDS
from gen.cli.calibration import progress_of, say
from gen.cli.common import add_json_option, messages, print_json, refuse_to_replace, status
from gen.cli.compile import add_shape_option
from gen.cli.errors import CommandError, UsageError
from gen.cli.explore_search import (
    add_worker_options,
    explore_files,
    require_sensible_workers,
    searched,
    write_found,
    write_page,
)
from gen.cli.explore_table import show
from gen.cli.html import add_html_option, require_html
from gen.cli.machine import DEFAULT_BOARD, chosen_board, require_inputs
from gen.cli.plots import add_plots_option
from gen.cli.run import positive
from gen.explore.methods import METHODS
from gen.files.write import require_writable

if TYPE_CHECKING:
    from gen.explore.accuracy import Judgement
    from gen.explore.meter import MachineMeter
    from gen.explore.models import ModelFile
    from gen.explore.report import Found
    from gen.explore.space import Space

EXAMPLE = """example:
  %(prog)s examples/digits/digits_int8.onnx --vary macs=64,128,256 --vary features=none,fusion+gather \\
      -o build/explore"""

_EVALUATIONS = 256


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = ("Search machines for models: cycles by the time model, as `profile` has them, against what "
                          "they take of a board's device; or stochastic networks for a battery, with a space alone "
                          "(docs/explore.md).")
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL.onnx|SPACE.yaml",
                        help="ONNX model, quantised, or float with --calibrate; cycles of several are added; or a "
                             "space of stochastic networks")
    parser.add_argument("--board", metavar="NAME", help=f"{', '.join(BOARDS)} (default {DEFAULT_BOARD})")
    parser.add_argument("--calibrate", type=Path, metavar="X.npz|FOLDER",
                        help="samples to quantise float models on; `quantize` has more ways to")
    space = parser.add_argument_group("space", "default: the presets of --macs, and the optional units for any network")
    space.add_argument("--space", type=Path, metavar="SPACE.yaml|json", help="parameters, each with a list of values")
    space.add_argument("--vary", type=_axis, action="append", default=[], metavar="NAME=VALUE,VALUE",
                       help="the values of a parameter: macs, for, features (joined by +), any field of the "
                            "configuration (input_depth), density, memory, clock; several times; replaces the file's")
    how = parser.add_argument_group("search")
    how.add_argument("--objectives", type=_names, default=(), metavar="LIST",
                     help="cycles, ms, bus_bytes, area (mean share of the device's resources, %%), the resources by "
                          "name (lut, dsp, ...), kept, accuracy (default cycles,area, and kept if density is varied)")
    how.add_argument("--method", choices=METHODS, default="auto",
                     help="all points; so many at random; optuna's NSGA-II; for stochastic networks a recurrent "
                          "controller (default auto: grid, or random where there are more points than --evaluations)")
    how.add_argument("--evaluations", type=positive, default=_EVALUATIONS, metavar="N",
                     help=f"points at most, but of grid (default {_EVALUATIONS})")
    how.add_argument("--seed", type=_natural, default=0, metavar="N", help="of all but grid (default 0)")
    how.add_argument("--input", type=Path, metavar="X.npz|FOLDER",
                     help="samples for the objective accuracy, with an array `label`; without labels a sample is right "
                          "where the pruned model answers as the model does")
    how.add_argument("--images", type=Path, metavar="DIR",
                     help="folder of MNIST's and CIFAR-10's images, for stochastic networks (default: NPUGEN_MODELS, "
                          "or ../shared/models beside a checkout)")
    how.add_argument("--limit", type=positive, metavar="N", help="the first N samples of --input")
    add_worker_options(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="FOLDER",
                        help="write explore.json, explore.csv and a plot there")
    add_html_option(parser, "the trade-off, and all points with what is known of them")
    add_plots_option(parser)
    parser.add_argument("--all", action="store_true", help="show all points, not the front alone")
    add_shape_option(parser)
    add_json_option(parser)


def _axis(text: str) -> tuple[str, list[Any]]:
    name, equals, values = text.partition("=")
    if not equals or not values:
        raise argparse.ArgumentTypeError(f"must be a parameter and its values, such as macs=64,128, not {text}")
    return name.strip().replace("-", "_"), [_value(value.strip()) for value in values.split(",")]


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if len(set(names)) != len(names):
        raise argparse.ArgumentTypeError(f"one of them stands there twice: {text}")
    return names


def _natural(text: str) -> int:
    if not text.isdecimal() or int(text) >= 1 << 32:
        raise argparse.ArgumentTypeError(f"must be a number in 0..{(1 << 32) - 1}, not {text}")
    return int(text)


def run(arguments: argparse.Namespace) -> None:
    from gen.explore.task import is_space_file

    if any(is_space_file(path) for path in arguments.models):
        from gen.cli.explore_streams import explore

        return explore(arguments)
    if arguments.images:
        raise UsageError("--images is for stochastic networks; --input has samples for a model", code="option-conflict")
    board = chosen_board(arguments)
    require_sensible_workers(arguments)
    if arguments.input and len(arguments.models) > 1:
        raise UsageError("--input has samples for one model; explore one model at a time, or leave --input out",
                         code="option-conflict")
    if arguments.limit and not arguments.input:
        raise UsageError("--limit counts samples of --input; give --input, too", code="option-conflict")
    for name in explore_files(arguments) if arguments.output else ():
        require_writable(arguments.output / name)
        refuse_to_replace(arguments.output / name, arguments.space, *arguments.models)
    require_html(arguments, arguments.space, arguments.input, arguments.calibrate, *arguments.models)
    from gen.explore.errors import ExploreError
    from gen.explore.machines import MachineProblem
    from gen.explore.methods import chosen_method

    space = chosen_space(arguments)
    meter = _meter(arguments)
    try:
        problem = MachineProblem(space, board, meter, arguments.objectives)
        name, method = chosen_method(arguments.method, problem, arguments.evaluations, arguments.seed)
    except ExploreError as error:
        raise UsageError.of(error, str(error)) from None
    found = searched(arguments, problem, name, method)
    facts = {"board": board.name, "models": [{"name": model.name, "digest": model.digest} for model in meter.models],
             "method": name, "seed": arguments.seed if name != "grid" else None, "size": space.size}
    result = found.to_dict(facts)
    if arguments.output:
        _write(arguments, found, result)
    write_page(arguments, found, facts)
    if arguments.json:
        print_json(result)
    else:
        show(found, every=arguments.all)


def chosen_space(arguments: argparse.Namespace) -> "Space":
    """Of --space and --vary. Raises CommandError that names the file, UsageError."""
    from gen.explore.errors import SpaceError
    from gen.explore.parameters import default_axes, space_of
    from gen.files.document import DocumentError, read_document

    axes: dict[str, Any] = {}
    if arguments.space:
        try:
            axes = read_document(arguments.space, "a space", extra="explore")
            if not isinstance(axes, dict) or not all(isinstance(name, str) for name in axes):
                raise SpaceError("must be parameters, each with a list of values")
            space_of(axes)
        except (DocumentError, SpaceError) as error:
            raise CommandError.of(error, f"{arguments.space}: {error}") from None
    twice = next((name for name, count in Counter(name for name, _ in arguments.vary).items() if count > 1), None)
    if twice is not None:
        raise UsageError(f"--vary {twice}: give all its values at once, separated by commas")
    try:
        return space_of({**axes, **dict(arguments.vary)} or default_axes())
    except SpaceError as error:
        raise UsageError.of(error, f"--vary {error}") from None


def _meter(arguments: argparse.Namespace) -> "MachineMeter":
    """The models, read and tried once: what is wrong with them is said before anything is searched."""
    from gen.explore.meter import MachineMeter
    from gen.onnx.machine import Machine

    with status("reading the models") as remark:
        models, remarks = _models(arguments, remark)
        meter = MachineMeter(models, _judgement(arguments, models[0]))
        for model in models:
            meter.model(model.digest).graphs(Machine.complete())
    say(remarks)
    for model in models:
        if host := meter.model(model.digest).host:
            nodes = "node runs" if len(host) == 1 else "nodes run"
            messages.print(f"{model.name}: {len(host)} {nodes} on the processor, not counted in the cycles",
                           soft_wrap=True)
    return meter


def _models(arguments: argparse.Namespace, remark: Callable[[str], None]) -> "tuple[list[ModelFile], list[str]]":
    """With remarks for people."""
    from gen.explore.models import read_model_file
    from gen.onnx.read import parse
    from gen.run.calibration import Calibration

    calibration = Calibration(arguments.calibrate, progress=progress_of(remark)) if arguments.calibrate else None
    models, remarks = [], list[str]()
    for path in arguments.models:
        model, more = read_model_file(path, calibration, dict(arguments.shape))
        models.append(model)
        remarks += more
    if len({model.digest for model in models}) < len(models):
        raise UsageError("one of the models is there twice")
    if arguments.shape:
        require_inputs(arguments, [one.name for model in models for one in parse(model.name, model.content).inputs])
    return models, remarks


def _judgement(arguments: argparse.Namespace, model: "ModelFile") -> "Judgement | None":
    if not arguments.input:
        return None
    from gen.explore.accuracy import Judgement
    from gen.onnx.read import parse
    from gen.run.inputs import model_specs, read_samples

    samples = read_samples(arguments.input, model_specs(parse(model.name, model.content).inputs),
                           limit=arguments.limit)
    return Judgement(samples.inputs, samples.labels)


def _write(arguments: argparse.Namespace, found: "Found", result: dict[str, Any]) -> None:
    from gen.explore.plot import plot

    title = f"{', '.join(path.stem for path in arguments.models)} on {result['board']}"
    write_found(arguments, found, result, plot(found, title))
