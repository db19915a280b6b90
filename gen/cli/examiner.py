"""What commands on stochastic networks need: images, and something to train with."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from gen.cli.errors import CommandError

if TYPE_CHECKING:
    from gen.stochastic.accuracy import Examiner

__all__ = ["examiner", "lacks", "required_examiner"]


def lacks(folder: Path) -> str:
    """What is missing, for people; "" where everything is there."""
    from gen.stochastic.images import MNIST_FILES

    if not all((folder / name).is_file() for name in MNIST_FILES):
        return f"no images: {' and '.join(MNIST_FILES)} are not in the folder of the networks"
    if find_spec("torch") is None:
        return "training needs PyTorch: pip install 'npugen[train]'"
    return ""


def examiner(folder: Path) -> "Examiner":
    """With the images in a folder. Raises DataError for damaged ones."""
    from gen.stochastic.accuracy import Examiner
    from gen.stochastic.images import read_mnist

    return Examiner(read_mnist(folder), Examiner.default_folder())


def required_examiner(folder: Path | None) -> "Examiner":
    """Raises CommandError where something is missing, DataError."""
    if folder is None:
        raise CommandError("no images: give --images DIR")
    lacking = lacks(folder)
    if lacking:
        raise CommandError(f"{folder}: {lacking}")
    return examiner(folder)
