"""Measurements that are kept while a long command goes on, so that one that was interrupted can be continued."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from gen.cli.common import messages
from gen.files.notes import add_notes, note, read_notes
from gen.files.sources import sources_digest
from gen.files.write import write_file
from sim.folders import cache_folder

__all__ = ["Journal"]


class Journal:
    """Rows of this very code in a file of `cache_folder`, each written as soon as it is measured.

    Use it as a context manager around the command: what a command has measured to its end is measured anew the next
    time, what an interrupted one has measured is taken from here.
    """

    def __init__(self) -> None:
        self._identity = sources_digest()
        self.path = cache_folder() / "bench" / f"{self._identity[:20]}.jsonl"
        self._earlier = self._read()
        self._used: set[str] = set()

    def _read(self) -> dict[str, Any]:
        with suppress(FileNotFoundError):
            return read_notes(self.path, self._identity)
        return {}

    def row(self, key: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What ``measure`` gives, or has given to a command that was interrupted. ``key`` says what decides it."""
        if key in self._earlier:
            if not self._used:
                messages.print(f"going on from {self.path}", soft_wrap=True)
            row = self._earlier[key]
        else:
            row = measure()
            with suppress(OSError):  # then it cannot be continued
                add_notes(self.path, self._identity, {key: row})
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
                write_file(self.path, "".join(note(self._identity, key, row) for key, row in others.items()))
            else:
                self.path.unlink(missing_ok=True)
