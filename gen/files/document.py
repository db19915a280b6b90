"""Files that people write, as JSON or as YAML: plain values, not looked at yet."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from cores.errors import CodedError
from gen.files.read import read_file, require_file

__all__ = ["DocumentError", "read_document"]

#: Bytes of a file beyond any that somebody has written.
_MAX_FILE = 1 << 20
#: Of a whole number, of values in one another, and of values in all: likewise. YAML has names for values, by which few
#: lines stand for billions.
_MAX_BITS, _MAX_DEPTH, _MAX_VALUES = 64, 50, 1 << 20


class DocumentError(CodedError):
    """A file that holds no such document; the message, which does not name the file, is for the user."""

    code = "bad-document"


def read_document(path: Path, what: str, *, extra: str) -> Any:
    """The values in a .json, .yaml or .yml file.

    ``what`` it is (such as ``a session``) and the ``extra`` that brings YAML are for messages. Raises DocumentError,
    OSError.
    """
    readers: dict[str, Callable[[bytes, str, str], Any]] = {".json": _json, ".yaml": _yaml, ".yml": _yaml}
    if path.suffix not in readers:
        raise DocumentError(f"{what} is a .json or .yaml file")
    require_file(path)
    value = readers[path.suffix](read_file(path, _MAX_FILE), what, extra)
    _check(value)
    return value


def _check(value: Any) -> None:
    """Raises DocumentError for what JSON and YAML can say and nobody means: numbers that Python would not print,
    values that are within themselves, and more of them than there is time for.
    """
    inside: list[Any] = []
    waiting, count = [(value, 0)], 1
    while waiting:
        value, depth = waiting.pop()
        del inside[depth:]
        if isinstance(value, int) and value.bit_length() > _MAX_BITS:
            raise DocumentError(f"a whole number of {value.bit_length():,} bits; {_MAX_BITS} are the most there can be")
        if isinstance(value, dict | list):
            if any(value is other for other in inside) or depth > _MAX_DEPTH:
                raise DocumentError("values that are nested in themselves, or too deeply")
            inside.append(value)
            parts = [*value, *value.values()] if isinstance(value, dict) else value
            count += len(parts)
            if count > _MAX_VALUES:
                raise DocumentError(f"more than {_MAX_VALUES:,} values, by names that stand for others")
            waiting += [(part, depth + 1) for part in parts]


def _json(content: bytes, what: str, extra: str) -> Any:
    try:
        return msgspec.json.decode(content)
    except UnicodeDecodeError:
        raise DocumentError("not JSON: text is UTF-8") from None
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
    except MemoryError:
        raise
    except Exception as error:  # numbers and dates that are none make it raise anything
        raise DocumentError(f"not YAML: {' '.join(str(error).split())}") from None
