"""Annotations from files, whatever their form."""

from pathlib import Path

from gen.detection.annotations import Annotations
from gen.detection.coco import read_coco
from gen.detection.voc import read_voc

__all__ = ["is_annotations", "read_annotations"]


def is_annotations(path: Path) -> bool:
    """Whether a file or folder is read as annotations, rather than as samples with labels."""
    if path.is_dir():
        return any(inside.suffix.lower() == ".xml" for inside in path.iterdir())
    return path.suffix.lower() == ".json"


def read_annotations(path: Path, images: Path | None = None) -> Annotations:
    """COCO's JSON, or a folder of VOC's XML; ``images``: their folder, if it is not beside.

    Raises AnnotationError, which names the file, OSError.
    """
    return read_voc(path, images) if path.is_dir() else read_coco(path, images)
