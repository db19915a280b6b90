"""Exceptions -> one line and an exit status."""

from contextlib import suppress

from cores.errors import ArgumentError, NpugenError
from gen.files.printable import printable
from npudriver.errors import DriverError

__all__ = ["CommandError", "FAILED", "INTERRUPTED", "UsageError", "code_of", "one_line", "status_of"]

FAILED = 1
BAD_ARGUMENTS = 2
INTERRUPTED = 130

#: Characters of a message: what a file has written into it may have no end.
_LONGEST = 1000

#: The project's own: a module missing there is a mistake of ours.
_PACKAGES = ("boards", "cores", "gen", "npudriver", "sim")


class CommandError(NpugenError):
    """A command could not do its work; the message is for the user."""


class UsageError(ArgumentError):
    """Arguments that parse but make no sense."""

    code = "bad-option"


def status_of(error: Exception) -> int:
    return BAD_ARGUMENTS if isinstance(error, ArgumentError) else FAILED


def one_line(error: Exception) -> str:
    """What to print after ``error:``, whatever names a file has in it."""
    text = printable(_message(error))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def code_of(error: Exception) -> str:
    """What to print after the line: the code in brackets (docs/errors.md), "" for what has none."""
    if isinstance(error, NpugenError | DriverError):
        return f" [{error.code}]"
    return " [unreadable-file]" if isinstance(error, OSError) and error.filename else ""


def _way_to_packages() -> str:
    # Not at the top: it needs a package itself.
    with suppress(ImportError):
        from sim.folders import checkout

        if checkout() is None:
            return "install npugen again, with what it depends on"
    return "type `. .venv/bin/activate`; `make setup` makes that environment"


def _message(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, NpugenError | DriverError):
        return text
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename and error.strerror else error.strerror or text
    if isinstance(error, ModuleNotFoundError) and error.name and error.name.partition(".")[0] not in _PACKAGES:
        return f"the package {error.name} is missing: {_way_to_packages()}"
    if isinstance(error, MemoryError):
        return "out of memory"
    return f"internal error ({type(error).__name__}: {text}); NPUGEN_TRACEBACK=1 shows where. Please report it"
