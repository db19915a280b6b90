"""``gen build``"""

import argparse
import dataclasses
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from boards.registry import BOARDS
from gen.cli.common import OUTPUT, add_json_option, console, messages, print_json, status
from gen.cli.errors import FAILED, CommandError, UsageError
from gen.cli.html import add_html_option, command_line, require_html, write_html
from gen.cli.machine import add_machine_options, chosen_board, chosen_config, described, megahertz
from gen.cli.run import positive
from gen.families.registry import FAMILIES, get_family
from gen.files.read import read_file, read_text
from gen.files.write import require_writable, write_file
from gen.name import speaker
from sim.folders import cache_folder
from sim.toolchain import end_tools

if TYPE_CHECKING:
    from boards.board import Board
    from cores.config import NpuConfig
    from gen.hw.area import Area
    from gen.hw.flat import FlatDesign
    from gen.hw.route import RouteReport
    from gen.hw.synth import Report
    from gen.hw.timing import TimingReport

EXAMPLE = "example: %(prog)s --board zu3eg --macs 256 -o build/zu3eg --synth"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_machine_options(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="DIR",
                        help="where the files go, in place of an earlier build's (default build/BOARD-MACS, with the "
                             "features after it)")
    parser.add_argument("--clock", type=megahertz, metavar="MHZ",
                        help="of the machine in the board's project, in place of the board's target")
    parser.add_argument("--synth", action="store_true",
                        help="synthesise with Yosys (minutes): tables of resources and of the longest paths with the "
                             "clock that they give, resources.json, and a warning if the machine is larger than the "
                             "board's device")
    parser.add_argument("--route", action="store_true",
                        help=f"with --synth: place and route too ({_routed()}, with nextpnr; many minutes)")
    parser.add_argument("--seeds", type=positive, metavar="N",
                        help="with --route: so many of the placer's seeds, one after another; the fastest counts "
                             "(default 1)")
    parser.add_argument("--force", action="store_true",
                        help="build a machine that does not fit the board's device, too")
    add_html_option(parser, "area, board fit, clock and how it is known, and the machine's parts")
    add_json_option(parser)


def _routed() -> str:
    return ", ".join(family.title for family in FAMILIES.values() if family.nextpnr)


def default_folder(board: "Board", config: "NpuConfig") -> Path:
    """A folder of its own for every machine: its features, and the digest of one that is otherwise changed by hand."""
    from boards.presets import preset_of
    from cores.config import FEATURES, PURPOSES

    there = config.features
    names = [name for name in there if not any(set(FEATURES[name]) < set(FEATURES[other]) for other in there)]
    purpose = preset_of(board, config)
    lanes = [] if purpose == PURPOSES[0] else [purpose or f"{config.digest:08x}"]
    return OUTPUT / "-".join([board.name, str(config.macs), *names, *lanes])


def clear(folder: Path, board: "Board") -> None:
    """Remove what an earlier build has left and this one will not replace. Raises CommandError for files of others."""
    for name in ("resources.json", *(name for family in FAMILIES.values() for name in family.project)):
        path = folder / name
        if not path.is_file():
            continue
        if _is_ours(path):
            path.unlink()
        elif name in get_family(board.family).project:
            raise CommandError(f"{path}: there is a file that `build` has not made; move it or choose another folder",
                               code="foreign-file")


def _is_ours(path: Path) -> bool:
    if path.name != "resources.json":
        return "Made by `python -m gen build`" in read_text(path, errors="replace")[:1000]
    try:
        return {"family", "cells", "components"} <= set(json.loads(read_file(path)))
    except (ValueError, TypeError):
        return False


def write_files(folder: Path, board: "Board", config: "NpuConfig", before: Callable[[], None] = lambda: None
                ) -> tuple[str, list[str]]:
    """Write all files but those about resources; returns the Verilog and the names of the files.

    ``before`` is called once all files are made, and before the first is written.
    """
    for name in ("npu.v", *get_family(board.family).project):
        require_writable(folder / name)
    from gen.deploy.build_files import build_files

    with status(f"{config.macs} MACs for {board.title}"):
        files = build_files(board, config)
    for name in files:
        require_writable(folder / name)
    clear(folder, board)
    before()
    for name, content in files.items():
        write_file(folder / name, content)
    return str(files["npu.v"]), list(files)


def run(arguments: argparse.Namespace) -> int:
    board, config = chosen_board(arguments), chosen_config(arguments)
    if arguments.clock is not None:
        board = dataclasses.replace(board, clock_mhz=arguments.clock)
    if arguments.route:
        routed_boards = [other.name for other in BOARDS.values() if get_family(other.family).route_command(other)]
        if not arguments.synth or board.name not in routed_boards:
            raise UsageError(f"--route goes with --synth and one of the boards {', '.join(routed_boards)}",
                             code="option-conflict")
    elif arguments.seeds is not None:
        raise UsageError("--seeds goes with --route", code="option-conflict")
    require_html(arguments, arguments.config)
    area = fitting_area(board, config, force=arguments.force)
    folder = arguments.output or default_folder(board, config)
    verilog, files = write_files(folder, board, config, lambda: say_area(area, board))
    messages.print(f"{folder}: {', '.join(files)}", soft_wrap=True)
    messages.print(described(config, board.name), soft_wrap=True)
    if board.iommu != "used" and not config.limits:
        why = "has no IOMMU" if board.iommu == "none" else "has an IOMMU that nothing sets up"
        messages.print(f"{board.title} {why}: whoever starts programs can reach all of the board's memory; --features "
                       "limits confines them (docs/control.md)", soft_wrap=True)
    result: dict[str, Any] = {"board": board.name, "macs": config.macs, "config": config.to_dict(),
                    "files": [str(folder / name) for name in files], "estimate": area.to_dict(),
                    "ports": area.ports(board)}
    wrong, mapped = "", None
    if arguments.synth:
        from gen.hw.area import exceeded

        mapped = map_to_device(verilog, board, config, seeds=(arguments.seeds or 1) if arguments.route else 0)
        report, timing, routed = mapped
        ports = area.ports(board)
        too_many = exceeded({name: total + ports[name] for name, total in report.totals.items()}, board)
        resources = {**report.to_dict(), "device": dict(board.resources), "fits": not too_many,
                     "timing": timing.to_dict()}
        if routed is not None:
            resources["route"] = routed.to_dict()
        write_file(folder / "resources.json", json.dumps(resources, indent=2) + "\n")
        result = {**resources, **result}
        if not arguments.json:
            console.print(_resource_table(report, board))
            console.print(timing_table(timing))
            console.print(timing_line(timing, board.clock_mhz), soft_wrap=True)
            if routed is not None:
                console.print(f"{routed.mhz:g} MHz, placed and routed: {routed.critical}", soft_wrap=True)
                if len(routed.seeds) > 1:
                    clocks = ", ".join(f"{seed} {mhz:g}" for seed, mhz in routed.seeds.items())
                    console.print(f"the fastest of {len(routed.seeds)} seeds; MHz by seed: {clocks}", soft_wrap=True)
        if too_many and not arguments.force:
            wrong = f"{folder}: {_too_large(board, too_many)} (as mapped by Yosys)"
        elif too_many:
            messages.print(f"warning: {_too_large(board, too_many)}", style="yellow", soft_wrap=True)
    if arguments.html:
        _write_page(arguments, board, config, area, files, mapped)
    if arguments.json:
        print_json(result)
    if wrong:
        messages.print(f"{speaker('build')}: error: {wrong}; {_way_to_fit(board)}", soft_wrap=True)
        return FAILED
    return 0


def _write_page(arguments: argparse.Namespace, board: "Board", config: "NpuConfig", area: "Area", files: list[str],
                mapped: "tuple[Report, TimingReport, RouteReport | None] | None") -> None:
    from boards.clock import Clock
    from gen.hw.clock import clock_of
    from gen.report.machine import Built, machine_sheet

    report, timing, routed = mapped or (None, None, None)
    clock = clock_of(board, config)
    if clock.basis == "target" and arguments.clock is not None:
        clock = Clock(arguments.clock, "given")
    built = Built(board=board, config=config, clock=clock, area=area, files=files, synthesis=report, timing=timing,
                  route=routed)
    write_html(arguments.html, machine_sheet(built, command=command_line()))


def fitting_area(board: "Board", config: "NpuConfig", *, force: bool) -> "Area":
    """What the machine takes of the board's device. Raises CommandError if that is too much, unless ``force``."""
    from gen.hw.area import area_of

    area = area_of(config, board.family)
    too_much = area.too_much(board)
    if too_much and not force:
        how = "as synthesised" if area.error == 0 else "estimated"
        raise CommandError(f"{board.name}: {_too_large(board, too_much)} ({how}); {_way_to_fit(board)}",
                           code="too-large-for-board")
    return area


def _too_large(board: "Board", too_much: list[str]) -> str:
    return f"the machine is larger than the device of {board.title}: {', '.join(too_much)}"


def _way_to_fit(board: "Board") -> str:
    from gen.hw.fit import largest_of

    largest = largest_of(board)
    if largest is None:
        return "take another --board, or --force"
    features = f", also with --features {','.join(largest.features)}" if largest.features else ""
    return f"--macs {largest.config.macs} fits{features}; or take another --board, or --force"


def say_area(area: "Area", board: "Board") -> None:
    """An estimate, and a warning if the device may be too small."""
    from gen.hw.area import exceeded

    messages.print(f"estimated: {area}", soft_wrap=True)
    if any((ports := area.ports(board)).values()):
        counts = ", ".join(f"{name} {count:,.10g}" for name, count in ports.items() if count)
        messages.print(f"beside it {board.read_ports} ports for reads, as synthesised: {counts}", soft_wrap=True)
    surely, perhaps = area.too_much(board), exceeded(area.on(board), board)
    if surely or perhaps:
        messages.print(f"warning: the machine {'is' if surely else 'may be'} larger than the device of {board.title}: "
                       f"{', '.join(surely or perhaps)}", style="yellow", soft_wrap=True)


def map_to_device(verilog: str, board: "Board", config: "NpuConfig", *, seeds: int = 0
                  ) -> tuple["Report", "TimingReport", "RouteReport | None"]:
    """Area and timing, two runs of Yosys side by side, and with ``seeds`` above 0 what nextpnr makes of the
    second's netlist with so many.

    Clock and totals are remembered for other commands' figures.
    """
    from gen.hw.flat import flat_design
    from gen.hw.remembered import remember_synthesis
    from gen.hw.synth import synthesize
    from gen.hw.timing import timing_of

    folder = cache_folder() / "synth"
    with flat_design(verilog, "npu", board.family) as design:
        with status(f"yosys, {board.family} (minutes)") as remark, ThreadPoolExecutor(1) as pool:
            area = pool.submit(synthesize, verilog, "npu", board.family, cache=folder)
            try:
                timing = timing_of(design, cache=folder, progress=remark)
                report = area.result()
            except BaseException:
                end_tools()     # the other's too, which leaving the pool waits for
                raise
        remember_synthesis(board, config, report, timing)
        return report, timing, place(design, board, config, seeds) if seeds else None


def place(design: "FlatDesign", board: "Board", config: "NpuConfig", seeds: int) -> "RouteReport":
    """Place and route; the clock is remembered for other commands' figures."""
    from gen.hw.clock import remember_route
    from gen.hw.route import place_and_route

    with status(f"nextpnr, {board.family} (many minutes)") as remark:
        report = place_and_route(design, board, seeds=seeds, cache=cache_folder() / "synth", progress=remark)
    remember_route(board, config, report.mhz)
    return report


def timing_line(timing: "TimingReport", target_mhz: float) -> str:
    cells = "" if timing.cell_ns is None else f"; Yosys's sta, cells without wires: {timing.cell_ns:.2f} ns"
    return (f"{timing.levels} LUT levels at most; the slowest path takes {timing.delay_ns:.2f} ns by the delay model "
            f"of grade {timing.grade}: {timing.estimated_mhz:g} MHz, estimated (target {target_mhz:g}){cells}")


def timing_table(timing: "TimingReport", rows: int = 12) -> Table:
    """The slowest groups of paths."""
    table = Table(title=f"longest paths ({timing.family}, grade {timing.grade}), flat, before place and route",
                  title_justify="left", caption="nanoseconds by the delay model of docs/timing.md; levels are LUTs",
                  caption_justify="left")
    for heading in ("component", "from", "to"):
        table.add_column(heading, overflow="fold")
    for heading in ("levels", "ns", "paths"):
        table.add_column(heading, justify="right", no_wrap=True)
    for path in timing.paths[:rows]:
        table.add_row(path.component, path.start, f"{path.end} {path.port}", str(path.levels), f"{path.delay_ns:.2f}",
                      f"{path.paths:,}")
    return table


def _resource_table(report: "Report", board: "Board") -> Table:
    table = Table(title=f"{board.title} ({report.family}), as mapped by Yosys", title_justify="left", show_footer=True,
                  caption="LUTs of any size and LUTs used as memory count one each; carry chains are not counted",
                  caption_justify="left")
    table.add_column("component", footer="total")
    for name, total in report.totals.items():
        share = 100 * total / board.resources[name]
        table.add_column(name, justify="right", footer=f"{total:,} ({share:.0f} %)", no_wrap=True)
    for component, counts in sorted(report.components.items(), key=lambda item: -item[1]["lut"]):
        if any(counts.values()):
            table.add_row(component, *(f"{count:,}" for count in counts.values()))
    return table
