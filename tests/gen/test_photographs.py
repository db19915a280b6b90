"""Archives of photographs: in order, as RGB of one size; what is wrong with one is one line."""

from pathlib import Path

import numpy as np
import pytest

from gen.files.photographs import PhotographsError, read_photographs
from tests.gen.photograph_files import jpeg, write_archive


def plain(value: int, side: int = 4) -> bytes:
    return jpeg(np.full((side, side, 3), value))


def test_classes_and_photographs_by_name(tmp_path: Path):
    gray = jpeg(np.full((4, 4), 90))
    write_archive(tmp_path / "x.zip", {"b/1.jpg": plain(30), "b/0.jpg": plain(20), "a/9.jpg": plain(10),
                                       "b/2.jpg": gray, "readme.txt": b"", "top.jpg": b"", "a/deeper/0.jpg": b""})
    pixels, labels = read_photographs(tmp_path / "x.zip")
    assert (pixels.dtype, pixels.shape, labels.dtype) == (np.uint8, (4, 4, 4, 3), np.int64)
    assert labels.tolist() == [0, 1, 1, 1]
    assert np.abs(pixels.astype(int) - np.array([10, 20, 30, 90])[:, None, None, None]).max() <= 2
    few, labels = read_photographs(tmp_path / "x.zip", a_class=1)
    np.testing.assert_array_equal(few, pixels[:2])
    assert labels.tolist() == [0, 1]


def test_one_size(tmp_path: Path):
    write_archive(tmp_path / "x.zip", {"a/0.jpg": plain(50, side=9), "b/0.jpg": plain(70)})
    with pytest.raises(PhotographsError, match=r"b/0.jpg: 4x4, where others are 9x9"):
        read_photographs(tmp_path / "x.zip")


@pytest.mark.parametrize("members, message", [
    ({}, "no .jpg files in folders, as CLASS/NAME.jpg"), ({"a.jpg": b""}, "no .jpg files in folders"),
    ({"a/0.jpg": b"none"}, r"a/0.jpg: not an .npz or .npy file, nor an image"),
    ({"a/0.jpg": plain(1)[:-150]}, "a/0.jpg: damaged"),
    ({"a/0.jpg": bytes((1 << 22) + 1)}, "a/0.jpg has 4,194,305 bytes")])
def test_archives_of_something_else(members: dict[str, bytes], message: str, tmp_path: Path):
    write_archive(tmp_path / "x.zip", members)
    with pytest.raises(PhotographsError, match=message) as caught:
        read_photographs(tmp_path / "x.zip")
    assert str(caught.value).startswith(f"{tmp_path / 'x.zip'}: ") and "\n" not in str(caught.value)


def test_damaged_archives(tmp_path: Path, rng: np.random.Generator):
    path = tmp_path / "x.zip"
    write_archive(path, {"a/0.jpg": plain(1), "b/0.jpg": plain(2)})
    whole = path.read_bytes()
    for content in (b"", whole[:-9], b"nothing of the kind", whole[:40] + bytes(200) + whole[240:]):
        path.write_bytes(content)
        with pytest.raises(PhotographsError, match="x.zip: damaged"):
            read_photographs(path)
    with pytest.raises(FileNotFoundError):
        read_photographs(tmp_path / "y.zip")
