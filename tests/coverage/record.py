"""Makes results those that later ones are held against."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tests import ROOT
from tests.coverage.architectures import ARCHITECTURES
from tests.coverage.export import VERSIONS
from tests.coverage.figures import Figures, Recorded
from tests.coverage.measure import OPTIONS

__all__ = ["record"]

#: What the figures depend on.
_SOURCES = ("boards", "cores", "gen", "sim")


def record(folder: Path, found: Mapping[str, Figures]) -> None:
    """Takes the place of what was recorded of the same architectures; reasons, which a run says, are left out.

    Raises ValueError for results of no commit, and of models that are no architectures.
    """
    if unknown := sorted(found.keys() - ARCHITECTURES.keys()):
        raise ValueError(f"nothing is recorded of {', '.join(unknown)}")
    if _git("status", "--porcelain", *_SOURCES):
        raise ValueError("nothing is recorded of a state that is no commit")
    commit = _git("rev-parse", "--short", "HEAD")
    rows = {name: replace(figures, reasons={}, commit=commit) for name, figures in found.items()}
    models = {**Recorded.load().models, **rows}
    Recorded(command=f"compile MODEL --calibrate X.npz {' '.join(OPTIONS)}",
             versions=json.loads((folder / VERSIONS).read_text()), models=dict(sorted(models.items()))).save()


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
