"""Annotations as Pascal VOC has them: a folder with an XML file for each picture."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from gen.detection.annotations import Annotations, Picture, checked_name
from gen.detection.errors import AnnotationError
from gen.files.read import read_file

__all__ = ["read_voc"]

_MOST_BYTES, _MOST_FILES = 1 << 20, 1 << 20
#: Beside the folder of annotations in VOC's own sets.
_IMAGES = "JPEGImages"


class _Builder(ElementTree.TreeBuilder):
    def doctype(self, *_: object) -> None:
        """Whoever declares entities can make gigabytes of a few lines."""
        raise AnnotationError("has a document type, which is not read")


def read_voc(folder: Path, images: Path | None = None) -> Annotations:
    """``images``: by default the folder JPEGImages beside ``folder``, or else ``folder``; classes are in the order of
    their names. What is difficult counts as a crowd. Raises AnnotationError, OSError.
    """
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() == ".xml" and path.is_file())
    if not files or len(files) > _MOST_FILES:
        raise AnnotationError(f"{folder}: {len(files):,} XML files; a folder of annotations has 1 to {_MOST_FILES:,}")
    found = []
    for path in files:
        try:
            found.append(_read(path))
        except AnnotationError as error:
            raise AnnotationError.of(error, f"{path}: {error}") from None
        except (ElementTree.ParseError, LookupError, ValueError) as error:
            raise AnnotationError(f"{path}: no annotation of VOC: {error or type(error).__name__}") from None
    names = sorted({name for _, objects in found for name in objects})
    pictures = [Picture(picture.name, picture.width, picture.height, picture.boxes,
                        np.array([names.index(name) for name in objects], np.int64), picture.crowd)
                for picture, objects in found]
    beside = folder.parent / _IMAGES
    return Annotations(folder, images or (beside if beside.is_dir() else folder), tuple(names), tuple(pictures))


def _read(path: Path) -> tuple[Picture, list[str]]:
    """A picture whose classes are not numbered yet, and their names."""
    parser = ElementTree.XMLParser(target=_Builder())
    parser.feed(read_file(path, _MOST_BYTES))
    root = parser.close()
    objects = root.findall("object")
    boxes = np.array([[float(_text(one, f"bndbox/{side}")) for side in ("xmin", "ymin", "xmax", "ymax")]
                      for one in objects], np.float64).reshape(-1, 4)
    boxes[:, :2] -= 1       # pixels are counted from 1, and the last one is within
    crowd = [(one.findtext("difficult") or "0").strip() == "1" for one in objects]
    name = (root.findtext("filename") or "").strip() or f"{path.stem}.jpg"
    picture = Picture(checked_name(name), int(_text(root, "size/width")), int(_text(root, "size/height")), boxes,
                      np.zeros(len(objects), np.int64), np.array(crowd, bool))
    return picture, [_text(one, "name") for one in objects]


def _text(element: ElementTree.Element, path: str) -> str:
    text = (element.findtext(path) or "").strip()
    if not text or len(text) > 1000:
        raise AnnotationError(f"an element {element.tag} has no {path}")
    return text
