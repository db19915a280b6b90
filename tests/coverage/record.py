"""Makes the results of a run those that later ones are held against."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tests.coverage.architectures import ARCHITECTURES
from tests.coverage.export import VERSIONS
from tests.coverage.figures import Figures, Recorded
from tests.coverage.measure import OPTIONS
from tests.file_map import ROOT

__all__ = ["record"]

#: What the figures depend on.
_SOURCES = ("boards", "cores", "gen", "sim")


def record(folder: Path, found: Mapping[str, Figures]) -> None:
    """Raises ValueError for results that are not of all architectures, or of no commit.

    Reasons are left out: there are many, and a run says them.
    """
    if missing := sorted(ARCHITECTURES.keys() - found.keys()):
        raise ValueError(f"nothing is recorded without {', '.join(missing)}")
    if _git("status", "--porcelain", *_SOURCES):
        raise ValueError("nothing is recorded of a state that is no commit")
    command = f"compile MODEL --calibrate X.npz {' '.join(OPTIONS)}"
    Recorded(command=command, commit=_git("rev-parse", "--short", "HEAD"),
             versions=json.loads((folder / VERSIONS).read_text()),
             models={name: replace(found[name], reasons={}) for name in sorted(ARCHITECTURES)}).save()


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
