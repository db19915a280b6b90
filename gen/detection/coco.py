"""Annotations as COCO has them: one JSON file with images, categories and objects."""

from collections import defaultdict
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from gen.detection.annotations import MOST_SIDE, Annotations, Picture, checked_name
from gen.detection.errors import AnnotationError
from gen.files.read import read_file, require_file

__all__ = ["read_coco"]

#: Bytes of a file: COCO's own training set has 450 million.
_MOST_BYTES = 1 << 30
_MOST_PICTURES, _MOST_OBJECTS, _MOST_CLASSES = 1 << 20, 1 << 24, 10_000

_Number = Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]
_Side = Annotated[int, Meta(ge=1, le=MOST_SIDE)]
_Text = Annotated[str, Meta(min_length=1, max_length=1000)]


class _Image(msgspec.Struct):
    id: _Number
    file_name: _Text
    width: _Side
    height: _Side


class _Category(msgspec.Struct):
    id: _Number
    name: _Text


class _Object(msgspec.Struct):
    """``bbox``: left, top, width, height in pixels."""

    image_id: _Number
    category_id: _Number
    bbox: tuple[float, float, float, float]
    iscrowd: Annotated[int, Meta(ge=0, le=1)] = 0


class _Document(msgspec.Struct):
    images: Annotated[list[_Image], Meta(max_length=_MOST_PICTURES)]
    annotations: Annotated[list[_Object], Meta(max_length=_MOST_OBJECTS)]
    categories: Annotated[list[_Category], Meta(max_length=_MOST_CLASSES)]


def read_coco(path: Path, images: Path | None = None) -> Annotations:
    """``images``: the folder that names begin at, by default the file's. Raises AnnotationError, OSError."""
    require_file(path)
    try:
        found = msgspec.json.decode(read_file(path, _MOST_BYTES), type=_Document)
        return _annotations(found, path, images or path.parent)
    except UnicodeDecodeError:
        raise AnnotationError(f"{path}: not JSON: text is UTF-8") from None
    except AnnotationError as error:
        if str(error).startswith(f"{path}: "):
            raise
        raise AnnotationError.of(error, f"{path}: {error}") from None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise AnnotationError(f"{path}: {error}") from None


def _annotations(document: _Document, path: Path, images: Path) -> Annotations:
    categories = sorted(document.categories, key=lambda category: category.id)
    numbers = {category.id: number for number, category in enumerate(categories)}
    objects: dict[int, list[_Object]] = defaultdict(list)
    known = {image.id for image in document.images}
    if len(known) < len(document.images) or len(numbers) < len(categories):
        raise AnnotationError("two images, or two categories, have one id")
    for one in document.annotations:
        if one.image_id not in known or one.category_id not in numbers:
            raise AnnotationError(f"an object of image {one.image_id} and category {one.category_id}, of which there "
                                  "is none")
        objects[one.image_id].append(one)
    pictures = []
    for image in document.images:
        mine = objects[image.id]
        boxes = np.array([one.bbox for one in mine], np.float64).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        pictures.append(Picture(
            checked_name(image.file_name), image.width, image.height, boxes,
            np.array([numbers[one.category_id] for one in mine], np.int64),
            np.array([one.iscrowd for one in mine], bool)))
    return Annotations(path, images, tuple(category.name for category in categories), tuple(pictures))
