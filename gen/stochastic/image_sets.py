"""Which images a backbone learns and is tested on: digits of MNIST, photographs of CIFAR-10."""

from pathlib import Path

from .backbone import Backbone
from .cifar import CIFAR_FILES, read_cifar
from .errors import BackboneError
from .images import MNIST_FILES, Images, read_mnist

__all__ = ["files_for", "images_for"]

_DIGIT, _PHOTOGRAPH = 28 * 28, 32 * 32 * 3


def files_for(backbone: Backbone) -> tuple[str, ...]:
    """Names of the files. Raises BackboneError where there are no such images."""
    return CIFAR_FILES if _of_photographs(backbone) else MNIST_FILES


def images_for(backbone: Backbone, folder: Path, kept: Path | None) -> Images:
    """From ``folder``; what takes seconds to decode is kept in ``kept``, if there is one.

    Raises BackboneError where there are no such images, DataError for damaged files, OSError for missing ones.
    """
    images = read_cifar(folder, kept) if _of_photographs(backbone) else read_mnist(folder)
    images.for_backbone(backbone, slice(0, 1))
    return images


def _of_photographs(backbone: Backbone) -> bool:
    if backbone.input.size not in (_DIGIT, _PHOTOGRAPH):
        raise BackboneError(f"{backbone.word}: the images are 28x28x1 (MNIST) or 32x32x3 (CIFAR-10)")
    return backbone.input.size == _PHOTOGRAPH
