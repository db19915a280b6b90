"""Records of figures, docs/figures/NAME.json: which commands gave them, in which state of the sources."""

import datetime
import fnmatch
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from gen.files.sources import sources_digest
from gen.hw.hardware import delay_model_digest, hardware_digest
from tests import ROOT

__all__ = ["FOLDER", "Record", "digest", "load", "measure", "numbers", "save"]

FOLDER = ROOT / "docs" / "figures"

#: What records may depend on, by one word. "hardware" and "delays" are those of gen.hw, with a device family.
_SOURCES: Mapping[str, tuple[str, ...]] = {
    "compiler": ("cores/arch", "cores/config", "gen/compiler.py", "gen/ir", "gen/lowering", "gen/mapping", "gen/memory",
                 "gen/onnx", "gen/options.py", "gen/passes", "gen/tiling"),
    "quantiser": ("gen/quantize",),
    "partition": ("gen/partition",),
    "time model": ("sim/cycles.py", "sim/timing"),
    "memories": ("boards", "gen/run/memory.py", "sim/timing/dram.py"),
    "hardware": ("cores",),
    "zoo": ("gen/zoo",),
    "driver": ("npudriver", "sim/devices"),
    "stochastic": ("gen/stochastic", "sim/stochastic", "sim/units/stochastic.py"),
    "energy": ("gen/energy",),
    "explore": ("gen/explore",),
    "area": ("gen/hw/area.json", "gen/hw/area.py", "gen/hw/area_counts.py", "gen/families"),
    "soc": ("gen/soc", "boards", "gen/families", "gen/netlist"),
}
_ROOMS = ("boards", "cores", "gen", "npudriver", "sim")
#: Not in the repository.
_MODELS = "$NPUGEN_MODELS"
_FAMILIES = {"hardware": hardware_digest, "delays": delay_model_digest}


class Record(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """``commands``: name of a part -> command of this project that prints the figures with ``--json``; the part's name
    begins those of its figures. ``keep``: patterns of the names that are recorded.

    ``depends``: words of `digest`. ``state``: their digest when it was measured, empty where it was not yet.
    ``quick``: two minutes of a processor or less, so it must be of the state at hand wherever its commands can run;
    what takes longer may be of an earlier one, which its pages then say. ``source``: where the facts of others are
    from, which have no commands.
    """

    commands: dict[str, str]
    depends: list[str]
    quick: bool = False
    keep: list[str] = msgspec.field(default_factory=lambda: ["*"])
    source: str = ""
    commit: str = ""
    date: str = ""
    state: str = ""
    figures: dict[str, int | float] = {}

    @property
    def age(self) -> Literal["now", "earlier", "unknown"]:
        """Which state of what it depends on it is of."""
        return "unknown" if not self.state else "now" if self.state == digest(self.depends) else "earlier"

    @property
    def due(self) -> bool:
        """Whether it must be measured again. Without the trained networks that it wants, it need not."""
        wants = any(_MODELS in command for command in self.commands.values())
        return self.quick and self.age != "now" and not (wants and "NPUGEN_MODELS" not in os.environ)


def digest(depends: list[str]) -> str:
    """Of the sources that some words name: those of `_SOURCES`, a file or folder, ``hardware:FAMILY`` (with what maps
    it) and ``delays:FAMILY``; 16 hexadecimal digits. Raises ValueError for another word.
    """
    parts = []
    for word in depends:
        kind, _, family = word.partition(":")
        if family and kind in _FAMILIES:
            parts.append(_FAMILIES[kind](family))
            continue
        paths = _SOURCES.get(word, (word,))
        if missing := [path for path in paths if not (ROOT / path).exists()]:
            raise ValueError(f"{word!r} is no word for sources ({', '.join(_SOURCES)}), and {missing[0]} is not there")
        parts.append(sources_digest(*paths))
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:16]


def load(name: str, folder: Path = FOLDER) -> Record:
    """Raises ValueError, with the file's name, for one that is not there or is no record."""
    path = folder / f"{name}.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except (OSError, msgspec.DecodeError) as error:
        raise ValueError(f"{path.name}: {error}") from None


def save(name: str, record: Record, folder: Path = FOLDER) -> None:
    (folder / f"{name}.json").write_text(json.dumps(msgspec.to_builtins(record), indent=1, ensure_ascii=False) + "\n")


def measure(record: Record) -> Record:
    """The record with the figures that its commands print now. Raises RuntimeError for a command that fails."""
    figures: dict[str, int | float] = {}
    for part, command in record.commands.items():
        words = [sys.executable if word == "python" else word for word in shlex.split(os.path.expandvars(command))]
        done = subprocess.run([*words, "--json"], cwd=ROOT, capture_output=True, text=True, check=False,
                              env=os.environ | {"PYTHONPATH": str(ROOT)})
        if done.returncode:
            raise RuntimeError(f"`{command}` ended with {done.returncode}: {done.stderr.strip()[-300:]}")
        found = numbers(json.loads(done.stdout))
        figures |= {f"{part}.{name}" if part else name: value for name, value in found.items()}
    kept = {name: value for name, value in figures.items() if any(fnmatch.fnmatch(name, one) for one in record.keep)}
    if not kept:
        raise RuntimeError(f"of {len(figures)} figures none is called {' or '.join(record.keep)}")
    return msgspec.structs.replace(record, figures=kept, state=digest(record.depends), commit=_commit(), source="",
                                   date=datetime.date.today().isoformat())


def _commit() -> str:
    """The last one that changed the sources, with a plus where they differ from it."""
    def git(*words: str) -> str:
        return subprocess.run(["git", *words, "--", *_ROOMS], cwd=ROOT, capture_output=True, text=True,
                              check=True).stdout.strip()

    return git("log", "-1", "--abbrev=7", "--format=%h") + ("+" if git("status", "--porcelain") else "")


def numbers(found: Any, prefix: str = "") -> dict[str, int | float]:
    """The numbers in what ``--json`` printed, by dotted names. A row of a list is called by its first word, and by what
    follows that where there are several of it; by the values of an object that it begins with, such as a point's
    parameters; without either, by its place.
    """
    if isinstance(found, bool) or found is None or isinstance(found, str):
        return {}
    if isinstance(found, int | float):
        return {prefix: found}
    if isinstance(found, dict):
        named = {_slug(str(name)): value for name, value in found.items()}
    else:
        named = dict(zip(_row_names(found), found, strict=True))
    result: dict[str, int | float] = {}
    for name, value in named.items():
        result |= numbers(value, f"{prefix}.{name}" if prefix else name)
    return result


def _row_names(rows: list[Any]) -> list[str]:
    columns = [list(row.values()) if isinstance(row, dict) else [] for row in rows]
    columns = [[" ".join(map(str, one[0].values())), *one[1:]] if one and isinstance(one[0], dict) else one
               for one in columns]
    for length in range(1, max(map(len, columns), default=0) + 1):
        names = [_slug(" ".join(str(value) for value in values[:length])) for values in columns]
        if all(names) and len(set(names)) == len(names) and any(
                isinstance(value, str) for values in columns for value in values[:length]):
            return names
    return [str(number) for number in range(len(rows))]


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9_.%]+", "-", text.lower()).strip("-").replace(".", "_")
