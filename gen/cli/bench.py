"""``gen bench``"""

import argparse
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from gen.cli import bench_datapaths, bench_machine, bench_networks, bench_scale, bench_stochastic
from gen.cli.bench_part import Part, Rows
from gen.cli.common import add_json_option, console, messages, print_json
from gen.cli.errors import FAILED, UsageError
from gen.cli.machine import add_machine_options
from gen.cli.memory import add_memory_option
from gen.cli.plots import add_plots_option, plot_files
from gen.files.write import require_writable
from gen.name import speaker

EXAMPLE = """example:
  %(prog)s layers
The published figures beside ours are NNgen's, measured from start to done on its own bus model, and SAF-CNN's."""

#: Letters of a remark that is as short as a figure.
_SHORT = 15

PARTS: dict[str, Part] = {part.name: part for room in (bench_machine, bench_datapaths, bench_networks, bench_scale,
                                                       bench_stochastic)
                          for part in room.PARTS}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument("--models", type=Path, metavar="DIR", help="folder of the networks (default: NPUGEN_MODELS, or "
                        "../shared/models beside a checkout); without it that part is left out")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR",
                        help=f"folder for plots of {_plotted(list(PARTS.values()))}")
    add_plots_option(parser)
    parser.add_argument("--synth", action="store_true",
                        help="of scale: synthesise what `build --synth` has not, many minutes for large machines")
    add_memory_option(parser)
    add_machine_options(parser)
    add_json_option(parser)


def _plotted(parts: list[Part]) -> str:
    return " and ".join(part.name for part in parts if part.plot)


def run(arguments: argparse.Namespace) -> int:
    unknown = [name for name in arguments.parts if name not in PARTS]
    if unknown:
        raise UsageError(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}", code="unknown-name")
    parts = [PARTS[name] for name in dict.fromkeys(arguments.parts or PARTS)]
    if arguments.output is not None:
        if not _plotted(parts):
            raise UsageError(f"-o is for plots of {_plotted(list(PARTS.values()))}, which are not among the parts")
        for part in parts:
            if part.plot:
                for name in plot_files(arguments, part.plot):
                    require_writable(arguments.output / name)
    results = {}
    for part in parts:
        results[part.name] = rows = part.measure(arguments)
        if rows and part.title and not arguments.json:
            _show(part.title, rows)
    if arguments.json:
        print_json(results)
    if any(row.get("wrong") for rows in results.values() for row in rows):
        messages.print(f"{speaker('bench')}: error: values differ from the reference")
        return FAILED
    # Why, each part has said.
    skipped = [name for name, rows in results.items() if not rows]
    if skipped and (arguments.parts or len(skipped) == len(results)):
        messages.print(f"{speaker('bench')}: error: not measured: {', '.join(skipped)}", soft_wrap=True)
        return FAILED
    if skipped:
        messages.print(f"left out: {', '.join(skipped)}", soft_wrap=True)
    return 0


def _show(title: str, rows: Rows) -> None:
    """Figures as a table; remarks, which are long, below it."""
    first = next(iter(rows[0]))
    remarks = [name for name, value in rows[0].items() if isinstance(value, str) and name != first
               and any(len(str(row[name])) > _SHORT for row in rows)]
    table = Table(title=title, title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0))
    for name in rows[0]:
        if name not in remarks:
            table.add_column(name.replace("_", " "), justify="left" if name == first else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(_text(value) for name, value in row.items() if name not in remarks))
    console.print(table)
    for name in remarks:
        for row in rows:
            if row[name]:
                console.print(f"  {name.replace('_', ' ')}, {row[first]}: {row[name]}", soft_wrap=True)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.1f}" if value >= 1 else f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
