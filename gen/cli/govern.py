"""``gen govern``"""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from boards.registry import get_board
from gen.cli.common import add_json_option, console, counter, messages, print_json, refuse_to_replace, status
from gen.cli.errors import FAILED, UsageError
from gen.cli.machine import DEFAULT_BOARD, described, require_single
from gen.cli.plots import add_plots_option, plot_files, write_plots
from gen.cli.profile import megahertz
from gen.cli.run import positive, stream_shifts
from gen.files.write import require_writable, write_file
from gen.name import speaker

if TYPE_CHECKING:
    from cores.config import NpuConfig
    from gen.energy.levels import Level as Setting
    from gen.govern.discharge import Discharge
    from gen.govern.measured import ProgramVariant
    from gen.run.application import Application
    from gen.run.inputs import Samples
    from npudriver.levels import LevelTable, Plan

EXAMPLE = """example:
  %(prog)s build/digits-streams.npu --input examples/digits/digits_test.npz --limit 40 --shifts 0,1,2 -o build/govern"""

_NAME, _TABLE, _HEADER = "discharge", "governor.json", "npugen_levels.h"
_INFERENCES, _MOST_INFERENCES = 100, 1_000_000
_HYSTERESIS = 2.0
#: Without a table of levels; what a machine's voltage is does not matter then.
_VOLTS = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = ("Levels for the driver's governor, which by charge and deadline chooses the program and the "
                          "length of its streams (docs/governor.md), and a whole discharge of a battery, in which "
                          "every inference is made at the chosen level on a simulated device.")
    parser.add_argument("programs", type=Path, nargs="+", metavar="PROGRAM.npu",
                        help="compiled for one machine; of several, each is a level, or several by --shifts")
    parser.add_argument("--input", type=Path, required=True, metavar="FILE",
                        help="samples with a `label` each: what a level's accuracy is of, and what the discharge runs")
    parser.add_argument("--limit", type=positive, metavar="N", help="take the first N samples")
    parser.add_argument("--shifts", type=stream_shifts, default=(0,), metavar="N[,N...]",
                        help="streams of a program that has any are shorter by so many powers of two, a level each "
                             "(default 0)")
    parser.add_argument("--levels", type=Path, metavar="LEVELS.json",
                        help="clock, voltage and threshold of each level, as for `battery`, where they can be set "
                             "(default: one clock, and thresholds in equal parts)")
    parser.add_argument("--clock", type=megahertz, metavar="MHZ",
                        help="of all levels without --levels (default: as is known of the machine)")
    parser.add_argument("--energies", type=_energies, metavar="E,E...",
                        help="energy of an inference at each level, in whole numbers of --unit, as it was measured "
                             "(default: relative, by the energy model of docs/energy.md)")
    parser.add_argument("--unit", default="relative", metavar="TEXT", help="of --energies, such as uJ")
    parser.add_argument("--deadline", type=_number(1e6), metavar="MS",
                        help="of an inference (default: what it takes at the first level)")
    parser.add_argument("--hysteresis", type=_number(99, least=0), default=_HYSTERESIS, metavar="%",
                        help=f"a level comes back at so much more charge; with --lasts, at so much more than its "
                             f"energy (default {_HYSTERESIS:g})")
    parser.add_argument("--least-accuracy", type=_number(100, least=0), default=0.0, metavar="%",
                        help="levels that are less accurate are not used")
    parser.add_argument("--lasts", type=_number(1e6), metavar="S",
                        help="the battery must last so many seconds: levels by what is left for each inference, in "
                             "place of thresholds; needs --period")
    parser.add_argument("--period", type=_number(1e6), metavar="MS", help="an inference begins so often")
    parser.add_argument("--battery", type=_inferences, default=_INFERENCES, metavar="N",
                        help=f"a full one is enough for N inferences at the first level (default {_INFERENCES})")
    parser.add_argument("--on", choices=("functional", "rtl"), default="functional",
                        help="what makes the inferences: the instruction-level simulator, or the Verilog (default "
                             "functional)")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER",
                        help=f"write {_TABLE} for the driver, {_HEADER} for C, {_NAME}.csv and a plot there")
    add_plots_option(parser)
    add_json_option(parser)


def _number(most: float, *, least: float | None = None) -> Any:
    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not (0 < value <= most or value == least):
            raise argparse.ArgumentTypeError(f"must be a number {'from' if least == 0 else 'above'} 0 up to "
                                             f"{most:,.0f}, not {text}")
        return value

    return number


def _inferences(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or not 0 < int(text[:20]) <= _MOST_INFERENCES:
        raise argparse.ArgumentTypeError(f"must be from 1 to {_MOST_INFERENCES:,}, not {text}")
    return int(text)


def _energies(text: str) -> tuple[int, ...]:
    values = text.split(",")
    if not all(value.isascii() and value.isdecimal() and 0 < int(value[:20]) <= 1 << 20 for value in values):
        raise argparse.ArgumentTypeError(f"must be whole numbers from 1 to {1 << 20:,}, not {text}")
    return tuple(map(int, values))


def run(arguments: argparse.Namespace) -> int:
    for name in _files(arguments):
        require_writable(arguments.output / name)
        refuse_to_replace(arguments.output / name, arguments.levels, arguments.input, *arguments.programs)
    if (arguments.lasts is None) != (arguments.period is None):
        raise UsageError("--lasts and --period go together", code="option-conflict")
    if arguments.levels and arguments.clock:
        raise UsageError("--levels has the clocks; leave --clock out", code="option-conflict")
    applications = _applications(arguments)
    variants, samples = _variants(arguments, applications)
    table = _table(arguments, applications, variants)
    write_file(arguments.output / _TABLE, table.to_json())
    found = _discharge(arguments, table, applications, variants, samples)
    _write(arguments, applications, found)
    if arguments.json:
        print_json(_dictionary(arguments, found))
    else:
        _show(arguments, found)
    differing = sum(step.differing for step in found.steps)
    if differing:
        messages.print(f"{speaker('govern')}: error: {differing:,} values differ from the reference", soft_wrap=True)
        return FAILED
    return 0


def _applications(arguments: argparse.Namespace) -> "list[Application]":
    from gen.run.application import open_application
    from gen.run.workload import is_program

    found = []
    for path in arguments.programs:
        if not is_program(path):
            raise UsageError(f"{path}: not a compiled program; compile the model first")
        with status(f"reading {path.name}") as remark:
            found.append(open_application(path, None, progress=remark))
            require_single(found[-1], path)
            found[-1].programs(remark)
    configs = {application.workloads[0].program.config for application in found}
    if len(configs) > 1:
        raise UsageError("the programs are for different machines; compile them for one", code="other-machine")
    ports = {(tuple(application.inputs.items()), tuple(application.outputs)) for application in found}
    if len(ports) > 1:
        raise UsageError("the programs differ in their inputs or outputs; give programs of one model",
                         code="option-conflict")
    return found


def _variants(arguments: argparse.Namespace, applications: "list[Application]"
              ) -> "tuple[list[ProgramVariant], Samples]":
    """Each program with each of its shifts, in the order of the options."""
    from gen.govern.measured import variant
    from gen.run.inputs import read_samples

    samples = read_samples(arguments.input, applications[0].inputs, limit=arguments.limit)
    variants = []
    for number, application in enumerate(applications):
        streams = any(program.streams for program in application.programs())
        for shift in arguments.shifts if streams else (0,):
            name = arguments.programs[number].stem
            with counter(f"{name}, shift {shift}", len(samples)) as update:
                variants.append(variant(number, name, application, shift, samples, update))
    if any(arguments.shifts) and not any(one.shift for one in variants):
        raise UsageError("--shifts: no program has streams; compile it with --stochastic")
    return variants, samples


def _settings(arguments: argparse.Namespace, count: int, config: "NpuConfig", board: str) -> "list[Setting]":
    from gen.energy.levels import Level as Setting
    from gen.energy.levels import read_levels
    from gen.hw.clock import clock_of

    if arguments.levels:
        used = list(read_levels(arguments.levels).used)
        if len(used) != count:
            raise UsageError(f"{arguments.levels}: {len(used)} levels are used, where the programs and --shifts make "
                             f"{count}")
        return used
    mhz = arguments.clock or clock_of(get_board(board), config).mhz
    return [Setting(name="", mhz=mhz, volts=_VOLTS, above=(count - 1 - number) / count)
            for number in range(count)]


def _table(arguments: argparse.Namespace, applications: "list[Application]", variants: "list[ProgramVariant]"
           ) -> "LevelTable":
    from gen.energy.levels import Level as Setting
    from gen.govern.measured import energy_of, levels_of
    from npudriver.levels import LevelTable
    from sim.folders import cache_folder

    program = applications[0].workloads[0].program
    board = get_board(program.board or DEFAULT_BOARD)
    settings: list[Setting] = _settings(arguments, len(variants), program.config, board.name)
    if arguments.energies and len(arguments.energies) != len(variants):
        raise UsageError(f"--energies: one for each of {len(variants)} levels, not {len(arguments.energies)}")
    with status("energies") as remark:
        energies = arguments.energies or [
            energy_of(applications[one.program], one.shift, board.family, cache_folder(), remark) * setting.volts ** 2
            for one, setting in zip(variants, settings, strict=True)]
    levels = levels_of(variants, settings, energies, relative=not arguments.energies)
    about = "energies as given" if arguments.energies else "energies relative, by the energy model"
    return LevelTable(
        levels, _plan(arguments, levels[0].time_ns), battery=arguments.battery * levels[0].energy,
        unit=arguments.unit, programs=[os.path.relpath(path, arguments.output) for path in arguments.programs],
        about=f"{about}; times by the time model; accuracy of {len(variants[0].right)} samples")


def _plan(arguments: argparse.Namespace, first_ns: int) -> "Plan":
    from npudriver.levels import FULL, Plan

    return Plan(
        kind="thresholds" if arguments.lasts is None else "lasting",
        deadline_ns=first_ns if arguments.deadline is None else round(1e6 * arguments.deadline),
        hysteresis_ppm=round(arguments.hysteresis / 100 * FULL), least_right=round(100 * arguments.least_accuracy),
        period_us=round(1e3 * (arguments.period or 0)), lasts_us=round(1e6 * (arguments.lasts or 0)))


def _discharge(arguments: argparse.Namespace, table: "LevelTable", applications: "list[Application]",
               variants: "list[ProgramVariant]", samples: "Samples") -> "Discharge":
    from gen.govern.discharge import discharge
    from gen.run.targets import open_device
    from npudriver import Deployment

    config = applications[0].workloads[0].program.config
    by_level: Mapping[tuple[int, int], ProgramVariant] = {(one.program, one.shift): one for one in variants}
    deployments = [Deployment.load(path) for path in arguments.programs]
    with status("building the simulation (once, a minute or two)"):
        device = open_device(arguments.on, config)
    with device, counter(f"discharge on {arguments.on}", arguments.battery) as update:
        return discharge(table, by_level, deployments, device, samples.inputs, update)


def _write(arguments: argparse.Namespace, applications: "list[Application]", found: "Discharge") -> None:
    from gen.govern.header import levels_header
    from gen.govern.trace import plot, trace_csv

    program = applications[0].workloads[0].program
    write_file(arguments.output / _HEADER, levels_header(found.table))
    write_file(arguments.output / f"{_NAME}.csv", trace_csv(found))
    title = [f"{', '.join(path.stem for path in arguments.programs)}: a battery by the governor, on {arguments.on}",
             described(program.config, program.board), found.table.about]
    write_plots(arguments, arguments.output, _NAME, plot(found, title))
    messages.print(f"{arguments.output}: {', '.join(_files(arguments))}", soft_wrap=True)


def _files(arguments: argparse.Namespace) -> list[str]:
    return [_TABLE, _HEADER, f"{_NAME}.csv", *plot_files(arguments, _NAME)]


def _dictionary(arguments: argparse.Namespace, found: "Discharge") -> dict[str, Any]:
    table, steps = found.table, found.steps
    return {
        "device": arguments.on, "about": table.about, "unit": table.unit, "deadline_ms": table.plan.deadline_ns / 1e6,
        "fixed": found.fixed, "inferences": len(steps), "gain": len(steps) / found.fixed if found.fixed else None,
        "accuracy_%": 100 * found.accuracy, "switches": found.switches,
        "missed": sum(not step.in_time for step in steps), "late": sum(step.late for step in steps),
        "differing": sum(step.differing for step in steps),
        "seconds": sum(step.seconds for step in steps),
        "levels": [{
            "level": level.name, "shift": level.shift, "mhz": level.clock_khz / 1000, "volts": level.millivolts / 1000,
            "ms": level.time_ns / 1e6, "energy": level.energy, "accuracy_%": level.right / 100,
            "above_%": level.above_ppm / 1e4, "inferences": sum(step.level is level for step in steps),
        } for level in table.levels]}


def _show(arguments: argparse.Namespace, found: "Discharge") -> None:
    facts = _dictionary(arguments, found)
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    for number, heading in enumerate(("level", "MHz", "V", "ms", "energy", "accuracy, %", "above, %", "inferences")):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    for level in facts["levels"]:
        table.add_row(level["level"], f"{level['mhz']:g}", f"{level['volts']:.3f}", f"{level['ms']:.4g}",
                      f"{level['energy']:,}", f"{level['accuracy_%']:.2f}", f"{level['above_%']:.1f}",
                      f"{level['inferences']:,}")
    console.print(table)
    gain = f", {facts['gain']:.2f} times the {facts['fixed']:,} of the first level alone" if found.fixed else ""
    console.print(f"{facts['inferences']:,} inferences{gain}; {facts['accuracy_%']:.2f} % right, {facts['switches']} "
                  f"switches, {facts['missed']} beyond the deadline of {facts['deadline_ms']:.4g} ms; made on "
                  f"{arguments.on}, every value compared with the reference", soft_wrap=True)
    console.print(found.table.about)
