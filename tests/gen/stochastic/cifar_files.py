"""CIFAR-10's archives with photographs of one's own."""

from pathlib import Path

import numpy as np

from gen.stochastic.cifar import CIFAR_FILES
from tests.gen.photograph_files import jpeg, write_archive

__all__ = ["write_cifar"]


def write_cifar(folder: Path, rng: np.random.Generator, *, learnt: int, tested: int, classes: int = 10) -> None:
    """Photographs of so many of each class that are easily told apart: a colour for each, and noise."""
    colours = 90 * (np.arange(classes)[:, None] // (1, 3, 9) % 3)
    for name, count in zip(CIFAR_FILES, (learnt, tested), strict=True):
        write_archive(folder / name, {
            f"class{label}/{number:04}.jpg": jpeg(colours[label] + rng.integers(0, 40, (32, 32, 3)))
            for label in range(classes) for number in range(count)})
