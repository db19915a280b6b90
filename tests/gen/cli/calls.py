"""Commands called as they are by the shell."""

import pytest

from gen.cli import main


def error_line(capsys: pytest.CaptureFixture, status: int, *argv: str) -> str:
    """Run a command that must fail so; returns what it says, after checking that it is one line and nothing else."""
    assert main(argv) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1 and captured.err.startswith("gen"), captured.err
    return captured.err
