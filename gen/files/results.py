"""The result cache: what takes long to make is kept for the next time, under `sim.folders.cache_folder`.

A result has a file of its own (`kept`, or `read_entry` and `write_entry`), or is one of many in a `ResultLog`, to which
several processes may add. Each has a digest of its content and of what decides it. One that is not finished, damaged or
of another state is as good as none.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from gen.files.read import read_file
from gen.files.write import replace_file, write_file

__all__ = ["EntryError", "ResultLog", "kept", "read_entry", "write_entry"]

_Result = TypeVar("_Result")


class EntryError(ValueError):
    """A file that is no entry, or not the one that it was."""


def write_entry(path: Path, content: str | bytes) -> None:
    """Keep ``content``, in place of what is there; what decides it is in the file's name. Raises OSError."""
    data = content.encode() if isinstance(content, str) else content
    replace_file(path, _digest(path.name, data).encode() + b"\n" + data)


def read_entry(path: Path) -> bytes:
    """What was kept. Raises EntryError, OSError."""
    digest, _, data = read_file(path).partition(b"\n")
    if digest != _digest(path.name, data).encode():
        raise EntryError(f"{path}: damaged, or none of this name")
    return data


def kept(folder: Path | None, name: str, read: Callable[[dict[str, Any]], _Result],
         make: Callable[[], _Result]) -> _Result:
    """The result of ``make``, a dataclass, or what ``read`` makes of its fields in ``folder`` from the last time.

    ``name`` is that of the file: everything that decides the result must be in it.
    """
    if folder is None:
        return make()
    entry = folder / name
    with suppress(OSError, ValueError, TypeError, KeyError):    # one that is not there, or damaged, is made again
        return read(json.loads(read_entry(entry)))
    result = make()
    with suppress(OSError):     # the next time takes minutes again; this one has its result
        write_entry(entry, json.dumps(asdict(result)))  # type: ignore[call-overload]
    return result


class ResultLog:
    """JSON values by key in the file ``path``, a line each, all of one ``identity``: what else decides them.

    ``values``: those that were there when it was opened, the last of each key, and those added since.
    """

    def __init__(self, path: Path, identity: str) -> None:
        """Raises OSError for a file that cannot be read; one that is not there is empty."""
        self.path, self._identity = path, identity
        self.values = self._read()

    def _read(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        try:
            lines = read_file(self.path).splitlines()
        except FileNotFoundError:
            return found
        for line in lines:
            with suppress(ValueError, TypeError, RecursionError):   # TypeError: no list
                key, value, digest = json.loads(line)
                if isinstance(key, str) and digest == self._line_digest(key, value):
                    found[key] = value
        return found

    def add(self, values: Mapping[str, Any]) -> None:
        """Add lines at the end of the file, at once. Raises OSError; the values are known here all the same."""
        self.values.update(values)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab", buffering=0) as file:
            file.write("".join(self._line(key, value) for key, value in values.items()).encode())

    def drop(self, keys: Collection[str]) -> None:
        """Take lines out, in the file as it is now; the file goes with the last of them. Raises OSError."""
        left = {key: value for key, value in self._read().items() if key not in keys}
        self.values = {key: value for key, value in self.values.items() if key not in keys}
        if left:
            write_file(self.path, "".join(self._line(key, value) for key, value in left.items()))
        else:
            self.path.unlink(missing_ok=True)

    def _line(self, key: str, value: Any) -> str:
        """It begins anew, as the one before may not be finished."""
        again = json.loads(json.dumps(value))       # as it is read: keys are text
        return "\n" + json.dumps([key, again, self._line_digest(key, again)])

    def _line_digest(self, key: str, value: Any) -> str:
        text = json.dumps([self._identity, key, value], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _digest(name: str, data: bytes) -> str:
    digest = hashlib.sha256(f"{name}\0".encode())
    digest.update(data)
    return digest.hexdigest()
