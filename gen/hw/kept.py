"""Results that take minutes to make, kept for the next time."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from gen.files.entry import read_entry, write_entry

__all__ = ["kept"]

_Result = TypeVar("_Result")


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
