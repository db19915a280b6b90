"""The wheel with other Pythons: installed from the index, and used.

    python -m tests.pythons python3.12 python3.13

For each interpreter an environment is made in build/pythons, which compiles the bundled network and runs it on the
functional simulator. Ends with status 1 where that fails, or the program has other bytes than this Python's.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests import ROOT
from tests.test_wheel import build_wheel

__all__ = ["main"]

_FOLDER = ROOT / "build" / "pythons"
_DIGITS = ROOT / "gen" / "digits"


def _said(*command: str | Path) -> str:
    """What a command says, on stdout; of another Python's, without what leads it to the checkout. Raises
    CalledProcessError."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    if command[0] == sys.executable:
        environment["PYTHONPATH"] = str(ROOT)
    return subprocess.run([str(word) for word in command], cwd=_FOLDER, env=environment, check=True,
                          stdout=subprocess.PIPE, text=True).stdout


def _program(python: str | Path, name: str) -> bytes:
    """The bundled network's, by ``python -m npugen``, after a run of it in which no value differed."""
    program, samples = _FOLDER / f"{name}.npu", _DIGITS / "digits_test.npz"
    _said(python, "-m", "npugen", "compile", _DIGITS / "digits_int8.onnx", "--macs", "64", "-o", program)
    _said(python, "-m", "npugen", "run", program, "--input", samples, "--limit", "20", "--target", "functional")
    return program.read_bytes()


def main(interpreters: list[str]) -> int:
    shutil.rmtree(_FOLDER, ignore_errors=True)
    _FOLDER.mkdir(parents=True)
    wheel, wrong = build_wheel(_FOLDER), 0
    expected = _program(sys.executable, "this")
    for number, interpreter in enumerate(interpreters):
        python = _FOLDER / str(number) / "bin" / "python"
        try:
            _said(interpreter, "-m", "venv", python.parents[1])
            _said(python, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", wheel)
            words = "the same program" if _program(python, str(number)) == expected else "another program"
            version = _said(python, "-c", "import platform; print(platform.python_version(), platform.machine())")
            print(f"{interpreter}: {version.strip()}, {words}", flush=True)
            wrong += words != "the same program"
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"{interpreter}: {error}", flush=True)
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
