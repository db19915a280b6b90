"""Completion of the command line, as a shell asks for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT


def completed(line: str, folder: Path) -> list[str]:
    """What may follow: the shell's protocol of argcomplete, with a file in place of its descriptor."""
    out = folder / "words"
    subprocess.run([sys.executable, "-m", "npugen"], cwd=folder, check=True, capture_output=True, env={
        **os.environ, "PYTHONPATH": str(ROOT), "_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "COMP_LINE": line,
        "COMP_POINT": str(len(line)), "_ARGCOMPLETE_STDOUT_FILENAME": str(out)})
    return [word.strip() for word in out.read_text().splitlines()]


@pytest.mark.cli
@pytest.mark.parametrize(("line", "words"), [
    ("npugen comp", ["compare", "compile"]),
    ("npugen report x.onnx --tr", ["--trace"]),
    ("npugen report --target ", ["cycles", "rtl"]),
])
def test_words(line: str, words: list[str], tmp_path: Path):
    assert sorted(completed(line, tmp_path)) == words
