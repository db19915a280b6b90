"""Pictures for a detector, and what is where in them: digits and objects on canvases of noise.

    python examples/detection/canvases.py -o build/canvases --models $NPUGEN_MODELS

writes a folder for each size, `96` and `160`, with `train.json` and `test.json` as COCO has them and their pictures
beside them: 9,000 and 1,000. With the files of MNIST (t10k) and CIFAR-10 (JPEG copies, in zip files) in the folder
`--models` there are 20 classes, ten digits and ten kinds of objects; without it the ten digits of examples/digits.
Nothing that is in a picture for training is in one for testing. The same arguments give the same bytes.
"""

import argparse
import gzip
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

PARTS = {"train": 0.9, "test": 0.1}
#: Of the digits, a share is for training.
TRAINED = 0.8
#: Pixels of a digit's or an object's side, and objects of a picture, for the smaller canvas; larger ones have more.
DIGIT, OBJECT, MOST = (20, 44), (26, 50), 3
FILES = "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"
ZIPS = {"train": "cifar10_train_jpg_1500_a_class.zip", "test": "cifar10_test_jpg_0000-0099.zip"}
DIGITS = Path(__file__).parents[1] / "digits" / "digits_test.npz"


@dataclass(frozen=True, eq=False)
class Things:
    """To be placed: gray digits (n, h, w) and colour pictures (m, h, w, 3), uint8, and the numbers of their classes."""

    digits: np.ndarray
    kinds: np.ndarray
    objects: np.ndarray
    others: np.ndarray


def digits_of(models: Path | None) -> tuple[np.ndarray, np.ndarray]:
    if models is None:
        with np.load(DIGITS) as found:
            images = found["image"][:, 0]
            return np.rint(255 * images / images.max()).astype(np.uint8), found["label"]
    pixels, labels = (gzip.decompress((models / name).read_bytes()) for name in FILES)
    return (np.frombuffer(pixels, np.uint8, offset=16).reshape(-1, 28, 28),
            np.frombuffer(labels, np.uint8, offset=8).astype(np.int64))


def objects_of(path: Path) -> tuple[np.ndarray, np.ndarray, list[str]]:
    with zipfile.ZipFile(path) as archive:
        members = sorted(name for name in archive.namelist() if name.endswith(".jpg"))
        names = sorted({member.split("/")[-2] for member in members})
        images = [np.asarray(Image.open(io.BytesIO(archive.read(member))).convert("RGB")) for member in members]
    return np.stack(images), np.array([names.index(member.split("/")[-2]) for member in members]), names


def things(models: Path | None) -> tuple[dict[str, Things], list[str]]:
    images, labels = digits_of(models)
    cut = int(TRAINED * len(images))
    names, found = [str(digit) for digit in range(10)], {}
    for part, chosen in (("train", slice(cut)), ("test", slice(cut, None))):
        objects, others = np.zeros((0, 32, 32, 3), np.uint8), np.zeros(0, np.int64)
        if models is not None:
            objects, others, kinds = objects_of(models / ZIPS[part])
            names = names[:10] + kinds
        found[part] = Things(images[chosen], labels[chosen], objects, others + 10)
    return found, names


def background(rng: np.random.Generator, size: int) -> np.ndarray:
    """(size, size, 3) float: colours that run into each other, and noise."""
    coarse = Image.fromarray(rng.integers(30, 200, (5, 5, 3), np.uint8)).resize((size, size), Image.Resampling.BICUBIC)
    return np.asarray(coarse, np.float32) + rng.normal(0, 8, (size, size, 3)).astype(np.float32)


def free(box: Sequence[int], taken: Sequence[Sequence[int]]) -> bool:
    """Whether a box (left, top, right, bottom) touches none that is taken."""
    return all(box[2] <= other[0] or other[2] <= box[0] or box[3] <= other[1] or other[3] <= box[1] for other in taken)


def place(rng: np.random.Generator, canvas: np.ndarray, what: Things,
          taken: list[tuple[int, int, int, int]]) -> tuple[tuple[int, int, int, int], int] | None:
    """A digit or an object where there is room for it: its box and class; None where there is none."""
    size, is_digit = len(canvas), not len(what.objects) or rng.random() < 0.5
    low, high = DIGIT if is_digit else OBJECT
    side = int(rng.integers(low, high + 1))
    left, top = rng.integers(0, size - side + 1, 2).tolist()
    if is_digit:
        number = int(rng.integers(len(what.digits)))
        ink = np.asarray(Image.fromarray(what.digits[number]).resize((side, side), Image.Resampling.BILINEAR))
        rows, columns = (np.flatnonzero((ink > 64).any(axis=axis)) for axis in (1, 0))
        if not len(rows):
            return None
        ink = ink[rows[0]:rows[-1] + 1, columns[0]:columns[-1] + 1]
        share, colour, kind = ink[..., None] / np.float32(255), rng.integers(0, 256, 3), int(what.kinds[number])
        colour = np.where(canvas[top:top + side, left:left + side].mean() < 115, 255 - colour // 4, colour // 4)
        patch: np.ndarray = np.broadcast_to(colour.astype(np.float32), (*ink.shape, 3))
    else:
        number = int(rng.integers(len(what.objects)))
        image = Image.fromarray(what.objects[number]).resize((side, side), Image.Resampling.BILINEAR)
        patch, share, kind = np.asarray(image, np.float32), np.float32(1), int(what.others[number])
    height, width = patch.shape[:2]
    box = left, top, left + width, top + height
    if not free(box, taken):
        return None
    under = canvas[top:top + height, left:left + width]
    under += share * (patch - under)
    return box, kind


def picture(rng: np.random.Generator, size: int, most: int,
            what: Things) -> tuple[np.ndarray, list[tuple[tuple[int, int, int, int], int]]]:
    canvas, found, taken = background(rng, size), [], []
    wanted = int(rng.integers(1, most + 1))
    for _ in range(8 * wanted):
        if len(found) < wanted and (one := place(rng, canvas, what, taken)) is not None:
            found.append(one)
            taken.append(one[0])
    return np.clip(np.rint(canvas), 0, 255).astype(np.uint8), found


def write(folder: Path, size: int, counts: Mapping[str, int], seed: int, what: Mapping[str, Things],
          names: Sequence[str]) -> None:
    smaller = (size / 96) ** 2
    for number, (part, count) in enumerate(counts.items()):
        (folder / part).mkdir(parents=True, exist_ok=True)
        images, annotations = [], []
        for picture_number in range(count):
            rng = np.random.default_rng([seed, size, number, picture_number])
            pixels, found = picture(rng, size, max(1, round(MOST * smaller)), what[part])
            name = f"{part}/{picture_number:05d}.png"
            Image.fromarray(pixels).save(folder / name)
            images.append({"id": picture_number, "file_name": name, "width": size, "height": size})
            annotations += [
                {"id": len(annotations) + place + 1, "image_id": picture_number, "category_id": kind, "iscrowd": 0,
                 "bbox": [left, top, right - left, bottom - top], "area": (right - left) * (bottom - top)}
                for place, ((left, top, right, bottom), kind) in enumerate(found)]
        (folder / f"{part}.json").write_text(json.dumps({
            "images": images, "annotations": annotations,
            "categories": [{"id": kind, "name": name} for kind, name in enumerate(names)]}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("build/canvases"))
    parser.add_argument("--models", type=Path, help="folder with MNIST's and CIFAR-10's files")
    parser.add_argument("--count", type=int, default=10_000, help="pictures of each size")
    parser.add_argument("--sizes", type=int, nargs="+", default=[96, 160], help="pixels of a picture's side")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    what, names = things(arguments.models)
    counts = {part: max(1, round(share * arguments.count)) for part, share in PARTS.items()}
    for size in arguments.sizes:
        write(arguments.output / str(size), size, counts, arguments.seed, what, names)
        print(f"{arguments.output / str(size)}: {sum(counts.values()):,} pictures of {len(names)} classes")


if __name__ == "__main__":
    main()
