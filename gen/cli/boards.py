"""``gen boards``"""

import argparse
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from boards.registry import BOARDS
from gen.cli.common import add_json_option, console, print_json

if TYPE_CHECKING:
    from boards.board import Board

#: Columns of a terminal that the whole table needs.
_WIDE = 130

EXAMPLE = "example: %(prog)s --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json({"boards": [_described(board) for board in BOARDS.values()]})
        return
    if console.width < _WIDE:
        _print_short()
        return
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), caption=(
        "memory: what long bursts get of it, and how long the first beat of a read takes. "
        "largest: by estimated area, what `build` makes; build --synth tells more"), caption_justify="left")
    for heading in ("name", "board", "device", "resources", "memory", "largest", "clock"):
        table.add_column(heading, no_wrap=heading == "name", overflow="fold")
    for board in BOARDS.values():
        table.add_row(*_row(board))
    console.print(table)


def _print_short() -> None:
    """What there is room for in a narrow terminal."""
    from gen.hw.clock import clock_of
    from gen.hw.fit import largest_of

    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    for heading in ("name", "board", "device"):
        table.add_column(heading)
    for heading in ("memory, GB/s", "MACs", "MHz"):
        table.add_column(heading, justify="right", no_wrap=True)
    for board in BOARDS.values():
        largest = largest_of(board)
        table.add_row(board.name, board.title, board.part, f"{board.memory.sustained / 1e9:.2f}", *(
            ("none", f"{board.clock_mhz:g}") if largest is None else
            (str(largest.config.macs), f"{clock_of(board, largest.config).mhz:g}")))
    console.print(table)
    console.print("memory: what long bursts get. MACs: of the largest machine that fits by estimated area. MHz: its "
                  f"clock, a target. More in {_WIDE} columns, or with --json")


def _row(board: "Board") -> tuple[str, ...]:
    from gen.hw.clock import clock_of
    from gen.hw.fit import largest_of

    memory, largest = board.memory, largest_of(board)
    port = (f"{memory.device}, {max(board.memory_bus_bits)} bit: {memory.sustained / 1e9:.2f} GB/s "
            f"({memory.efficiency_basis}), {memory.read_latency_ns:g} ns ({memory.latency_basis})")
    resources = ", ".join(f"{count:,} {name}" for name, count in board.resources.items())
    if largest is None:
        return board.name, board.title, board.part, resources, port, "none", f"{board.clock_mhz:g} MHz, target"
    machine = f"--macs {largest.config.macs}" + (f" --features {','.join(largest.features)}" * bool(largest.features))
    return (board.name, board.title, board.part, resources, port, machine, str(clock_of(board, largest.config)))


def _described(board: "Board") -> dict[str, Any]:
    from gen.families.registry import get_family
    from gen.hw.clock import clock_of
    from gen.hw.fit import largest_of

    largest = largest_of(board)
    family = get_family(board.family)
    values: dict[str, Any] = {**board.to_dict(), "nextpnr": family.route_command(board),
                              "project": dict(family.project), "largest": None}
    if largest is not None:
        clock = clock_of(board, largest.config)
        values["largest"] = {
            "macs": largest.config.macs, "features": list(largest.features), "area": largest.area.totals,
            "error": largest.area.error, "clock_mhz": clock.mhz, "clock": clock.basis,
        }
    return values
