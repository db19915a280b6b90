"""The wheel as users get it: built, installed, and run by its console script where nothing of the checkout is.

The environment is empty but for the wheel: what it depends on is found, by a .pth file, where these tests find it. So
no index is asked, and the editable installation, which is a .pth file itself, is left out.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs
import pytest

from tests.conftest import ROOT

PACKAGES = ("boards", "cores", "gen", "npudriver", "npugen", "sim")


def build_wheel(folder: Path) -> Path:
    """Of a copy: setuptools would leave its own outputs, and take earlier ones, in the checkout."""
    sources = folder / "sources"
    sources.mkdir()
    for name in ("LICENSE", "NOTICE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, sources)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation",
                    "--wheel-dir", str(folder), str(sources)], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_every_file_of_the_packages_is_in_it(tmp_path: Path):
    with zipfile.ZipFile(build_wheel(tmp_path)) as archive:
        names = archive.namelist()
    ours = {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts}
    assert {"sim/rtl/axi_memory.hpp", "gen/digits/digits_int8.onnx"} <= ours
    assert {name for name in names if ".dist-info/" not in name} == ours


@dataclass(frozen=True)
class Installed:
    """A wheel in an environment of its own; ``here``: where the user works, with modules that must not be imported."""

    packages: Path
    script: Path
    here: Path
    home: Path

    @property
    def on_rtl(self) -> list[str]:
        """A digit on the Verilog of a small machine."""
        digits = self.packages / "gen" / "digits"
        return ["run", str(digits / "digits_int8.onnx"), "--input", str(digits / "digits_test.npz"), "--limit", "1",
                "--macs", "16", "--target", "rtl"]

    def environment(self) -> dict[str, str]:
        """Neither variables of ours nor an activated environment; Yosys need not be compiled for this home anew.

        How simulators are compiled stays: whether that pays is a matter of the whole test run.
        """
        kept = {name: value for name, value in os.environ.items()
                if name == "NPUGEN_RTL_QUICK" or not name.startswith(("NPUGEN_", "PYTHON", "XDG_", "VIRTUAL_ENV"))}
        compiled = platformdirs.user_cache_dir("YoWASP", appauthor=False)
        return {"YOWASP_CACHE_DIR": compiled, **kept, "HOME": str(self.home)}

    def call(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.script, *argv], cwd=self.here, env=self.environment(), capture_output=True,
                              text=True)

    def output(self, *argv: str) -> str:
        done = self.call(*argv)
        assert done.returncode == 0, f"npugen {' '.join(argv)}: {done.stderr[-3000:]}"
        return done.stdout

    def files(self) -> dict[str, tuple[int, int]]:
        """All that is installed: name -> size, time."""
        return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in self.packages.rglob("*")}


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Installed]:
    """The folders of the packages are read-only."""
    wheel = build_wheel(tmp_path)
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps",
                    "--no-index", str(wheel)], check=True,
                   env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"})   # has us already
    (packages,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(
        "".join(f"{folder}\n" for folder in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}))
    here, home = tmp_path / "here", tmp_path / "home"
    for folder in (here / "gen", home):
        folder.mkdir(parents=True)
    for name in ("sim.py", "gen/__init__.py", "boards.py", "cores.py", "random.py"):
        (here / name).write_text("raise SystemExit(f'{__file__} was imported')\n")
    folders = [packages, *(path for path in packages.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    yield Installed(packages, tmp_path / "env" / "bin" / "npugen", here, home)
    for folder in folders:
        folder.chmod(0o755)


def test_it_runs_where_it_is_installed(installed: Installed):
    """A model on the Verilog, beside modules of the user's own; all that is kept goes to his folder for caches."""
    before = installed.files()
    assert "example: npugen demo --limit 20" in installed.output("demo", "--help")
    installed.output("build", "--macs", "16", "-o", "out")
    assert "module npu(" in (installed.here / "out" / "npu.v").read_text()
    result = json.loads(installed.output(*installed.on_rtl, "--json"))
    assert (result["target"], result["mismatches"], result["accuracy"]) == ("rtl", 0, 1.0)
    installed.output("demo", "--macs", "16", "--limit", "1")
    installed.output("profile", "build/demo/digits.npu", "-o", "out")  # has a plot
    assert list((installed.home / ".cache" / "npugen" / "rtl").glob("*/libnpu.so"))
    assert installed.files() == before
    done = installed.call("run", "none.onnx", "--input", "none.npz")
    said = "npugen run: error: none.onnx: No such file or directory [unreadable-file]\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_signals(installed: Installed):
    """`kill` ends the console script as it does `python -m gen`: what is half made goes."""
    cache = installed.home / ".cache" / "npugen" / "rtl"
    with subprocess.Popen([installed.script, *installed.on_rtl], cwd=installed.here, env=installed.environment(),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as command:
        while command.poll() is None and not list(cache.glob("*.tmp")):
            time.sleep(0.05)
        command.send_signal(signal.SIGTERM)
        _, said = command.communicate(timeout=60)
    assert command.returncode == 130 and said.endswith("npugen run: interrupted\n"), said
    assert list(cache.iterdir()) == []


@pytest.mark.full
def test_synthesis_and_benches_write_nothing_there(installed: Installed):
    before = installed.files()
    installed.output("build", "--macs", "16", "-o", "out", "--synth")
    installed.output("bench", "speed", "--macs", "16")
    assert {path.name for path in (installed.home / ".cache" / "npugen").iterdir()} == {"rtl", "synth"}
    assert installed.files() == before
