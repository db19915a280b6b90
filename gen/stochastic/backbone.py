"""Backbones: the layers of a network, in one word such as ``784-200-32-10`` or ``28x28-c6k3-p2-c64k7-p2-32-10``."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from .errors import BackboneError

__all__ = ["LARGEST_KERNEL", "MOST", "Backbone", "Product", "Shape", "input_shape"]

#: Of a word: layers, and any number in it.
_MOST_LAYERS, MOST = 16, 4096
LARGEST_KERNEL = 31
_MOST_WEIGHTS = 1 << 24


@dataclass(frozen=True)
class Shape:
    """Of a feature map."""

    height: int
    width: int
    channels: int

    @property
    def size(self) -> int:
        return self.height * self.width * self.channels


@dataclass(frozen=True)
class Product:
    """A layer of dot products, ReLU after all but the last, and its largest values of ``pool`` x ``pool`` pixels.

    ``kernel``: rows and columns of taps; a matrix product's covers its input. Around the input are ``padding`` zeros.
    """

    input: Shape
    outputs: int
    kernel: tuple[int, int]
    stride: int = 1
    padding: int = 0
    pool: int = 1

    @property
    def taps(self) -> int:
        return self.kernel[0] * self.kernel[1]

    @property
    def rows(self) -> int:
        """Of the output, in front of the pool."""
        return (self.input.height + 2 * self.padding - self.kernel[0]) // self.stride + 1

    @property
    def cols(self) -> int:
        return (self.input.width + 2 * self.padding - self.kernel[1]) // self.stride + 1

    @property
    def output(self) -> Shape:
        """After the pool, which leaves out rows and columns that fill no window."""
        return Shape(self.rows // self.pool, self.cols // self.pool, self.outputs)

    @property
    def weights(self) -> int:
        return self.outputs * self.taps * self.input.channels

    @property
    def macs(self) -> int:
        return self.rows * self.cols * self.weights


@dataclass(frozen=True)
class Backbone:
    """A word: the input (``784``, ``28x28`` or ``32x32x3``), then layers joined by ``-``.

    ``c6k3``: convolution to 6 channels, 3x3, padded with zeros to keep the size; ``c6k3s2`` with stride 2; ``p2``:
    largest of 2x2 pixels, after a convolution; ``32``: matrix product with 32 results. The last one gives the classes.
    Raises BackboneError for anything else.
    """

    word: str

    def __post_init__(self) -> None:
        if sum(layer.weights for layer in self.layers) > _MOST_WEIGHTS:
            raise BackboneError(f"{self.word}: more than {_MOST_WEIGHTS:,} weights")

    @property
    def input(self) -> Shape:
        return self.layers[0].input

    @property
    def classes(self) -> int:
        return self.layers[-1].outputs

    @cached_property
    def layers(self) -> tuple[Product, ...]:
        first, *parts = self.word.split("-")
        if not 0 < len(parts) <= _MOST_LAYERS:
            raise BackboneError(f"{self.word!r} is no backbone: 1 to {_MOST_LAYERS} layers after the input, such as "
                                "784-200-32-10")
        layers = list(self._products(input_shape(first, self.word), list(parts)))
        if not parts[-1].isdigit():
            raise BackboneError(f"{self.word}: the last layer must be a number of classes, not {parts[-1]}")
        return tuple(layers)

    def _products(self, shape: Shape, parts: list[str]) -> Iterator[Product]:
        """``parts`` is used up."""
        while parts:
            layer = self._product(shape, parts.pop(0), pool=_pool(self.word, parts))
            shape = layer.output
            if not shape.size or layer.rows < 1 or layer.cols < 1:
                raise BackboneError(f"{self.word}: nothing is left of the feature map after a layer")
            yield layer

    def _product(self, shape: Shape, part: str, *, pool: int) -> Product:
        if match := re.fullmatch(r"c([0-9]{1,4})k([0-9]{1,2})(?:s([0-9]))?", part):
            outputs, kernel, stride = (int(text or 1) for text in match.groups())
            if kernel % 2 and kernel <= LARGEST_KERNEL and stride and 0 < outputs <= MOST:
                return Product(shape, outputs, (kernel, kernel), stride, kernel // 2, pool)
            raise BackboneError(f"{self.word}: {part} must have an odd kernel up to {LARGEST_KERNEL}, a stride and "
                                "channels")
        if re.fullmatch(r"[0-9]{1,4}", part) and 0 < int(part) <= MOST:
            if pool > 1:
                raise BackboneError(f"{self.word}: a pool stands after a convolution, not after {part}")
            return Product(shape, int(part), (shape.height, shape.width))
        raise BackboneError(f"{self.word}: {part!r} is no layer; c6k3, c6k3s2, p2 and 32 are")


def input_shape(text: str, word: str = "") -> Shape:
    """Of ``784``, ``28x28`` or ``32x32x3``. Raises BackboneError, that names the ``word`` it is in, for anything else.
    """
    match = re.fullmatch(r"([0-9]{1,4})(?:x([0-9]{1,4})(?:x([0-9]{1,4}))?)?", text)
    numbers = [int(number) for number in match.groups() if number] if match else []
    if not numbers or not all(0 < number <= MOST for number in numbers):
        raise BackboneError(f"{word or text!r} is no backbone: {text!r} is no input; 784, 28x28 and 32x32x3 are")
    if len(numbers) == 1:
        return Shape(1, 1, numbers[0])
    return Shape(numbers[0], numbers[1], numbers[2] if len(numbers) == 3 else 1)


def _pool(word: str, parts: list[str]) -> int:
    """Of the layer in front of ``parts``, from which the pool is taken."""
    if not (parts and parts[0].startswith("p")):
        return 1
    text = parts.pop(0)
    if not re.fullmatch(r"p[2-9]", text):
        raise BackboneError(f"{word}: {text} must be p2 to p9")
    return int(text[1:])
