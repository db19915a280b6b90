"""Output that commands share, and what goes with it."""

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from gen.cli.errors import UsageError
from gen.files.printable import printable

__all__ = [
    "OUTPUT", "add_json_option", "console", "counter", "lines", "messages", "print_json", "refuse_to_replace", "status",
]

#: Where outputs go that have not been given a place.
OUTPUT = Path("build")

#: Columns of tables that are not read on a terminal, unless COLUMNS says otherwise: all of them fit.
_FILE_COLUMNS = 160


class _Console(Console):
    """Names of files and layers are no markup, and what is in them does not move a terminal's cursor."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text, keep="\n"), **options)


#: Tables and results go to stdout, everything said on the way to stderr.
console = _Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else _FILE_COLUMNS)
messages = _Console(stderr=True)


def refuse_to_replace(output: Path, *inputs: Path | None, option: str = "-o") -> None:
    """Raises UsageError if ``output`` is one of the files that are read."""
    for path in inputs:
        if path is not None and os.path.realpath(output) == os.path.realpath(path):
            raise UsageError(f"{option} {output} would replace what is read from there", code="output-is-input")


def add_json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout and nothing else")


def print_json(value: Any) -> None:
    """One object on stdout. Infinities and NaN are not JSON: ValueError."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def _columns() -> tuple[ProgressColumn, ...]:
    text = TextColumn("{task.description}", markup=False)
    return SpinnerColumn(), text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()


class _Lines:
    """Where stderr is no terminal: a line now and then, so that a log shows what goes on.

    The first comes 5 s after `begin`, the next ones after pauses that grow to a minute, however many steps there are
    in between. Quick commands say nothing.
    """

    FIRST, LONGEST = 5.0, 60.0

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A command begins."""
        self._pause = self.FIRST
        self._due = time.monotonic() + self._pause

    @contextmanager
    def step(self, text: str) -> Iterator[Callable[[str], None]]:
        """A step of the command; the yielded function replaces the remark after its name."""
        began, done = time.monotonic(), threading.Event()
        remark = ""

        def replace(new: str) -> None:
            nonlocal remark
            remark = new

        def say() -> None:
            while not done.wait(max(0.0, self._due - time.monotonic())):
                what = f"{text}: {remark}" if remark else text
                with suppress(OSError):  # nobody reads it: no reason to end the command
                    messages.print(f"{what}, {time.monotonic() - began:.0f} s", soft_wrap=True)
                self._due = time.monotonic() + self._pause
                self._pause = min(2 * self._pause, self.LONGEST)

        thread = threading.Thread(target=say, daemon=True)
        thread.start()
        try:
            yield replace
        finally:
            done.set()
            thread.join()


lines = _Lines()


@contextmanager
def status(text: str) -> Iterator[Callable[[str], None]]:
    """What goes on, on stderr: a spinner, or `lines` now and then. The yielded function replaces the remark after it.

    One at a time.
    """
    if not messages.is_interactive:
        with lines.step(text) as remark:
            yield remark
        return
    plain = Text(printable(text))
    with messages.status(plain) as spinner:
        yield lambda remark: spinner.update(Text.assemble(plain, " ", (remark, "dim")))


@contextmanager
def counter(text: str, total: int) -> Iterator[Callable[[int, int | str], None]]:
    """As `status`, with a bar: tell it what is done of the total, and of the present one the cycles or a remark."""
    if not messages.is_interactive:
        with lines.step(text) as remark:
            yield lambda done, present: remark(f"{done:,} of {total:,}{_behind(present)}")
        return
    with Progress(*_columns(), console=messages, transient=True) as progress:
        task = progress.add_task(text, total=total)
        yield lambda done, present: progress.update(task, completed=done, description=f"{text}{_behind(present)}")


def _behind(present: int | str) -> str:
    what = f"{present:,} cycles" if isinstance(present, int) and present else present
    return f", {what}" if what else ""
