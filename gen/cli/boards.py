"""``gen boards``"""

import argparse

from rich import box
from rich.table import Table

from boards.registry import BOARDS
from gen.cli.common import add_json_option, console, print_json

EXAMPLE = "example: %(prog)s --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json({"boards": [board.to_dict() for board in BOARDS.values()]})
        return
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    for heading in ("name", "board", "device", "clock", "resources", "memory bus"):
        table.add_column(heading, no_wrap=heading not in ("board", "resources"))
    for board in BOARDS.values():
        resources = ", ".join(f"{count:,} {name}" for name, count in board.resources.items())
        table.add_row(board.name, board.title, board.part, f"{board.clock_mhz:g} MHz", resources,
                      f"{max(board.memory_bus_bits)} bit")
    console.print(table)
