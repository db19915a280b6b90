"""Every model in a process of its own, so that none ends the run; results are kept by the model and the sources."""

import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gen.files.results import kept
from gen.files.sources import sources_digest
from sim.folders import cache_folder
from tests import ROOT
from tests.coverage import measure
from tests.coverage.figures import Figures

__all__ = ["run_all"]

_READ = 1 << 20
#: Seconds by the clock for one of the processor's, as others may be at work beside it.
_PATIENCE = 3


def run_all(models: Sequence[Path], jobs: int = 1, seconds: int = measure.SECONDS) -> Iterator[tuple[Path, Figures]]:
    """Figures of each model, in their order, ``jobs`` at a time.

    What `tests.coverage.measure` said when a model and the sources were what they are is kept; ``seconds`` of the
    processor are the limit of a model. Raises OSError for a model that cannot be read.
    """
    with ThreadPoolExecutor(jobs) as pool:
        yield from zip(models, pool.map(lambda model: _figures(model, seconds), models), strict=True)


def _figures(model: Path, seconds: int) -> Figures:
    state = f"{_digest(model)}{sources_digest()}{' '.join(measure.OPTIONS)} {seconds}"
    name = f"{model.stem}-{hashlib.sha256(state.encode()).hexdigest()[:24]}.kept"
    return kept(cache_folder() / "coverage", name, lambda fields: Figures(**fields), lambda: _measured(model, seconds))


def _digest(model: Path) -> str:
    """Of the file and of the one with its weights, if it has them there."""
    state = hashlib.sha256()
    for path in (model, model.with_name(f"{model.name}.data")):
        if path.exists():
            with path.open("rb") as file:
                while part := file.read(_READ):
                    state.update(part)
    return state.hexdigest()


def _measured(model: Path, seconds: int) -> Figures:
    command = [sys.executable, "-m", measure.__name__, str(model.resolve()), str(seconds)]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_PATIENCE * seconds)
    except subprocess.TimeoutExpired:
        return Figures(refused=f"takes more than {_PATIENCE * seconds:,} s")
    if done.returncode == -signal.SIGKILL:
        return Figures(refused=f"takes more than {seconds:,} s of the processor")
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:] or ["nothing is said"]
        return Figures(refused=f"ends with {done.returncode}, with {measure.BYTES >> 30} GiB at most: {said[0][:200]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return Figures(**found)
