"""Measurements that are kept while a long command goes on, so that one that was interrupted can be continued."""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from gen.cli.common import messages
from gen.files import write_file
from sim.folders import cache_folder

__all__ = ["Journal"]

_ROOT = Path(__file__).resolve().parents[2]


def _code_digest() -> str:
    state = hashlib.sha256()
    for package in ("cores", "gen", "sim"):
        for path in sorted((_ROOT / package).rglob("*.[ch]pp")) + sorted((_ROOT / package).rglob("*.py")):
            state.update(path.read_bytes())
    return state.hexdigest()[:20]


class Journal:
    """Rows of this very code in a file of `cache_folder`, each written as soon as it is measured.

    Use it as a context manager around the command: what a command has measured to its end is measured anew the next
    time, what an interrupted one has measured is taken from here.
    """

    def __init__(self) -> None:
        self.path = cache_folder() / "bench" / f"{_code_digest()}.jsonl"
        self._earlier = self._read()
        self._used: set[str] = set()

    def _read(self) -> dict[str, Any]:
        rows = {}
        with suppress(FileNotFoundError):
            for line in self.path.read_text().splitlines():
                with suppress(ValueError, KeyError, TypeError):  # the last one may be half a line
                    entry = json.loads(line)
                    rows[entry["key"]] = entry["row"]
        return rows

    def row(self, key: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What ``measure`` gives, or has given to a command that was interrupted. ``key`` says what decides it."""
        if key in self._earlier:
            row = self._earlier[key]
        else:
            row = measure()
            with suppress(OSError):  # then it cannot be continued
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with self.path.open("a") as file:
                    file.write(json.dumps({"key": key, "row": row}) + "\n")
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
        text = "".join(json.dumps({"key": key, "row": row}) + "\n" for key, row in others.items())
        with suppress(OSError):
            if others:
                write_file(self.path, text)
            else:
                self.path.unlink(missing_ok=True)
