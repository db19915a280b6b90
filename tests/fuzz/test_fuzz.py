"""Commands on files that were changed at random: they do their work or say in one line why not, and harm nothing.

``python -m tests.fuzz.worker`` says how a case is repeated; `tests.fuzz.worker.Fuzzer` says what is asked of one.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.fuzz.worker import KINDS, SECONDS

#: Cases in all, and in each test.
FULL = {"model": 2000, "program": 1000, "config": 500, "input": 500, "package": 1000, "document": 500, "special": 500,
        "name": 1000, "archive": 500}
CASES = 100
#: Further models that are mutated in the long run, if they are there.
MODELS = ("mlperf_kws_dscnn_int8", "tinymaix_mnist_resnet_int8", "mlperf_resnet8_int8")


def fuzz(kind: str, first: int, models: list[Path], folder: Path) -> None:
    """Cases ``first``... in a process of their own, which may end in any way."""
    seed = int(os.environ["NPUGEN_SEED"])
    argv = [sys.executable, "-m", "tests.fuzz.worker", kind, str(seed), str(first), str(CASES), *map(str, models)]
    environment = {**os.environ, "NPUGEN_FUZZ_KEEP": str(folder), "COLUMNS": "160"}
    environment.pop("NPUGEN_TRACEBACK", None)
    with open(folder / "log", "w+") as log, open(folder / "errors", "w+") as errors:
        process = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=log, stderr=errors)
        try:
            status = process.wait(timeout=CASES * SECONDS)
        except BaseException:
            process.send_signal(signal.SIGKILL)
            process.wait()
            raise
        log.seek(0)
        errors.seek(0)
        results = [json.loads(line) for line in log]
        said = errors.read()
    repeat = f"repeat with: python -m tests.fuzz.worker {kind} {seed} NUMBER 1 {' '.join(map(str, models))}"
    wrong = [result for result in results if result.get("wrong")]
    assert not wrong, f"{repeat}; files in {folder}\n" + "\n".join(map(str, wrong))
    assert status == 0, f"{repeat}; exit status {status} after {results[-1:]}\n{said[-2000:]}"
    assert len([result for result in results if "number" in result]) == CASES
    # Mutations that are all refused at the door would show nothing.
    assert sum(result.get("status") == 0 for result in results) >= CASES // 20
    assert sum(result.get("status") in (1, 2) for result in results) >= CASES // 5


def test_pytest_keeps_what_it_compiles():
    """Importing the worker switched that off, and each run compiled most tests again, for seven seconds a process."""
    assert not sys.dont_write_bytecode


@pytest.mark.parametrize("kind", KINDS)
def test_mutated_files(kind: str, tmp_path: Path):
    fuzz(kind, 0, [], tmp_path)


@pytest.mark.full
@pytest.mark.parametrize(("kind", "first"), [(kind, first) for kind, count in FULL.items()
                                             for first in range(CASES, CASES + count, CASES)])
def test_many_mutated_files(kind: str, first: int, models: Path, tmp_path: Path):
    fuzz(kind, first, [models / f"{name}.onnx" for name in MODELS], tmp_path)
