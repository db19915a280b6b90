"""Runs a vendor's Tcl script with its tool's commands replaced by ones that check how they are used."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

__all__ = ["MockError", "RefusedError", "TclMock", "options_of"]


class MockError(Exception):
    """What the vendor's tool would refuse, and no script should ask for."""


class RefusedError(Exception):
    """What an edition of the tool refuses: a script may catch it."""


def options_of(arguments: Sequence[str], with_value: Sequence[str], flags: Sequence[str] = ()
               ) -> tuple[dict[str, str], list[str]]:
    """``-name value`` and ``-flag`` apart from the other arguments. Raises MockError for an unknown one."""
    options, rest = {}, []
    left = list(arguments)
    while left:
        word = left.pop(0)
        if word in flags:
            options[word] = "1"
        elif word in with_value:
            if not left:
                raise MockError(f"{word} without a value")
            options[word] = left.pop(0)
        elif word.startswith("-") and word[1:2].isalpha():
            raise MockError(f"unknown option {word}")
        else:
            rest.append(word)
    return options, rest


class TclMock:
    """Every method ``do_X`` is the Tcl command ``X``; its result is the command's.

    ``said``: the arguments of every ``puts``.
    """

    def __init__(self, folder: Path):
        tkinter = pytest.importorskip("tkinter", reason="the scripts run in Python's own Tcl (Debian: python3-tk)")
        self.folder = folder
        self.said: list[str] = []
        self._problem: Exception | None = None
        self.tcl: Any = tkinter.Tcl()
        self.tcl.eval("rename puts tcl_puts")
        for name in dir(self):
            if name.startswith("do_"):
                self.tcl.createcommand(name.removeprefix("do_"), self._checked(getattr(self, name)))
        # What scripts load is there.
        self.tcl.eval("proc package {args} {}")

    def _checked(self, command: Callable[..., Any]) -> Callable[..., str]:
        def run(*arguments: str) -> str:
            try:
                result = command(*map(str, arguments))
            except RefusedError:
                raise
            except Exception as error:
                self._problem = self._problem or error
                raise
            return "" if result is None else str(result)
        return run

    def do_puts(self, *arguments: str) -> None:
        *channel, text = [word for word in arguments if word != "-nonewline"]
        if channel and channel[0] not in ("stdout", "stderr"):
            self.tcl.call("tcl_puts", *arguments)
        else:
            self.said.append(text)

    def run(self, script: str, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        """Raises MockError, or TclError for what is no Tcl."""
        self.tcl.setvar("argv", " ".join(arguments))
        self.tcl.eval("array unset env NPUGEN_*")
        for name, value in (environment or {}).items():
            self.tcl.setvar(f"env({name})", value)
        before = Path.cwd()
        try:
            self.tcl.eval(f"source {{{self.folder / script}}}")
        except Exception as error:
            raise self._problem or error from None
        finally:
            self.tcl.eval(f"cd {{{before}}}")       # the interpreter shares the process's folder

    def list(self, words: Sequence[str]) -> str:
        """As Tcl writes a list."""
        return str(self.tcl.call("format", "%s", self.tcl.call("list", *words)))
