"""--html: the page of what a command has found (docs/report.md)."""

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gen.cli.common import messages, refuse_to_replace
from gen.cli.errors import UsageError
from gen.files.write import require_writable, write_file
from gen.name import called

if TYPE_CHECKING:
    from gen.report.document import Report
    from gen.report.sheet import Sheet

__all__ = ["add_html_option", "command_line", "require_html", "write_html"]


def add_html_option(parser: argparse.ArgumentParser, what: str) -> None:
    """--html; ``what``: is on its page."""
    parser.add_argument("--html", type=Path, metavar="FILE", help=f"write a page to look at, too: {what}")


def require_html(arguments: argparse.Namespace, *inputs: Path | None) -> None:
    """Before the work that the page is of: UsageError if it would replace one of the ``inputs``, or what -o writes,
    OSError if it cannot be written.
    """
    if arguments.html:
        output = getattr(arguments, "output", None)
        if output and arguments.html.resolve() == output.resolve():
            raise UsageError(f"--html {arguments.html} is what -o writes, too", code="option-conflict")
        refuse_to_replace(arguments.html, *inputs, option="--html")
        require_writable(arguments.html)


def write_html(path: Path, page: "Report | Sheet") -> None:
    """Raises OSError."""
    from gen.report.page import page_of

    write_file(path, page_of([page]))
    messages.print(f"{path}: open it in a browser", soft_wrap=True)


def command_line() -> str:
    """As it was called, in words of a shell."""
    return f"{called()} {shlex.join(sys.argv[1:])}"
