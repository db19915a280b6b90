"""``gen build``"""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from boards.registry import BOARDS
from gen.cli.common import OUTPUT, add_json_option, console, messages, print_json, status
from gen.cli.errors import CommandError
from gen.cli.machine import add_machine_options, chosen_board, chosen_config, described, features_of
from gen.files.write import require_writable, write_file
from sim.folders import cache_folder

if TYPE_CHECKING:
    from boards.board import Board
    from cores.config import NpuConfig
    from gen.hw.synth import Report

EXAMPLE = "example: %(prog)s --board zu3eg --macs 256 -o build/zu3eg --synth"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_machine_options(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="DIR",
                        help="where the files go, in place of an earlier build's (default build/BOARD-MACS, with the "
                             "features behind it)")
    parser.add_argument("--synth", action="store_true",
                        help="synthesise with Yosys (minutes): a table of resources, resources.json, and a warning "
                             "if the machine is larger than the board's device")
    add_json_option(parser)


def default_folder(board: "Board", config: "NpuConfig") -> Path:
    """A folder of its own for every machine: its features, and the digest of one that is otherwise changed by hand."""
    from cores.config import FEATURES, ConfigError

    there = features_of(config)
    names = [name for name in there if not any(set(FEATURES[name]) < set(FEATURES[other]) for other in there)]
    try:
        fields = board.config(config.macs).feature_fields(names)
        usual = board.config(config.macs, **fields) == config
    except ConfigError:
        usual = False
    return OUTPUT / "-".join([board.name, str(config.macs), *names, *([] if usual else [f"{config.digest:08x}"])])


def clear(folder: Path, board: "Board") -> None:
    """Remove what an earlier build has left and this one will not replace. Raises CommandError for files of others."""
    for name in ("resources.json", *(name for other in BOARDS.values() for name in other.project)):
        path = folder / name
        if not path.is_file():
            continue
        if _is_ours(path):
            path.unlink()
        elif name in board.project:
            raise CommandError(f"{path}: there is a file that `build` has not made; move it or choose another folder")


def _is_ours(path: Path) -> bool:
    if path.name != "resources.json":
        return "Made by `python -m gen build`" in path.read_text(errors="replace")[:1000]
    try:
        return {"family", "cells", "components"} <= set(json.loads(path.read_text()))
    except (ValueError, TypeError):
        return False


def write_files(folder: Path, board: "Board", config: "NpuConfig") -> tuple[str, list[str]]:
    """Everything but the resources; returns the Verilog and the names of the files."""
    for name in ("npu.v", *board.project):
        require_writable(folder / name)
    from cores.emit import emit_verilog
    from gen.hw.export import driver_header, register_map, vendor_project

    with status(f"{config.macs} MACs for {board.title}"):
        verilog = emit_verilog(config)
        files = {
            "npu.v": verilog,
            "config.json": config.to_json() + "\n",
            "register_map.md": register_map(config),
            "npugen_regs.h": driver_header(config),
            **vendor_project(board, config),
        }
    for name in files:
        require_writable(folder / name)
    clear(folder, board)
    for name, content in files.items():
        write_file(folder / name, content)
    return verilog, list(files)


def run(arguments: argparse.Namespace) -> None:
    board, config = chosen_board(arguments), chosen_config(arguments)
    folder = arguments.output or default_folder(board, config)
    verilog, files = write_files(folder, board, config)
    messages.print(f"{folder}: {', '.join(files)}", soft_wrap=True)
    messages.print(described(config, board.name), soft_wrap=True)
    result: dict = {"board": board.name, "macs": config.macs, "config": config.to_dict(),
                    "files": [str(folder / name) for name in files]}
    if arguments.synth:
        from gen.hw.synth import synthesize

        with status(f"yosys, {board.family}") as remark:
            report = synthesize(verilog, "npu", board.family, cache=cache_folder() / "synth", progress=remark)
        too_many = exceeded(report, board)
        resources = {**report.to_dict(), "device": dict(board.resources), "fits": not too_many}
        write_file(folder / "resources.json", json.dumps(resources, indent=2) + "\n")
        result = {**resources, **result}
        if not arguments.json:
            console.print(_resource_table(report, board))
        if too_many:
            messages.print(f"warning: the machine is larger than the device of {board.title}: {', '.join(too_many)}; "
                           "take fewer --macs or --features, or another --board", style="yellow", soft_wrap=True)
    if arguments.json:
        print_json(result)


def exceeded(report: "Report", board: "Board") -> list[str]:
    """What the machine takes more of than the device has, such as ``lut 99,000 of 70,560``."""
    return [f"{name} {total:,} of {board.resources[name]:,}" for name, total in report.totals.items()
            if total > board.resources[name]]


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
