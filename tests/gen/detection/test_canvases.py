"""The pictures that examples/detection makes: the same each time, and what is said to be in them is there."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gen.detection.read import read_annotations
from tests import ROOT


@pytest.mark.cli
def test_pictures_and_their_objects(tmp_path: Path):
    script = ROOT / "examples" / "detection" / "canvases.py"
    for name in ("a", "b"):
        subprocess.run([sys.executable, script, "-o", tmp_path / name, "--count", "20"], check=True,
                       capture_output=True, cwd=tmp_path)
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.*"))
    assert len(files) == 2 * (20 + 2)
    assert all((tmp_path / "a" / one).read_bytes() == (tmp_path / "b" / one).read_bytes() for one in files)
    for size, most in ((96, 3), (160, 8)):
        found = read_annotations(tmp_path / "a" / str(size) / "train.json")
        assert found.names == tuple("0123456789") and len(found) == 18
        counts = {len(picture.boxes) for picture in found.pictures}
        assert 2 < len(counts) and 1 <= min(counts) and max(counts) <= most
        for picture in found.pictures:
            pixels = np.asarray(Image.open(found.images / picture.name)).astype(int)
            assert pixels.shape == (picture.height, picture.width, 3) == (size, size, 3)
            for left, top, right, bottom in picture.boxes.astype(int):
                # The ink of a digit reaches each of its sides.
                inside = pixels[top:bottom, left:right]
                assert min(right - left, bottom - top) > 3 and inside.std(axis=(0, 1)).max() > 20
