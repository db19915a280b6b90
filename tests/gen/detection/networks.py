"""A detector that needs no training, and its pictures."""

import json
from pathlib import Path

import numpy as np
import onnx
from PIL import Image

from tests.gen.float_models import FloatBuilder

__all__ = ["CELLS", "SIDE", "bright_squares", "square_finder"]

#: Cells of the map on a side, and pixels of a cell.
CELLS, SIDE = 4, 8
#: What a bright square is worth, and what it must be.
_GAIN, _BIAS = 24.0, -12.0


def square_finder(rng: np.random.Generator) -> onnx.ModelProto:
    """A YOLO head of one anchor, 0.25 x 0.25, and the class `bright`, for images `x` (1, 1, 32, 32): a cell has an
    object where it is bright. 16 channels, which a density of 0.25 leaves four of, have the mean of a cell.
    """
    builder = FloatBuilder(rng, ["N", 1, CELLS * SIDE, CELLS * SIDE])
    means = rng.uniform(0.9, 1.1, (16, 1, 1, 1)) * np.ones((16, 1, SIDE, SIDE)) / SIDE ** 2
    x = builder.node("Conv", "x", builder.constant(means), builder.constant(np.zeros(16)), name="means",
                     strides=[SIDE, SIDE])
    x = builder.node("Relu", x)
    weights = np.zeros((6, 16, 1, 1))
    gains = rng.uniform(0.8, 1.2, (16, 1, 1))
    weights[4] = _GAIN * gains / gains.sum()
    bias = np.array([0, 0, 0, 0, _BIAS, 4.0])
    return builder.model(builder.node("Conv", x, builder.constant(weights), builder.constant(bias), name="found"))


def bright_squares(folder: Path, rng: np.random.Generator, count: int = 12) -> dict[str, Path]:
    """Pictures of one or two bright cells, as images in ``pictures`` and arrays in ``x.npz``, with ``a.json`` and
    ``head.json``; the paths, by these words.
    """
    pictures = folder / "pictures"
    pictures.mkdir()
    images, annotations, arrays = [], [], []
    for number in range(count):
        pixels = rng.integers(0, 40, (CELLS * SIDE, CELLS * SIDE), np.uint8)
        for cell in rng.choice(CELLS ** 2, rng.integers(1, 3), replace=False).tolist():
            y, x = SIDE * (cell // CELLS), SIDE * (cell % CELLS)
            pixels[y:y + SIDE, x:x + SIDE] = rng.integers(230, 256, (SIDE, SIDE))
            annotations.append({"id": len(annotations) + 1, "image_id": number, "category_id": 1,
                                "bbox": [x, y, SIDE, SIDE]})
        # Names in another order than the file of annotations has.
        name = f"{(7 * number) % count:02d}.png"
        Image.fromarray(pixels).save(pictures / name)
        images.append({"id": number, "file_name": name, "width": CELLS * SIDE, "height": CELLS * SIDE})
        arrays.append(pixels[None] / np.float32(255))
    paths = {"pictures": pictures, "x": folder / "x.npz", "a": folder / "a.json", "head": folder / "head.json"}
    np.savez(paths["x"], x=np.stack(arrays))
    paths["a"].write_text(json.dumps({"images": images, "annotations": annotations,
                                      "categories": [{"id": 1, "name": "bright"}]}))
    paths["head"].write_text(json.dumps({"kind": "yolo", "classes": ["bright"],
                                         "maps": [{"output": "found", "anchors": [[0.25, 0.25]]}]}))
    return paths
