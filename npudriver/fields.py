"""Objects of JSON files, whose fields are taken one by one by those who know what they must be."""

from __future__ import annotations

import json
from typing import Any, Iterator

from .errors import PackageError

__all__ = ["Fields", "parsed"]

#: Digits of the longest number that any field has.
_MAX_DIGITS = 20
#: Dimensions that NumPy's arrays can have, whichever its version.
_MAX_RANK = 32
#: Values of the largest input or output; an image of 4096 x 4096 in colour has 50 million.
_MAX_VALUES = 1 << 26


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a number of {len(text):,} digits")
    return int(text)


def _constant(text: str) -> float:
    raise ValueError(f"{text} is no number")


def parsed(content: bytes) -> Any:
    """The value of a JSON file. Raises ValueError for any other, for numbers without a value or without an end, and for
    nesting that is too deep.
    """
    try:
        return json.loads(content.decode(), parse_int=_integer, parse_constant=_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _shown(value: Any) -> str:
    """A value of a file in a message: short, and no control characters."""
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


class Fields:
    """An object of a JSON file; ``where``: the file, and the object in it; ``remedy``: what to do about a damaged one.
    Every call raises PackageError.

    ``end`` is to be called last: a field that nobody has taken is one that a file cannot have.
    """

    def __init__(self, value: Any, where: str, remedy: str = "deploy the model again") -> None:
        self._where, self._remedy = where, remedy
        if not isinstance(value, dict):
            raise PackageError(f"{where}: must be an object, not {_shown(value)}; {self._remedy}")
        self._left = dict(value)

    def take(self, name: str) -> Any:
        if name not in self._left:
            raise PackageError(f"{self._where}: has no field {name!r}; {self._remedy}")
        return self._left.pop(name)

    def wrong(self, name: str, wanted: str, value: Any) -> PackageError:
        """The error of field ``name``, which must be ``wanted`` (in words) and has ``value``."""
        return PackageError(f"{self._where}: {name} must be {wanted}, not {_shown(value)}; {self._remedy}")

    def integer(self, name: str, low: int, high: int) -> int:
        return self._ranged(name, self.take(name), low, high)

    def power(self, name: str, high: int) -> int:
        """A power of two."""
        value = self.integer(name, 1, high)
        if value & (value - 1):
            raise self.wrong(name, "a power of two", value)
        return value

    def text(self, name: str) -> str:
        value = self.take(name)
        if not isinstance(value, str):
            raise self.wrong(name, "a text", value)
        return value

    def choice(self, name: str, *known: str) -> str:
        value = self.take(name)
        if value not in known:
            raise self.wrong(name, f"one of {', '.join(known)}", value)
        return value

    def flag(self, name: str) -> bool:
        value = self.take(name)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false", value)
        return value

    def shape(self, name: str, rank: int | None = None) -> list[int]:
        """Sizes of at least 1, of an array that is not too large."""
        values = self._list(name, self.take(name))
        if rank not in (None, len(values)) or len(values) > _MAX_RANK:
            raise self.wrong(name, f"{rank or f'at most {_MAX_RANK}'} sizes", values)
        count = 1
        for size in values:
            count *= self._ranged(name, size, 1, _MAX_VALUES)
            if count > _MAX_VALUES:
                raise self.wrong(name, f"the shape of at most {_MAX_VALUES:,} values", values)
        return values

    def texts(self, name: str) -> list[str]:
        values = self._list(name, self.take(name))
        for value in values:
            if not isinstance(value, str):
                raise self.wrong(name, "a list of texts", value)
        return values

    def lists(self, name: str, *ranges: tuple[int, int]) -> list[list[int]]:
        """Lists of whole numbers, each of them with as many as there are ranges."""
        values = self._list(name, self.take(name))
        for value in values:
            if not isinstance(value, list) or len(value) != len(ranges):
                raise self.wrong(name, f"lists of {len(ranges)} numbers", value)
            for number, (low, high) in zip(value, ranges):
                self._ranged(name, number, low, high)
        return values

    def numbers(self, name: str, low: int, high: int) -> dict[str, int]:
        """An object of whole numbers."""
        return {key: self._ranged(f"{name} {key!r}", value, low, high) for key, value in self.entries(name)}

    def entries(self, name: str) -> list[tuple[str, Any]]:
        """The fields of an object, whatever they are."""
        value = self.take(name)
        if not isinstance(value, dict):
            raise self.wrong(name, "an object", value)
        return list(value.items())

    def objects(self, name: str) -> Iterator[Fields]:
        """Each object of a list."""
        for number, value in enumerate(self._list(name, self.take(name))):
            yield Fields(value, f"{self._where}: {name}[{number}]", self._remedy)

    def inner(self, name: str) -> Fields:
        return Fields(self.take(name), f"{self._where}: {name}", self._remedy)

    def names(self) -> list[str]:
        """The fields that have not been taken yet."""
        return list(self._left)

    def end(self) -> None:
        if self._left:
            raise PackageError(f"{self._where}: has a field {_shown(next(iter(self._left)))} that is not known; "
                               f"{self._remedy}")

    def _list(self, name: str, value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise self.wrong(name, "a list", value)
        return value

    def _ranged(self, name: str, value: Any, low: int, high: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.wrong(name, f"a whole number in {low}..{high}", value)
        return value
