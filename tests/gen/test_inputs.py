"""Samples from files, and what is said about files that do not fit."""

import io
import struct
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gen.ir.graph import Graph
from gen.ir.host import HostStep
from gen.ir.tensor import Tensor
from gen.run.inputs import InputError, InputSpec, input_specs, read_samples
from gen.run.preprocessing import Preprocessing
from tests.errors import raises

SHAPES = {"image": (1, 3, 4, 6)}


IMAGENET = Preprocessing((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


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


@pytest.mark.parametrize("shape", [(5,), (5, 1)])
def test_a_number_for_each_sample(shape: tuple[int, ...], tmp_path: Path) -> None:
    """Of an input (1), as a time or a factor is, with or without an axis of its own."""
    np.savez(tmp_path / "x.npz", x=np.zeros((5, 3), np.float32), time=np.arange(5, dtype=np.float32).reshape(shape))
    specs = {"x": InputSpec((1, 3), np.dtype(np.float32)), "time": InputSpec((1, 1), np.dtype(np.float32))}
    found = read_samples(tmp_path / "x.npz", specs, limit=4).inputs["time"]
    assert found.tolist() == [[0], [1], [2], [3]]


def test_npz_with_labels_and_limit(tmp_path: Path, rng: np.random.Generator):
    image = rng.integers(-128, 128, (5, 3, 4, 6), np.int8)
    np.savez(tmp_path / "x.npz", image=image, label=np.arange(5), other=1)
    samples = read_samples(tmp_path / "x.npz", input_specs(graph(), SHAPES), limit=2)
    assert len(samples) == 2
    np.testing.assert_array_equal(samples.inputs["image"], image[:2])
    np.testing.assert_array_equal(samples.labels, [0, 1])


def test_npy_may_be_a_single_sample(tmp_path: Path):
    np.save(tmp_path / "x.npy", np.ones((3, 4, 6), np.int8))
    assert read_samples(tmp_path / "x.npy", input_specs(graph(), SHAPES)).inputs["image"].shape == (1, 3, 4, 6)


@pytest.mark.parametrize(("kind", "dtype", "value", "values"), [
    ({"quantized": True}, np.float32, np.float32(80 / 255), "0..1"),
    ({"unsigned": True}, np.uint8, 80, "0..255"),
    ({}, np.int8, 80 - 128, "-128..127"),
])
def test_image_in_the_type_of_the_input(picture: Path, kind: dict, dtype: type, value: float, values: str):
    samples = read_samples(picture, input_specs(graph(**kind), SHAPES))
    array = samples.inputs["image"]
    assert array.dtype == dtype and array.shape == (1, 3, 4, 6)
    assert array[0, 0, 1, 2] == value
    assert samples.remark == f"{picture}: 6 x 4 RGB, as it is; pixels 0..255 are taken as {values}"


def test_what_was_done_to_an_image_is_said(tmp_path: Path):
    Image.new("RGBA", (12, 9)).save(tmp_path / "x.png")
    samples = read_samples(tmp_path / "x.png", input_specs(graph(), {"image": (1, 1, 4, 6)}))
    assert samples.remark.endswith("x.png: 12 x 9 RGBA converted to 6 x 4 gray, without its transparency; "
                                   "pixels 0..255 are taken as -128..127")


def test_image_with_channels_last(picture: Path):
    array = read_samples(picture, input_specs(graph(unsigned=True), {"image": (1, 4, 6, 3)})).inputs["image"]
    assert array.shape == (1, 4, 6, 3)
    assert array[0, 3, 5].tolist() == [200, 180, 0]


@pytest.mark.parametrize(("arrays", "code"), [
    ({"x": np.zeros((1, 3, 4, 6))}, "sample-names"),
    ({"image": np.zeros((1, 3, 4, 5))}, "sample-shape"),
    ({"image": np.zeros((2, 3, 4, 6)), "label": np.zeros(3)}, "bad-samples"),
    ({"image": np.zeros((2, 3, 4, 6)), "label": np.zeros((2, 1))}, "bad-labels"),
    ({"image": np.zeros((2, 3, 4, 6)), "label": 3}, "bad-labels"),
    ({"image": np.zeros((2, 3, 4, 6)), "label": np.array(["a", "b"])}, "bad-labels"),
    ({"image": np.zeros((0, 3, 4, 6))}, "bad-samples"),
    ({"image": np.full((1, 3, 4, 6), np.nan)}, "not-finite"),
    ({"image": np.zeros((1, 3, 4, 6), complex)}, "sample-type"),
    ({"image": np.zeros((2, 3, 4, 6)), "label": np.array([1, np.nan])}, "bad-labels"),
])
def test_npz_that_does_not_fit(tmp_path: Path, arrays: dict, code: str):
    np.savez(tmp_path / "x.npz", **arrays)
    about = {"input": "image"} if code in ("sample-shape", "sample-type") else {}
    with raises(InputError, code, **about) as caught:
        read_samples(tmp_path / "x.npz", input_specs(graph(quantized=True), SHAPES))
    assert str(tmp_path / "x.npz") in str(caught.value)


@pytest.mark.parametrize("name", ["x.npz", "x.npy", "x.png"])
@pytest.mark.parametrize("content", [b"nonsense", b"PK\x03\x04 cut"])
def test_damaged_files(tmp_path: Path, name: str, content: bytes):
    (tmp_path / name).write_bytes(content)
    with raises(InputError, "damaged-samples") as caught:
        read_samples(tmp_path / name, input_specs(graph(), SHAPES))
    assert f"{name}: " in str(caught.value) and "\n" not in str(caught.value)


def test_files_without_content(tmp_path: Path):
    (tmp_path / "x.npz").touch()
    for path, message in ((tmp_path / "x.npz", "the file is empty"), (Path("/dev/zero"), "not a regular file")):
        with pytest.raises(OSError, match=message):
            read_samples(path, input_specs(graph(), SHAPES))


def test_a_folder_of_images(picture: Path):
    """By name; what is no image is passed over."""
    (picture.parent / "notes.txt").write_text("no image")
    Image.new("RGB", (6, 4), (255, 255, 255)).save(picture.parent / "another.PNG")
    samples = read_samples(picture.parent, input_specs(graph(unsigned=True), SHAPES))
    assert samples.inputs["image"][:, 0, 0, 5].tolist() == [255, 200] and samples.labels is None
    assert samples.remark.startswith("2 images, the first ") and "another.PNG" in samples.remark
    assert len(read_samples(picture.parent, input_specs(graph(), SHAPES), limit=1)) == 1


def test_a_folder_for_each_class(tmp_path: Path):
    """One of each in turn, so that the first few are of all classes; their numbers are the labels."""
    for place, colour in (("b/0.png", 10), ("b/1.png", 11), ("a/5.png", 1), ("c/0.png", 20)):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        Image.new("RGB", (6, 4), (colour, 0, 0)).save(tmp_path / place)
    samples = read_samples(tmp_path, input_specs(graph(unsigned=True), SHAPES))
    assert samples.inputs["image"][:, 0, 0, 0].tolist() == [1, 10, 20, 11]
    assert samples.labels is not None and samples.labels.tolist() == [0, 1, 2, 1]


def test_a_folder_without_images(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("no image")
    with pytest.raises(InputError, match=f"^{tmp_path}: no images in it"):
        read_samples(tmp_path, input_specs(graph(), SHAPES))


def test_truncated_image(tmp_path: Path, rng: np.random.Generator):
    path = tmp_path / "noise.png"
    Image.fromarray(rng.integers(0, 256, (64, 64, 3), np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(InputError, match="noise.png: "):
        read_samples(path, input_specs(graph(), SHAPES))


def test_only_what_is_needed_of_an_npz_is_read(tmp_path: Path):
    """The other members may be anything, and of the samples only those that are asked for take memory."""
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("huge.npy", bytes(1 << 26))
        archive.writestr("nonsense", b"no array")
        with archive.open("image.npy", "w") as member:
            np.lib.format.write_array(member, np.ones((200_000, 3, 4, 6), np.int8))
    tracemalloc.start()
    try:
        samples = read_samples(tmp_path / "x.npz", input_specs(graph(), SHAPES), limit=3)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(samples.inputs["image"], np.ones((3, 3, 4, 6), np.int8))


@pytest.mark.parametrize("suffix", ["npy", "npz"])
@pytest.mark.parametrize(("array", "limit"), [
    (np.asfortranarray(np.arange(360).reshape(5, 3, 4, 6) % 100, np.int8), 2),
    (np.asfortranarray(np.arange(72).reshape(3, 4, 6), np.int8), None),
    (np.arange(72).reshape(3, 4, 6).astype(np.int8), 2),
], ids=["fortran", "single-fortran", "single"])
def test_orders_and_single_samples(suffix: str, array: np.ndarray, limit: int | None, tmp_path: Path):
    path = tmp_path / f"x.{suffix}"
    np.save(path, array) if suffix == "npy" else np.savez_compressed(path, image=array)
    found = read_samples(path, input_specs(graph(), SHAPES), limit=limit).inputs["image"]
    np.testing.assert_array_equal(found, array.reshape(-1, 3, 4, 6)[:limit])


def npy(shape: str, descr: str = "'|i1'", data: bytes = bytes(72), version: bytes = b"\x01\x00") -> bytes:
    """An .npy file with this text as header."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}".encode()
    return b"\x93NUMPY" + version + struct.pack("<H" if version[0] == 1 else "<I", len(header)) + header + data


@pytest.mark.parametrize("suffix", ["npy", "npz"])
@pytest.mark.parametrize(("content", "message"), [
    (npy("(1, 3, 4, 6)")[:-1], "cut short: an array of shape"),
    (npy("(9, 3, 4, 6)"), "cut short: an array of shape"),
    (npy("(4611686018427387904, 3, 4, 6)"), "samples of 332,041,393,326,771,929,088 bytes; at most 1,073,741,824"),
    (npy("(-1, 3, 4, 6)"), "an array of shape"),
    (npy("(1, 3, 4, 6)", "'|O'"), "input image must be int8, not object"),
    (npy("(1, 3, 4, 6)", "[('a', '|i1')]"), "input image must be int8, not"),
    (npy("(1, 3, 4, 6)", "'|i1'", version=b"\x04\x00"), "damaged, or not an .np"),
    (npy("(1, 3, 4, 6"), "a damaged header, TokenError"),
    (npy("__import__('os')"), "a damaged header, ValueError"),
    (npy("(" * 5000), "a damaged header, TokenError"),
    (b"\x93NUMPY\x01\x00\xff\xff", "a damaged header, ValueError"),
    (b"\x93NUMPY", "damaged, or not an .np"),
    (b"no array", "x.np"),
], ids=range(13))
def test_damaged_arrays(content: bytes, message: str, suffix: str, tmp_path: Path):
    path = tmp_path / f"x.{suffix}"
    if suffix == "npz":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("image.npy", content)
    else:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_samples(path, input_specs(graph(), SHAPES))
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)


def test_floats_beyond_float32_are_infinite(tmp_path: Path):
    np.save(tmp_path / "x.npy", np.full((1, 3, 4, 6), -1e300))
    samples = read_samples(tmp_path / "x.npy", input_specs(graph(quantized=True), SHAPES))
    assert np.isneginf(samples.inputs["image"]).all()


#: Black, white and a gray of 0.4 in every mode that has 8 bits or fewer, or a range of its own.
_SIXTEEN = np.array([[0, 65535, 26214]], np.uint16)
_EIGHT = np.array([[0, 255, 102]], np.uint8)


@pytest.mark.parametrize(("image", "name", "options", "said"), [
    (Image.fromarray(_EIGHT), "x.png", {}, "3 x 1 gray, as it is;"),
    (Image.fromarray(_SIXTEEN), "x.png", {}, "3 x 1 16-bit gray converted to 3 x 1 gray;"),
    (Image.fromarray(_SIXTEEN), "x.tiff", {}, "16-bit gray"),
    (Image.fromarray(_SIXTEEN), "x.tiff", {"tiffinfo": {262: 0}}, "16-bit gray"),
    (Image.fromarray(_SIXTEEN.astype(np.int32)), "x.pgm", {}, "16-bit gray"),
    (Image.fromarray(_EIGHT).convert("RGB"), "x.png", {}, "RGB converted"),
    (Image.fromarray(_EIGHT).convert("RGBA"), "x.png", {}, "RGBA converted to 3 x 1 gray, without its transparency;"),
    (Image.fromarray(_EIGHT).convert("LA"), "x.png", {}, "gray with alpha converted"),
    (Image.fromarray(_EIGHT).convert("P"), "x.png", {}, "palette converted"),
    (Image.fromarray(_EIGHT).convert("RGB").convert("CMYK"), "x.tiff", {}, "CMYK converted"),
    (Image.fromarray(_EIGHT).convert("1", dither=Image.Dither.NONE), "x.png", {}, "black and white converted"),
])
def test_every_mode_keeps_its_range(image: Image.Image, name: str, options: dict, said: str, tmp_path: Path):
    image.save(tmp_path / name, **options)
    samples = read_samples(tmp_path / name, input_specs(graph(unsigned=True), {"image": (1, 1, 1, 3)}))
    pixels = samples.inputs["image"].ravel().tolist()
    inverted = "tiffinfo" in options
    expected = [255, 0, 153] if inverted else [0, 255, 0 if image.mode == "1" else 102]
    assert pixels == expected and said in samples.remark


@pytest.mark.parametrize(("image", "name", "message"), [
    (Image.fromarray(_EIGHT.astype(np.float32)), "x.tiff", "its pixels are floating-point numbers, whose range is not"),
    (Image.fromarray(_EIGHT.astype(np.int32)), "x.tiff", "its pixels are 32-bit integers, whose range is not known; "),
    (Image.new("LAB", (3, 1)), "x.tiff", "its pixels are in mode LAB, whose range is not known; save it as 8-bit PNG"),
])
def test_modes_without_a_range(image: Image.Image, name: str, message: str, tmp_path: Path):
    image.save(tmp_path / name)
    with pytest.raises(InputError, match=message):
        read_samples(tmp_path / name, input_specs(graph(unsigned=True), {"image": (1, 1, 1, 3)}))


@pytest.mark.parametrize("times", [1.5, 3])
def test_images_beyond_any_camera(times: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Pillow warns of the one and refuses the other."""
    Image.new("L", (100, 100)).save(tmp_path / "x.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", int(10_000 / times))
    with pytest.raises(InputError, match=r"x\.png: an image of more than [\d,]+ pixels; scale it down"):
        read_samples(tmp_path / "x.png", input_specs(graph(unsigned=True), {"image": (1, 1, 1, 3)}))


def test_formats_that_start_programs_are_not_read(tmp_path: Path):
    buffer = io.BytesIO()
    Image.new("RGB", (3, 1)).save(buffer, "EPS")
    (tmp_path / "x.png").write_bytes(buffer.getvalue())
    with pytest.raises(InputError, match=r"x\.png: not an \.npz or \.npy file, nor an image"):
        read_samples(tmp_path / "x.png", input_specs(graph(unsigned=True), {"image": (1, 1, 1, 3)}))


@pytest.mark.parametrize("bgr", [False, True])
def test_images_as_a_model_was_trained_on_them(picture: Path, bgr: bool):
    """Channel by channel, also of a folder, and in the order of the channels."""
    change_by = replace(IMAGENET, bgr=bgr)
    specs = input_specs(graph(quantized=True), SHAPES)
    array = read_samples(picture, specs, change_by=change_by).inputs["image"]
    colour = np.float64([80, 60, 0][::-1] if bgr else [80, 60, 0]) / 255
    wanted = (colour - IMAGENET.mean) / IMAGENET.std
    np.testing.assert_allclose(array[0, :, 1, 2], wanted, rtol=1e-6)
    assert array.dtype == np.float32
    folder = read_samples(picture.parent, specs, change_by=change_by)
    np.testing.assert_array_equal(folder.inputs["image"], array)
    assert folder.remark.endswith("(0..1 - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)")


def test_what_does_not_go_with_a_mean(picture: Path, tmp_path: Path):
    with pytest.raises(InputError, match="input image is uint8 of 3 channels: --mean, .* are for float32"):
        read_samples(picture, input_specs(graph(unsigned=True), SHAPES), change_by=IMAGENET)
    with pytest.raises(InputError, match="float32 of 1 channels"):
        read_samples(picture, input_specs(graph(quantized=True), {"image": (1, 1, 4, 6)}), change_by=IMAGENET)
    np.save(tmp_path / "x.npy", np.ones((3, 4, 6), np.float32))
    with pytest.raises(InputError, match="arrays are taken as they are"):
        read_samples(tmp_path / "x.npy", input_specs(graph(quantized=True), SHAPES), change_by=IMAGENET)
    for wrong in (dict(mean=(1.0, 2.0)), dict(std=(0.0,)), dict(mean=(np.nan,)), dict(std=(1.0, 1.0, -1.0))):
        with pytest.raises(ValueError, match="mean|std"):
            Preprocessing(**wrong)
