"""The C library on images as a damaged or hostile file gives them, and a model in C on any data: nothing beyond their
buffers is read or written.
"""

import os
import subprocess
from pathlib import Path

import pytest

from tests.fuzz.c_library import TARGETS, WAYS, NotHereError, run


def fuzz(folder: Path, way: str, count: int, target: str) -> None:
    seed = int(os.environ["NPUGEN_SEED"])
    try:
        done, (first, second) = run(folder, way, count, seed, target)
    except NotHereError as missing:
        pytest.skip(str(missing))
    except subprocess.CalledProcessError as error:
        pytest.fail(error.stderr)
    assert done.returncode == 0, (f"repeat with: python -m tests.fuzz.c_library {way} {count} {seed} {target}\n"
                                  f"{done.stderr[-3000:]}")
    # Refusals alone would show nothing.
    assert first > count // 50 and second > count // 100


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("target", [target for target in TARGETS if target not in ("doctor", "uio")])
def test_random_cases(target: str, way: str, tmp_path: Path) -> None:
    fuzz(tmp_path, way, 5_000 if target == "image" else 1_000, target)


@pytest.mark.parametrize(("target", "way"), [("doctor", "sanitizers"), ("uio", "sanitizers"), ("uio", "arm")])
def test_devices_and_files_that_are_anything(target: str, way: str, tmp_path: Path) -> None:
    fuzz(tmp_path, way, 500, target)


@pytest.mark.full
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("target", TARGETS)
def test_many_random_cases(target: str, way: str, tmp_path: Path) -> None:
    fuzz(tmp_path, way, 200_000, target)
