"""What a page of a command shows that measures no inference: bars, points, tables and facts, in sections."""

import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Literal

__all__ = ["Bars", "Column", "Facts", "Part", "Point", "Points", "Section", "Sheet", "Table", "commit", "repeat",
           "version"]

#: Of a table; None: not known.
Cell = str | float | None


@dataclass(frozen=True, kw_only=True)
class Part:
    """Of bars: a value for each, None where it is not known. ``role``: what its colour means, "" for one of its own."""

    name: str
    values: Sequence[float | None]
    role: Literal["", "main", "light", "warn", "wrong", "rest"] = ""


@dataclass(frozen=True, kw_only=True)
class Bars:
    """A bar for each of ``names``, stacked of parts. ``label``: for those who do not see it. ``axis``: of the values,
    ``unit``: after them, ``across``: of the names, where bars are upright. ``limit``: a line that is not to be passed.
    ``totals``: whether the sum stands at a bar's end.
    """

    label: str
    names: Sequence[str]
    parts: Sequence[Part]
    axis: str
    unit: str = ""
    across: str = ""
    limit: float | None = None
    upright: bool = False
    totals: bool = True
    kind: str = field(default="bars", init=False)


@dataclass(frozen=True, kw_only=True)
class Point:
    """``parameters`` and ``facts`` in words; ``front``: no other one beats it."""

    parameters: dict[str, str]
    figures: dict[str, float]
    facts: dict[str, str]
    front: bool


@dataclass(frozen=True, kw_only=True)
class Points:
    """In the plane of two of the figures, which can be chosen; ``units``: of all figures. ``x``, ``y``, ``colour``:
    what is shown at first; ``step``: whether the front is a line there.
    """

    label: str
    points: Sequence[Point]
    units: dict[str, str]
    x: str
    y: str
    colour: str
    step: bool
    kind: str = field(default="points", init=False)


@dataclass(frozen=True, kw_only=True)
class Column:
    name: str
    number: bool = True


@dataclass(frozen=True, kw_only=True)
class Table:
    """``marked``: numbers of the rows that stand out."""

    label: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    marked: Sequence[int] = ()
    kind: str = field(default="table", init=False)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Names and texts."""

    rows: Sequence[tuple[str, str]]
    kind: str = field(default="facts", init=False)


@dataclass(frozen=True, kw_only=True)
class Section:
    title: str
    blocks: Sequence[Bars | Points | Table | Facts]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """``name``: of what; ``note``: on what, and how. ``cards``: the figures that people ask for first, and their words.
    ``findings``: in words, the most important first.
    """

    name: str
    note: str
    cards: Sequence[tuple[str, str]]
    findings: Sequence[str]
    sections: Sequence[Section]


def repeat(command: str, *more: tuple[str, str]) -> Section:
    """What is needed to make a page again; ``more``: names and texts beside the command and what has run it."""
    return Section(title="To make this again", blocks=[Facts(rows=[
        ("command", command), ("npugen", version()), ("commit", commit() or "not known"),
        ("Python", platform.python_version()), *more])])


def version() -> str:
    """Of what is installed."""
    try:
        return metadata.version("npugen")
    except metadata.PackageNotFoundError:
        return "not installed"


def commit() -> str:
    """Of our sources, "" where they are in no checkout; with "and changes" where they are not as committed."""
    folder = Path(__file__).parents[2]
    if not (folder / ".git").exists():
        return ""
    try:
        asked = subprocess.run(["git", "describe", "--always", "--dirty= and changes"], cwd=folder, capture_output=True,
                               text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return asked.stdout.strip() if asked.returncode == 0 else ""
