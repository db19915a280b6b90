"""Samples from files, and what is said about files that do not fit."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gen.inputs import InputError, read_samples
from gen.ir import Graph, HostStep, Tensor

SHAPES = {"image": (1, 3, 4, 6)}


def graph(*, quantized: bool = False, unsigned: bool = False) -> Graph:
    steps = (HostStep("quantize", {"scale": 1 / 255, "zero_point": -128, "unsigned": False}),) if quantized else ()
    tensor = Tensor("x", (3, 4, 6), 1.0, 0, onnx_unsigned=unsigned)
    return Graph("test", {"x": tensor}, [], {"image": ("x", steps)}, {})


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """6 x 4, red rising to the right, green downwards."""
    pixels = np.zeros((4, 6, 3), np.uint8)
    pixels[..., 0] = 40 * np.arange(6)
    pixels[..., 1] = 60 * np.arange(4)[:, None]
    Image.fromarray(pixels).save(tmp_path / "picture.png")
    return tmp_path / "picture.png"


def test_npz_with_labels_and_limit(tmp_path: Path, rng: np.random.Generator):
    image = rng.integers(-128, 128, (5, 3, 4, 6), np.int8)
    np.savez(tmp_path / "x.npz", image=image, label=np.arange(5), other=1)
    samples = read_samples(tmp_path / "x.npz", graph(), SHAPES, limit=2)
    assert len(samples) == 2
    np.testing.assert_array_equal(samples.inputs["image"], image[:2])
    np.testing.assert_array_equal(samples.labels, [0, 1])


def test_npy_may_be_a_single_sample(tmp_path: Path):
    np.save(tmp_path / "x.npy", np.ones((3, 4, 6), np.int8))
    assert read_samples(tmp_path / "x.npy", graph(), SHAPES).inputs["image"].shape == (1, 3, 4, 6)


@pytest.mark.parametrize(("kind", "dtype", "value", "values"), [
    ({"quantized": True}, np.float32, np.float32(80 / 255), "0..1"),
    ({"unsigned": True}, np.uint8, 80, "0..255"),
    ({}, np.int8, 80 - 128, "-128..127"),
])
def test_image_in_the_type_of_the_input(picture: Path, kind: dict, dtype: type, value: float, values: str):
    samples = read_samples(picture, graph(**kind), SHAPES)
    array = samples.inputs["image"]
    assert array.dtype == dtype and array.shape == (1, 3, 4, 6)
    assert array[0, 0, 1, 2] == value
    assert samples.remark == f"{picture}: 6 x 4 RGB, as it is; pixels 0..255 are taken as {values}"


def test_what_was_done_to_an_image_is_said(tmp_path: Path):
    Image.new("RGBA", (12, 9)).save(tmp_path / "x.png")
    samples = read_samples(tmp_path / "x.png", graph(), {"image": (1, 1, 4, 6)})
    assert samples.remark.endswith("x.png: 12 x 9 RGBA converted to 6 x 4 gray; pixels 0..255 are taken as -128..127")


def test_image_with_channels_last(picture: Path):
    array = read_samples(picture, graph(unsigned=True), {"image": (1, 4, 6, 3)}).inputs["image"]
    assert array.shape == (1, 4, 6, 3)
    assert array[0, 3, 5].tolist() == [200, 180, 0]


@pytest.mark.parametrize(("arrays", "message"), [
    ({"x": np.zeros((1, 3, 4, 6))}, "has no array 'image'; the model's inputs are image, the file has x"),
    ({"image": np.zeros((1, 3, 4, 5))}, r"input image must have the shape \(samples, 3, 4, 6\), not \(1, 3, 4, 5\)"),
    ({"image": np.zeros((2, 3, 4, 6)), "label": np.zeros(3)}, "differ in their number of samples: image 2, label 3"),
    ({"image": np.zeros((2, 3, 4, 6)), "label": np.zeros((2, 1))}, r"label must have one number .* float64 \(2, 1\)"),
    ({"image": np.zeros((2, 3, 4, 6)), "label": 3}, r"label must have one number for each sample, not int64 \(\)"),
    ({"image": np.zeros((2, 3, 4, 6)), "label": np.array(["a", "b"])}, "label must have one number"),
    ({"image": np.zeros((0, 3, 4, 6))}, "there are no samples"),
    ({"image": np.full((1, 3, 4, 6), np.nan)}, "input image holds values that are not numbers"),
    ({"image": np.zeros((1, 3, 4, 6), complex)}, "input image must be int8, not complex128"),
    ({"image": np.zeros((2, 3, 4, 6)), "label": np.array([1, np.nan])}, "labels must be whole numbers"),
])
def test_npz_that_does_not_fit(tmp_path: Path, arrays: dict, message: str):
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(InputError, match=message) as caught:
        read_samples(tmp_path / "x.npz", graph(), SHAPES)
    assert str(tmp_path / "x.npz") in str(caught.value)


@pytest.mark.parametrize("name", ["x.npz", "x.npy", "x.png"])
@pytest.mark.parametrize("content", [b"nonsense", b"PK\x03\x04 cut"])
def test_damaged_files(tmp_path: Path, name: str, content: bytes):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=rf"{name}: ") as caught:
        read_samples(tmp_path / name, graph(), SHAPES)
    assert "\n" not in str(caught.value)


def test_files_without_content(tmp_path: Path):
    (tmp_path / "x.npz").touch()
    for path, message in ((tmp_path / "x.npz", "the file is empty"), (tmp_path, "Is a directory"),
                          (Path("/dev/zero"), "not a regular file")):
        with pytest.raises(OSError, match=message):
            read_samples(path, graph(), SHAPES)


def test_truncated_image(tmp_path: Path, rng: np.random.Generator):
    path = tmp_path / "noise.png"
    Image.fromarray(rng.integers(0, 256, (64, 64, 3), np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(InputError, match="noise.png: "):
        read_samples(path, graph(), SHAPES)
