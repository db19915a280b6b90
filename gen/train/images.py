"""Image files as arrays, scaled as a session says."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from gen.files.pictures import PictureError, read_picture
from gen.train.errors import TrainError
from gen.train.session import TrainingSession

__all__ = ["read_images", "scaling"]


def scaling(session: TrainingSession, channels: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of pixels 0..1, (1 or C, 1, 1) float32. Raises TrainError for other numbers of them."""
    if {len(session.mean), len(session.std)} - {1, channels}:
        raise TrainError(f"mean and std of the session must have 1 or {channels} numbers")
    mean, std = (np.array(values, np.float32).reshape(-1, 1, 1) for values in (session.mean, session.std))
    return mean, std


def read_images(files: Sequence[Path], shape: tuple[int, ...], kind: DTypeLike, *,
                title: Callable[[Path], str] = str) -> np.ndarray:
    """(N, C, H, W), of values 0..255; ``shape``: (C, H, W). Raises TrainError with the ``title`` of a file."""
    channels, height, width = shape
    pixels = np.empty((len(files), *shape), kind)
    for place, file in enumerate(files):
        try:
            found, _ = read_picture(file, width=width, height=height, channels=channels)
        except PictureError as error:
            raise TrainError(f"{title(file)}: {error}") from None
        pixels[place] = found.transpose(2, 0, 1)
    return pixels
