"""Output that commands share, and what goes with it."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from gen.cli.errors import UsageError

__all__ = [
    "CACHE", "OUTPUT", "add_json_option", "console", "counter", "messages", "print_json", "refuse_to_replace", "status",
]

#: Where outputs go that have not been given a place.
OUTPUT = Path("build")
#: Results that take long to make again, kept wherever commands are called.
CACHE = Path(os.environ.get("NPUGEN_BUILD") or Path(__file__).parents[2] / "build")

#: Columns of tables that are not read on a terminal, unless COLUMNS says otherwise: all of them fit.
_FILE_COLUMNS = 160
#: Tables and results go to stdout, everything said on the way to stderr. Names of files and layers are no markup.
console = Console(highlight=False, markup=False, emoji=False, width=(
    None if sys.stdout.isatty() or "COLUMNS" in os.environ else _FILE_COLUMNS))
messages = Console(stderr=True, highlight=False, markup=False, emoji=False)


def refuse_to_replace(output: Path, *inputs: Path | None) -> None:
    """Raises UsageError if ``output`` is one of the files that are read."""
    for path in inputs:
        if path is not None and os.path.realpath(output) == os.path.realpath(path):
            raise UsageError(f"-o {output} would replace what is read from there")


def add_json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout and nothing else")


def print_json(value: Any) -> None:
    """One object on stdout. Infinities and NaN are not JSON: ValueError."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def _columns() -> tuple:
    text = TextColumn("{task.description}", markup=False)
    return SpinnerColumn(), text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()


@contextmanager
def status(text: str) -> Iterator[Callable[[str], None]]:
    """A spinner on stderr (a terminal only) whose remark the yielded function replaces."""
    with messages.status(text) as spinner:
        yield lambda remark: spinner.update(Text.assemble(text, " ", (remark, "dim")))


@contextmanager
def counter(text: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr (a terminal only); tell it the samples done and the cycles of the present one."""
    with Progress(*_columns(), console=messages, transient=True, disable=not messages.is_terminal) as progress:
        task = progress.add_task(text, total=total)
        yield lambda done, cycles: progress.update(
            task, completed=done, description=f"{text}, {cycles:,} cycles" if cycles else text)
