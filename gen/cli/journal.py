"""Measurements that are kept while a long command goes on, so that one that was interrupted can be continued."""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from gen.cli.common import messages
from gen.files.sources import sources_digest
from gen.files.write import write_file
from sim.folders import cache_folder

__all__ = ["Journal"]

def _line(key: str, row: dict[str, Any]) -> str:
    """Begins a line, as the one before may not be finished."""
    return "\n" + json.dumps({"key": key, "row": row})


class Journal:
    """Rows of this very code in a file of `cache_folder`, each written as soon as it is measured.

    Use it as a context manager around the command: what a command has measured to its end is measured anew the next
    time, what an interrupted one has measured is taken from here.
    """

    def __init__(self) -> None:
        self.path = cache_folder() / "bench" / f"{sources_digest()[:20]}.jsonl"
        self._earlier = self._read()
        self._used: set[str] = set()

    def _read(self) -> dict[str, Any]:
        rows = {}
        with suppress(FileNotFoundError):
            for line in self.path.read_text(errors="replace").splitlines():
                with suppress(ValueError, KeyError, TypeError):  # a line that was not finished
                    entry = json.loads(line)
                    rows[entry["key"]] = entry["row"]
        return rows

    def row(self, key: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What ``measure`` gives, or has given to a command that was interrupted. ``key`` says what decides it."""
        if key in self._earlier:
            if not self._used:
                messages.print(f"going on from {self.path}", soft_wrap=True)
            row = self._earlier[key]
        else:
            row = measure()
            with suppress(OSError):  # then it cannot be continued
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with self.path.open("a") as file:
                    file.write(_line(key, row))
        self._used.add(key)
        return row

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._forget()
        elif self._used:
            messages.print(f"measured so far: {len(self._used)}, kept in {self.path}; the same command goes on from "
                           "there", soft_wrap=True)

    def _forget(self) -> None:
        others = {key: row for key, row in self._read().items() if key not in self._used}
        with suppress(OSError):
            if others:
                write_file(self.path, "".join(_line(key, row) for key, row in others.items()))
            else:
                self.path.unlink(missing_ok=True)
