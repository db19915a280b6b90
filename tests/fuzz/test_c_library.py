"""The C library on images as a damaged or hostile file gives them: nothing beyond its buffers is read or written."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.fuzz.c_library import WAYS, NotHereError, run


def fuzz(folder: Path, way: str, count: int) -> None:
    seed = int(os.environ["NPUGEN_SEED"])
    try:
        done, (loaded, written) = run(folder, way, count, seed)
    except NotHereError as missing:
        pytest.skip(str(missing))
    except subprocess.CalledProcessError as error:
        pytest.fail(error.stderr)
    assert done.returncode == 0, (f"repeat with: python -m tests.fuzz.c_library {way} {count} {seed}\n"
                                  f"{done.stderr[-3000:]}")
    # Refusals alone would show nothing.
    assert loaded > count // 50 and written > count // 100


@pytest.mark.parametrize("way", WAYS)
def test_random_images(way: str, tmp_path: Path):
    fuzz(tmp_path, way, 5_000)


@pytest.mark.full
@pytest.mark.parametrize("way", WAYS)
def test_many_random_images(way: str, tmp_path: Path):
    fuzz(tmp_path, way, 200_000)
