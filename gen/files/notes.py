"""Files of results, a line each: whoever reads takes what was written so, whole, while others add lines.

A line is JSON: a key, a value, and a digest of both and of what the results depend on. One that is not finished,
damaged, from somewhere else, or of another state is as good as none.
"""

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from gen.files.read import read_file

__all__ = ["add_notes", "note", "read_notes"]


def note(identity: str, key: str, value: Any) -> str:
    """A line. It begins anew, as the one before may not be finished."""
    kept = json.loads(json.dumps(value))        # as it is read again: keys are text
    return "\n" + json.dumps([key, kept, _seal(identity, key, kept)])


def add_notes(path: Path, identity: str, values: dict[str, Any]) -> None:
    """Add lines at the end of a file, at once. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab", buffering=0) as file:
        file.write("".join(note(identity, key, value) for key, value in values.items()).encode())


def read_notes(path: Path, identity: str) -> dict[str, Any]:
    """Key -> value, the last of each. Raises OSError."""
    found = {}
    for line in read_file(path).splitlines():
        with suppress(ValueError, TypeError, RecursionError):   # TypeError: no list
            key, value, seal = json.loads(line)
            if isinstance(key, str) and seal == _seal(identity, key, value):
                found[key] = value
    return found


def _seal(identity: str, key: str, value: Any) -> str:
    text = json.dumps([identity, key, value], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
