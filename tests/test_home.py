"""The user's home folder: nothing is written there, by native code neither, and nothing is sent."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from sim.devices import FunctionalBackend
from tests.conftest import ROOT
from tests.gen.test_deploy import CONFIG, partitioned  # noqa: F401
from tests.npudriver.serving import serving

#: Commands of a library's user, who has imported nothing before; what they make is in the folder that they run in.
_COMMANDS = """
import json, sys
from gen.cli import main

for argv in json.loads(sys.argv[1]):
    if status := main(argv):
        sys.exit(f"{argv}: {status}")
"""


def environment(home: Path, **more: str) -> dict[str, str]:
    """A user's, who has said nothing of what belongs where; in CI onnxruntime is quiet of its own accord."""
    kept = {name: value for name, value in os.environ.items()
            if name not in ("CI", "ORT_DISABLE_TELEMETRY", "MPLCONFIGDIR") and not name.startswith("XDG_")}
    return {**kept, "HOME": str(home), "PYTHONPATH": str(ROOT), **more}


def written(home: Path) -> list[str]:
    return sorted(str(path.relative_to(home)) for path in home.rglob("*"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_onnxruntime_writes_when_it_is_let(home: Path):
    """Or the tests below would show nothing."""
    subprocess.run([sys.executable, "-c", "import onnxruntime"], env=environment(home), check=True)
    assert any("onnxruntime" in name for name in written(home)), onnxruntime.__version__


def test_commands(partitioned: Path, home: Path, digits: Path):     # noqa: F811
    """Models of which the processor runs a part, too."""
    samples = home.parent / "x.npz"
    np.savez(samples, **{onnxruntime.InferenceSession(str(partitioned)).get_inputs()[0].name:
                         np.ones((2, 4, 6, 6), np.float32)})
    small = ["--macs", "16"]
    commands = [
        ["compile", str(partitioned), "-o", "p.npu", *small],
        ["run", "p.npu", "--input", str(samples), "--target", "functional"],
        ["profile", "p.npu", "-o", "profile"],
        ["quantize", str(digits / "digits_float.onnx"), "--calibrate", str(digits / "digits_test.npz"), "--limit", "8",
         "-o", "q.onnx"],
        ["compare", "q.onnx", "--input", str(digits / "digits_test.npz"), "--limit", "2"],
        ["deploy", "p.npu", "-o", "package"],
    ]
    subprocess.run([sys.executable, "-c", _COMMANDS, json.dumps(commands)], cwd=home.parent, check=True,
                   env=environment(home, NPUGEN_BUILD=str(home.parent / "kept")))
    assert written(home) == []
    assert (home.parent / "profile" / "profile.png").is_file(), "has no plot, so that of fonts nothing is said"
    with serving(FunctionalBackend(CONFIG)) as url:
        subprocess.run([sys.executable, "run.py", "--device", url], cwd=home.parent / "package", check=True,
                       env=environment(home))
    assert written(home) == []


def test_what_the_user_has_said_stays(home: Path):
    code = "import os, {}; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    for package in ("gen", "npudriver"):
        for given, kept in ({}, "1"), ({"ORT_DISABLE_TELEMETRY": ""}, "1"), ({"ORT_DISABLE_TELEMETRY": "0"}, "0"):
            done = subprocess.run([sys.executable, "-c", code.format(package)], env=environment(home, **given),
                                  check=True, capture_output=True, text=True)
            assert done.stdout.strip() == kept, (package, given)


@pytest.mark.slow
def test_nothing_else_imports_onnxruntime():
    """Outside the two packages that switch its telemetry off: examples and tools go through them."""
    importers = []
    for path in (*ROOT.glob("*/**/*.py"), *ROOT.glob("*.py")):
        place = path.relative_to(ROOT).parts
        if place[0] in ("gen", "npudriver", "tests") or place[0].startswith((".", "build")):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else \
                [node.module or ""] if isinstance(node, ast.ImportFrom) else \
                [node.value] if isinstance(node, ast.Constant) and node.value == "onnxruntime" else []
            importers += [str(path) for name in names if name.partition(".")[0] == "onnxruntime"]
    assert importers == []
