"""``gen battery``"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gen.cli.bench_part import named_folder
from gen.cli.common import add_json_option, messages, print_json, refuse_to_replace, status
from gen.cli.errors import UsageError
from gen.cli.examiner import required_examiner
from gen.cli.machine import add_machine_options, chosen_board, chosen_config, described
from gen.cli.plots import add_plots_option, plot_files, write_plots
from gen.files.write import require_writable, write_file
from sim.folders import cache_folder

if TYPE_CHECKING:
    from cores.arch.stochastic import Circuit
    from gen.energy.levels import Levels
    from gen.energy.rivals import Rival
    from gen.energy.strategies import Plan, Strategy
    from gen.stochastic.backbone import Backbone

EXAMPLE = """example:
  %(prog)s --backbone 784-200-32-10 --circuit and-loop --lengths 32,16,16 -o build/battery"""

_BACKBONE, _CIRCUIT, _BOUNDS, _INFERENCES = "784-200-32-10", "and-loop", (95.0, 90.0, 85.0), 1_000_000
_NAME = "battery"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = ("Inferences of a stochastic network from one battery: at a fixed level of voltage and "
                          "frequency, at levels that step down as the charge falls, with streams that get shorter, "
                          "and with both (docs/energy.md). Energies are relative, cycles estimated.")
    parser.add_argument("--backbone", default=_BACKBONE, metavar="WORD",
                        help=f"the layers, such as 784-100-200-10 or 28x28-c6k3-p2-c64k7-p2-32-128-10 (default "
                             f"{_BACKBONE})")
    parser.add_argument("--circuit", default=_CIRCUIT, metavar="NAME", help=f"of the streams (default {_CIRCUIT})")
    parser.add_argument("--levels", type=Path, metavar="LEVELS.json",
                        help="levels of voltage and frequency (default: six of an ARM Cortex-A7, three of them used)")
    parser.add_argument("--lengths", type=_integers, metavar="N,N,N",
                        help="bits of a stream at each level that is used, of the full battery first (default: the "
                             "shortest that reach --bounds)")
    parser.add_argument("--bounds", type=_percents, metavar="%,%,%",
                        help="least accuracy at each level (default "
                             f"{','.join(f'{bound:g}' for bound in _BOUNDS)}, with other numbers of levels none)")
    parser.add_argument("--deadline", type=_positive, metavar="MS",
                        help="of an inference (default: what it takes at the fixed level)")
    parser.add_argument("--inferences", type=_count, default=_INFERENCES, metavar="N",
                        help=f"of the fixed strategy, for which the battery is enough (default {_INFERENCES:,})")
    parser.add_argument("--compare", action="store_true",
                        help="with each circuit by itself, too; the first time that takes minutes")
    parser.add_argument("--images", type=Path, metavar="DIR",
                        help="folder of MNIST's and CIFAR-10's images (default: NPUGEN_MODELS, or ../shared/models "
                             "beside a checkout)")
    parser.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="write battery.csv and a plot there")
    add_plots_option(parser)
    add_machine_options(parser)
    add_json_option(parser)


def _integers(text: str) -> tuple[int, ...]:
    from cores.arch.stochastic import MAX_LENGTH_LOG, MIN_LENGTH_LOG

    known = [1 << log for log in range(MIN_LENGTH_LOG, MAX_LENGTH_LOG + 1)]
    names = [name.strip() for name in text.split(",")]
    if not all(name.isascii() and name.isdecimal() and len(name) < 6 and int(name) in known for name in names):
        raise argparse.ArgumentTypeError(f"must be of {', '.join(map(str, known))}, not {text}")
    return tuple(int(name) for name in names)


def _percents(text: str) -> tuple[float, ...]:
    values = tuple(_number(part) for part in text.split(","))
    if not all(0 <= value <= 100 for value in values):
        raise argparse.ArgumentTypeError(f"must be from 0 to 100, not {text}")
    return values


def _positive(text: str) -> float:
    value = _number(text)
    if not 0 < value <= 1e9:
        raise argparse.ArgumentTypeError(f"must be above 0, not {text}")
    return value


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or not 0 < int(text[:20]) <= 10 ** 12:
        raise argparse.ArgumentTypeError(f"must be from 1 to {10 ** 12:,}, not {text}")
    return int(text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, not {text}") from None


def run(arguments: argparse.Namespace) -> None:
    from gen.cli.battery_table import show
    from gen.energy.levels import CORTEX_A7, read_levels
    from gen.energy.strategies import strategies
    from gen.stochastic.backbone import Backbone
    from gen.stochastic.errors import BackboneError

    for name in _files(arguments) if arguments.output else ():
        require_writable(arguments.output / name)
        refuse_to_replace(arguments.output / name, arguments.levels)
    levels = read_levels(arguments.levels or CORTEX_A7)
    for name in ("lengths", "bounds"):
        values = getattr(arguments, name)
        if values and len(values) != len(levels.used):
            raise UsageError(f"--{name}: one for each of the levels {', '.join(level.name for level in levels.used)}, "
                             f"not {len(values)}")
    try:
        backbone = Backbone(arguments.backbone)
    except BackboneError as error:
        raise UsageError.of(error, f"--backbone {error}") from None
    plan, rivals = _plan(arguments, backbone, levels)
    found = strategies(plan)
    if arguments.output:
        _write(arguments, plan, found)
    if arguments.json:
        print_json(_dictionary(arguments, plan, found, rivals))
    else:
        show(arguments, plan, found, rivals)


def _plan(arguments: argparse.Namespace, backbone: "Backbone", levels: "Levels") -> "tuple[Plan, list[Rival]]":
    from cores.arch.stochastic import Circuit
    from gen.energy.candidate import Candidate, shortest
    from gen.energy.rivals import rivals_of
    from gen.energy.strategies import Plan
    from gen.energy.unit_energy import measure_energy
    from gen.stochastic.accuracy import lengths_of
    from gen.stochastic.errors import BackboneError

    circuit, bounds = _circuit(arguments.circuit), _bounds(arguments, levels)
    board, config = chosen_board(arguments), chosen_config(arguments)
    folder = named_folder(arguments.images, "--images")
    with status(backbone.word) as remark:
        try:
            judge = required_examiner(folder, backbone)
            accuracy = {}
            for length in sorted(set(arguments.lengths or lengths_of(circuit))):
                remark(f"{circuit.label}, {length} bits")
                accuracy[length] = judge.accuracy(backbone, circuit, length, remark=remark)
        except BackboneError as error:
            raise UsageError.of(error, f"--backbone {error}") from None

        def candidate(circuit: Circuit) -> Candidate:
            return Candidate(backbone, circuit, measure_energy(circuit, board.family, cache_folder(), remark), config)

        mine = candidate(circuit)
        lengths = arguments.lengths or shortest(accuracy, bounds)
        plan = Plan(levels, lengths, {length: mine.cycles(length) for length in accuracy}, accuracy, mine.per_cycle,
                    bounds, arguments.deadline and arguments.deadline / 1000, arguments.inferences)
        others = rivals_of(plan, judge, candidate, remark) if arguments.compare else []
    return plan, others


def _circuit(name: str) -> "Circuit":
    from cores.arch.stochastic import Circuit

    known = {circuit.label: circuit for circuit in Circuit}
    if name not in known:
        raise UsageError(f"--circuit {name}: there are {', '.join(known)}", code="unknown-name")
    return known[name]


def _bounds(arguments: argparse.Namespace, levels: "Levels") -> tuple[float, ...]:
    usual = _BOUNDS if len(levels.used) == len(_BOUNDS) else (0.0,) * len(levels.used)
    return tuple(bound / 100 for bound in arguments.bounds or usual)


def _dictionary(arguments: argparse.Namespace, plan: "Plan", found: "list[Strategy]",
                rivals: "list[Rival]") -> dict[str, Any]:
    import dataclasses

    from gen.energy.battery import SWITCH_CYCLES
    from gen.energy.strategies import PUBLISHED
    from gen.stochastic.cycles import BASIS

    return {
        "backbone": arguments.backbone, "circuit": arguments.circuit, "energy": "relative", "cycles": BASIS,
        "deadline_ms": 1000 * plan.limit, "switch_cycles": SWITCH_CYCLES,
        "strategies": [{
            "strategy": strategy.name, "inferences": strategy.discharge.inferences, "gain": strategy.gain,
            "published": PUBLISHED[strategy.name], "accuracy": strategy.discharge.accuracy,
            "levels": [{
                "level": verdict.setting.level.name, "length": verdict.setting.length,
                "cycles": verdict.setting.cycles, "ms": 1000 * verdict.setting.seconds, "in_time": verdict.in_time,
                "accuracy": verdict.setting.accuracy, "accurate": verdict.accurate, "energy": verdict.setting.energy,
            } for verdict in strategy.verdicts]} for strategy in found],
        "rivals": [dataclasses.asdict(rival) for rival in rivals],
    }


def _write(arguments: argparse.Namespace, plan: "Plan", found: "list[Strategy]") -> None:
    from gen.energy.trace import plot, trace_csv

    thresholds = {level.name: level.above for level in plan.levels.used if level.above}
    clocks = ", ".join(f"{level.name} {level.mhz:g} MHz" for level in plan.levels.used)
    title = [f"{arguments.backbone}, {arguments.circuit}",
             f"{described(chosen_config(arguments), chosen_board(arguments).name)}; clock: {clocks}, given"]
    write_file(arguments.output / f"{_NAME}.csv", trace_csv(found))
    write_plots(arguments, arguments.output, _NAME, plot(found, title, thresholds))
    messages.print(f"{arguments.output}: {' and '.join(_files(arguments))}", soft_wrap=True)


def _files(arguments: argparse.Namespace) -> list[str]:
    return [f"{_NAME}.csv", *plot_files(arguments, _NAME)]
