"""The options that say what a model wants of images."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gen.cli.errors import UsageError

if TYPE_CHECKING:
    from gen.run.preprocessing import Preprocessing

__all__ = ["add_image_options", "chosen_preprocessing", "of_images"]

_OPTIONS = ("mean", "std", "bgr")


def add_image_options(parser: argparse.ArgumentParser) -> None:
    """Add --mean, --std and --bgr; each is None unless it is given."""
    group = parser.add_argument_group("images", "for a model with a float input are numbers from 0 to 1; one that was "
                                      "trained on others gets (number - mean) / std")
    for name, help_ in (("mean", "to be subtracted, such as 0.485,0.456,0.406 of ImageNet (default 0)"),
                        ("std", "to be divided by, such as 0.229,0.224,0.225 (default 1)")):
        group.add_argument(f"--{name}", type=_numbers, metavar="X[,X,X]",
                           help=f"{help_}; one number, or one for each channel")
    group.add_argument("--bgr", action="store_const", const=True, help="blue comes first, also in --mean and --std")


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, or three with commas between, not {text}") from None


def chosen_preprocessing(arguments: argparse.Namespace) -> "Preprocessing | None":
    """What the options say; None if there are none. Raises UsageError for numbers that make no sense."""
    given = {name: value for name in _OPTIONS if (value := getattr(arguments, name, None)) is not None}
    if not given:
        return None
    from gen.run.preprocessing import Preprocessing

    try:
        return Preprocessing(**given)
    except ValueError as error:
        raise UsageError(f"--{error}") from None


def of_images(change_by: "Preprocessing | None", *files: Path | None) -> dict[Path, "Preprocessing | None"]:
    """For each of the files that are given what is done to it: arrays stay as they are, if there are images as well.

    Raises UsageError for options without any file of samples.
    """
    there = [path for path in files if path is not None]
    if change_by is not None and not there:
        raise UsageError("--mean, --std and --bgr are for images, and go with samples: --calibrate",
                         code="option-conflict")
    images = [path for path in there if path.suffix not in (".npz", ".npy")]
    return {path: change_by if path in images or not images else None for path in there}
