"""What commands on stochastic networks need: images, and something to train with."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from gen.cli.errors import CommandError

if TYPE_CHECKING:
    from gen.stochastic.accuracy import Examiner
    from gen.stochastic.backbone import Backbone

__all__ = ["examiner", "lacks", "required_examiner"]


def lacks(folder: Path, backbone: "Backbone") -> str:
    """What is missing, for people; "" where everything is there. Raises BackboneError."""
    from gen.stochastic.image_sets import files_for

    files = files_for(backbone)
    if not all((folder / name).is_file() for name in files):
        return f"no images: {' and '.join(files)} are not in the folder of the networks"
    if find_spec("torch") is None:
        return "training needs PyTorch: pip install 'npugen[train]'"
    return ""


def examiner(folder: Path, backbone: "Backbone") -> "Examiner":
    """With the images in a folder that a backbone is for. Raises BackboneError, DataError for damaged ones."""
    from gen.stochastic.accuracy import Examiner
    from gen.stochastic.image_sets import images_for

    kept = Examiner.default_folder()
    return Examiner(images_for(backbone, folder, kept), kept)


def required_examiner(folder: Path | None, backbone: "Backbone") -> "Examiner":
    """Raises CommandError where something is missing, BackboneError, DataError."""
    if folder is None:
        raise CommandError("no images: give --images DIR", code="bad-images")
    lacking = lacks(folder, backbone)
    if lacking:
        raise CommandError(f"{folder}: {lacking}", code="bad-images")
    return examiner(folder, backbone)
