"""``gen report``"""

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from gen.cli.calibration import add_calibration_options
from gen.cli.common import add_json_option, messages, print_json, refuse_to_replace, status
from gen.cli.compile import add_compiler_options
from gen.cli.errors import UsageError
from gen.cli.html import command_line
from gen.cli.machine import add_machine_options, chosen_board, open_given, require_single
from gen.cli.memory import add_memory_option, chosen_memory
from gen.cli.profile import megahertz
from gen.files.read import require_file
from gen.files.write import require_writable, write_file

if TYPE_CHECKING:
    from gen.report.document import Report

#: Reports beside each other on a page.
_MOST = 2
#: Arguments that say where a page comes from and goes to; all others say what is measured.
_OF_THE_PAGE = ("models", "output", "trace", "json")

EXAMPLE = """example:
  %(prog)s examples/digits/digits_int8.onnx -o build/report.html"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = ("Write a page to look at, of one file that needs no network: where a model runs and what "
                          "that costs. Two models or programs are drawn beside each other; two machines by programs "
                          "that were compiled for them, or by reports that --json printed.")
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL.onnx|PROGRAM|REPORT.json")
    parser.add_argument("--target", choices=("cycles", "rtl"), default="cycles",
                        help="the time model, or the Verilog (default cycles)")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="the page (default build/report.html)")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write the timeline as JSON for Perfetto, too")
    parser.add_argument("--clock", type=megahertz, metavar="MHZ",
                        help="to reckon with (default: as for `profile`)")
    parser.add_argument("--input", type=Path, metavar="FILE",
                        help="samples for the noise of each layer, as for `run` (default: random ones)")
    parser.add_argument("--run", type=Path, dest="counters", metavar="FILE",
                        help="counters of a device, as `run --target board --counters` writes them: they are drawn "
                             "beside the simulation's")
    add_memory_option(parser)
    add_compiler_options(parser)
    add_calibration_options(parser)
    add_machine_options(parser, for_model=True)
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> None:
    _require_at_most(len(arguments.models))
    output = arguments.output or (None if arguments.json else Path("build/report.html"))
    for path in (output, arguments.trace):
        if path is not None:
            refuse_to_replace(path, *arguments.models, arguments.input, arguments.counters)
            require_writable(path)
    if output and arguments.trace and os.path.realpath(output) == os.path.realpath(arguments.trace):
        raise UsageError(f"the page and --trace are both {output}", code="option-conflict")
    if all(_is_report(path) for path in arguments.models):
        _require_no_choice(arguments)
    saved = {path: _saved(path) for path in arguments.models if _is_report(path)}
    many = sum(len(saved.get(path, (path,))) for path in arguments.models)
    _require_at_most(many)
    if many > 1 and arguments.trace:
        raise UsageError("--trace is of one model", code="option-conflict")
    if many > 1 and arguments.counters:
        raise UsageError("--run is of one model", code="option-conflict")
    from gen.report.page import page_of
    from gen.report.trace import trace_of

    reports = [report for path in arguments.models
               for report in (saved[path] if path in saved else [_report(arguments, path)])]
    if output is not None:
        write_file(output, page_of(reports))
        messages.print(f"{output}: open it in a browser", soft_wrap=True)
    if arguments.trace:
        write_file(arguments.trace, json.dumps(trace_of(reports[0])))
        messages.print(f"{arguments.trace}: open it at https://ui.perfetto.dev", soft_wrap=True)
    if arguments.json:
        from dataclasses import asdict

        print_json(asdict(reports[0]) if len(reports) == 1 else [asdict(report) for report in reports])


def _is_report(path: Path) -> bool:
    return path.suffix == ".json"


def _require_at_most(models: int) -> None:
    if models > _MOST:
        raise UsageError(f"{models} models: a page has at most {_MOST} beside each other")


def _require_no_choice(arguments: argparse.Namespace) -> None:
    """Raises UsageError for an option of machine, compiler or measuring, which do nothing to saved reports."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    usual = vars(parser.parse_args([str(path) for path in arguments.models]))
    for action in parser._actions:
        name = action.dest
        if name in usual and name not in _OF_THE_PAGE and getattr(arguments, name) != usual[name]:
            raise UsageError(f"{action.option_strings[0]} changes nothing in a saved report; give it with the model",
                             code="option-conflict")


def _saved(path: Path) -> "list[Report]":
    from gen.report.read import read_reports

    require_file(path)
    return read_reports(path)


def _report(arguments: argparse.Namespace, path: Path) -> "Report":
    from boards.clock import Clock
    from boards.registry import get_board
    from gen.hw.clock import clock_of
    from gen.report.whole import whole_report

    memory = chosen_memory(arguments)
    application = open_given(arguments, path)
    require_single(application, path)
    with status(f"compiling {path.name}") as remark:
        program, *_ = application.programs(remark)
    board = get_board(program.board or chosen_board(arguments).name)
    clock = Clock(arguments.clock, "given") if arguments.clock else clock_of(board, program.config)
    with status(f"report of {path.name}") as remark:
        return whole_report(application, path, board=board, clock=clock, target=arguments.target, memory=memory,
                            command=command_line(), samples=arguments.input, counters=arguments.counters,
                            progress=remark)
