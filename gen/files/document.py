"""Files that people write, as JSON or as YAML: plain values, not looked at yet."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from gen.files.write import require_file

__all__ = ["DocumentError", "read_document"]

#: Bytes of a file beyond any that somebody has written.
_MAX_FILE = 1 << 20


class DocumentError(Exception):
    """A file that holds no such document; the message, which does not name the file, is for the user."""


def read_document(path: Path, what: str, *, extra: str) -> Any:
    """The values in a .json, .yaml or .yml file.

    ``what`` it is (such as ``a session``) and the ``extra`` that brings YAML are for messages. Raises DocumentError,
    OSError.
    """
    readers: dict[str, Callable[[bytes, str, str], Any]] = {".json": _json, ".yaml": _yaml, ".yml": _yaml}
    if path.suffix not in readers:
        raise DocumentError(f"{what} is a .json or .yaml file")
    require_file(path)
    if path.stat().st_size > _MAX_FILE:
        raise DocumentError(f"{path.stat().st_size:,} bytes are too many for {what}")
    return readers[path.suffix](path.read_bytes(), what, extra)


def _json(content: bytes, what: str, extra: str) -> Any:
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise DocumentError(str(error)) from None


def _yaml(content: bytes, what: str, extra: str) -> Any:
    try:
        import yaml
    except ModuleNotFoundError:
        raise DocumentError(f"YAML needs the package pyyaml: pip install 'npugen[{extra}]', or write {what} as "
                            "JSON") from None
    try:
        return yaml.safe_load(content)
    except (yaml.YAMLError, RecursionError) as error:
        raise DocumentError(f"not YAML: {' '.join(str(error).split())}") from None
