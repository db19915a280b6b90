"""Figures of two commits side by side: records lie in docs/figures, so git has those of every commit."""

import json
import subprocess
from collections.abc import Iterator, Mapping

from cores.errors import NpugenError
from tests import ROOT

__all__ = ["FiguresError", "differences", "figures_of"]

#: Record -> figure -> number.
Figures = Mapping[str, Mapping[str, float]]

_FOLDER = "docs/figures"


class FiguresError(NpugenError):
    """A commit without records."""


def _git(*words: str) -> str:
    ran = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    if ran.returncode:
        raise FiguresError(f"git {' '.join(words)}: {ran.stderr.strip().splitlines()[0]}")
    return ran.stdout


def figures_of(commit: str | None) -> Figures:
    """Those of a commit, or of the working tree. Raises FiguresError."""
    if commit is None:
        texts = {path.stem: path.read_text() for path in (ROOT / _FOLDER).glob("*.json")}
    else:
        names = _git("ls-tree", "--name-only", commit, f"{_FOLDER}/").split()
        texts = {name.rsplit("/", 1)[-1].removesuffix(".json"): _git("show", f"{commit}:{name}")
                 for name in names if name.endswith(".json")}
    found = {name: json.loads(text).get("figures", {}) for name, text in sorted(texts.items())}
    if not any(found.values()):
        raise FiguresError(f"{commit}: no records in {_FOLDER}")
    return found


def differences(before: Figures, after: Figures) -> Iterator[str]:
    """A line for each figure that is another, and one for each record with figures that are new or gone."""
    for record in sorted({*before, *after}):
        old, new = before.get(record, {}), after.get(record, {})
        for name in sorted(old.keys() & new.keys()):
            if old[name] != new[name]:
                share = f" ({new[name] / old[name] - 1:+.2%})" if old[name] else ""
                yield f"{record}: {name}: {old[name]:,} -> {new[name]:,}{share}"
        for what, names in (("new", new.keys() - old.keys()), ("gone", old.keys() - new.keys())):
            if names:
                shown = ", ".join(sorted(names)[:3]) + (" ..." if len(names) > 3 else "")
                yield f"{record}: {len(names)} {what}: {shown}"
