"""The options of commands that judge detectors."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gen.cli.common import messages
from gen.cli.errors import UsageError

if TYPE_CHECKING:
    from gen.detection.judge import Judge
    from gen.detection.precision import Precision

__all__ = ["add_detection_options", "chosen_judge", "precision_dict"]


def add_detection_options(parser: argparse.ArgumentParser, samples: str) -> None:
    """``samples``: the option that names the pictures."""
    group = parser.add_argument_group("detectors", "are judged by mean average precision (docs/detection.md; needs "
                                      "pycocotools: pip install 'npugen[detection]')")
    group.add_argument("--annotations", type=Path, metavar="F.json|FOLDER",
                       help=f"objects of the pictures of {samples}: COCO's JSON, or a folder of VOC's XML; images are "
                            "found by their names, arrays have its order")
    group.add_argument("--head", type=Path, metavar="H.json|yaml",
                       help="what the model's outputs are: a head, or a training session that has one")


def chosen_judge(arguments: argparse.Namespace) -> "Judge | None":
    """Raises UsageError for one of the options without the other; HeadError, AnnotationError, OSError."""
    if (arguments.annotations is None) != (arguments.head is None):
        raise UsageError("--annotations and --head go together", code="option-conflict")
    if arguments.annotations is None:
        return None
    from gen.detection.heads.registry import read_head
    from gen.detection.judge import Judge
    from gen.detection.precision import require_pycocotools
    from gen.detection.read import read_annotations

    require_pycocotools()
    head = read_head(arguments.head)
    annotations = read_annotations(arguments.annotations).of(head.classes)
    if annotations.left_out:
        messages.print(f"{arguments.annotations}: {annotations.left_out:,} objects are left out, as the head does not "
                       "have their classes", soft_wrap=True)
    return Judge(head, annotations)


def precision_dict(precision: "Precision | None") -> dict[str, Any] | None:
    return None if precision is None else {"map_50": precision.map_50, "map": precision.map}
