"""Commands as processes: modules, streams, signals, and errors of their own."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gen.cli import main
from tests.gen.cli.calls import error_line


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def test_modules_where_it_is_called_are_not_ours(model: str):
    """Nor are they Yosys's, which is Python too."""
    for name in ("sim", "random", "platformdirs"):
        Path(f"{name}.py").write_text("raise SystemExit(f'{__file__} was imported')\n")
    done = subprocess.run([sys.executable, "-m", "gen", "build", "--macs", "16", "-o", "out"], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr


def test_it_is_a_module(tmp_path: Path):
    done = subprocess.run([sys.executable, "-m", "gen", "boards", "--json"], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert {"zu3eg", "zynq7020", "cyclonev", "ecp5"} <= {board["name"] for board in json.loads(done.stdout)["boards"]}


@pytest.mark.parametrize("redirection", [">&-", "> /dev/full", "| head -c 1", "2>&-"])
@pytest.mark.parametrize("command", ["boards", "boards --json", "boards --help"])
def test_output_that_nobody_takes(redirection: str, command: str):
    line = f"{sys.executable} -m gen {command} {redirection}"
    done = subprocess.run(line, shell=True, capture_output=True, text=True)
    full = "gen boards: error: stdout: No space left on device [unreadable-file]\n"
    expected = full if "full" in redirection else ""
    assert (done.stderr, done.returncode) == (expected, 1 if expected else 0)


def test_warnings_are_not_for_users():
    code = ("import runpy, sys, warnings, gen.cli.boards as boards; boards.run = lambda _: warnings.warn('raw'); "
            "sys.argv = ['gen', 'boards']; runpy.run_module('gen', run_name='__main__')")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    for options, said in (([], False), (["-W", "default"], True)):
        done = subprocess.run([sys.executable, *options, "-c", code], capture_output=True, text=True, env=environment)
        assert done.returncode == 0 and ("UserWarning: raw" in done.stderr) == said


def test_internal_errors_are_one_line_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    def broken(arguments):
        raise KeyError("no such\nthing")

    monkeypatch.setattr("gen.cli.boards.run", broken)
    assert "internal error (KeyError: 'no such\\nthing'); NPUGEN_TRACEBACK=1" in error_line(capsys, 1, "boards")
    monkeypatch.setenv("NPUGEN_TRACEBACK", "1")
    with pytest.raises(KeyError):
        main(["boards"])


def test_an_interrupt_leaves_nothing(tmp_path: Path):
    """Not a folder of the simulation that was being built, no tool that goes on, and one line."""
    command = [sys.executable, "-m", "gen", "demo", "--macs", "16"]
    environment = {**os.environ, "NPUGEN_BUILD": str(tmp_path / "cache")}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        while demo.poll() is None and not list((tmp_path / "cache").glob("rtl/*.tmp/npu.*/obj")):
            time.sleep(0.05)
        demo.send_signal(signal.SIGTERM)
        _, said = demo.communicate(timeout=60)
    assert demo.returncode == 130 and said.endswith("gen demo: interrupted\n")
    assert all(re.fullmatch(r".+, \d+ s", line) for line in said.splitlines()[:-1]), said
    assert list((tmp_path / "cache").glob("rtl/*")) == []
    tools = [path for path in Path("/proc").glob("[0-9]*/cwd") if _link(path).startswith(str(tmp_path / "cache"))]
    assert tools == []


def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    monkeypatch.delitem(sys.modules, "gen.cli.boards", raising=False)
    monkeypatch.setitem(sys.modules, "rich.table", None)
    assert "the package rich.table is missing: type `. .venv/bin/activate`" in error_line(capsys, 1, "boards")
