"""Measurements that are kept while a long command goes on, so that one that was interrupted can be continued."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from gen.cli.common import messages
from gen.files.results import ResultLog
from gen.files.sources import sources_digest
from sim.folders import cache_folder

__all__ = ["Journal"]


class Journal:
    """Rows of this very code in a file of `cache_folder`, each written as soon as it is measured.

    Use it as a context manager around the command: what a command has measured to its end is measured anew the next
    time, what an interrupted one has measured is taken from here.
    """

    def __init__(self) -> None:
        identity = sources_digest()
        self._log = ResultLog(cache_folder() / "bench" / f"{identity[:20]}.jsonl", identity)
        self._used: set[str] = set()

    @property
    def path(self) -> Path:
        """The file."""
        return self._log.path

    def row(self, key: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What ``measure`` gives, or has given to a command that was interrupted. ``key`` says what decides it."""
        if key in self._log.values:
            if not self._used:
                messages.print(f"going on from {self.path}", soft_wrap=True)
            row = self._log.values[key]
        else:
            row = measure()
            with suppress(OSError):  # then it cannot be continued
                self._log.add({key: row})
        self._used.add(key)
        return row

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            with suppress(OSError):
                self._log.drop(self._used)
        elif self._used:
            messages.print(f"measured so far: {len(self._used)}, kept in {self.path}; the same command goes on from "
                           "there", soft_wrap=True)
