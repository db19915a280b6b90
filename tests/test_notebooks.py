"""The notebooks of docs/notebooks run from the first cell to the last, and are kept without outputs."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import npugen
from tests import ROOT

NOTEBOOKS = {path.stem: path for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))}
_EACH = pytest.mark.parametrize("path", NOTEBOOKS.values(), ids=NOTEBOOKS)
#: Seconds of a cell; the longest compile a simulation.
_LONGEST = 900


def texts(path: Path, kind: str) -> Iterator[str]:
    """Of the cells of a kind."""
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == kind:
            yield "".join(cell["source"])


@_EACH
def test_they_are_kept_without_outputs(path: Path):
    cells = json.loads(path.read_text())["cells"]
    assert next(texts(path, "markdown")).startswith(f"# {path.stem[0]} ")
    for cell in cells:
        assert cell.get("outputs", []) == [] and cell.get("execution_count") is None, cell["id"]
    assert len({cell["id"] for cell in cells}) == len(cells)


@_EACH
def test_their_links_lead_somewhere(path: Path):
    for target in re.findall(r"\]\(([^)#]+)\)", "\n".join(texts(path, "markdown"))):
        assert "://" in target or (path.parent / target).exists(), target


@_EACH
def test_what_they_call_is_there(path: Path):
    code = "\n".join(texts(path, "code"))
    compile(code, path.name, "exec")
    used = set(re.findall(r"\bnpugen\.(\w+)", code)) - {"__file__"}
    assert used <= set(npugen.__all__) and (used or path.stem == "3_own_unit")


@pytest.mark.slow
def test_the_first_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The cheapest, in this process, without the cells that simulate."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names: dict[str, object] = {}
    cells = list(texts(NOTEBOOKS["1_first_model"], "code"))
    simulating = [cell for cell in cells if 'target=' in cell]
    for cell in cells:
        if cell not in simulating:
            exec(cell, names)
    assert len(simulating) == 2 and (tmp_path / "build" / "notebooks" / "first_model.html").is_file()


#: Run by a Python of its own, whose sockets and threads are not this one's; prints how many pictures there are.
_RUN = """
import sys
import nbclient, nbformat
from jupyter_client.manager import AsyncKernelManager

path, folder, seconds = sys.argv[1:]
book = nbformat.read(path, 4)
kernel = AsyncKernelManager(transport="ipc", ip=f"{folder}/kernel")
nbclient.NotebookClient(book, km=kernel, timeout=int(seconds), resources={"metadata": {"path": folder}}).execute()
print(sum("image/png" in output.get("data", {}) for cell in book.cells for output in cell.get("outputs", ())))
"""


@pytest.mark.full
@_EACH
def test_they_run(path: Path, tmp_path: Path):
    for package in ("nbclient", "ipykernel", *(["torch"] if "npugen.train" in path.read_text() else [])):
        if find_spec(package) is None:
            pytest.skip(f"{package} is an extra: pip install '.[notebooks]'")
    done = subprocess.run([sys.executable, "-c", _RUN, str(path), str(tmp_path), str(_LONGEST)], cwd=tmp_path,
                          env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.splitlines()[-1]), "a notebook without a picture"
