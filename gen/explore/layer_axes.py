"""Backbones as axes: how many layers there are, and of each its neurons, or kernel, stride, channels and pool."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from operator import itemgetter
from typing import Annotated

import msgspec
from msgspec import Meta

from gen.stochastic.backbone import LARGEST_KERNEL, MOST, Backbone, Product, Shape, input_shape

from .space import Point, Value

__all__ = ["Convolutions", "Hidden", "LayerAxes"]

#: Values of an axis.
_MOST_VALUES = 32
#: Channels, strides and pools together: the cheapest network is looked for among all of them, layer by layer.
_MOST_LAYERS = 256
#: Axes whose values say how many layers there are.
_CONVOLUTIONS, _HIDDEN = "convolutions", "hidden"

#: What a layer takes.
Cost = Callable[[Product], float]
#: Costs, and words of layers, of the cheapest way to each feature map.
_Ways = dict[Shape, tuple[float, tuple[str, ...]]]

_Channels = Annotated[tuple[Annotated[int, Meta(ge=1, le=MOST)], ...], Meta(min_length=1, max_length=_MOST_VALUES)]
_Steps = Annotated[tuple[Annotated[int, Meta(ge=1, le=9)], ...], Meta(min_length=1, max_length=9)]


class Convolutions(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """``count``: how many there are; the rest is chosen for each. ``pool``: the largest of so many pixels each way."""

    count: Annotated[tuple[Annotated[int, Meta(ge=0, le=6)], ...], Meta(min_length=1, max_length=7)]
    channels: _Channels
    kernel: Annotated[tuple[Annotated[int, Meta(ge=1, le=LARGEST_KERNEL)], ...],
                      Meta(min_length=1, max_length=LARGEST_KERNEL)]
    stride: _Steps = (1,)
    pool: _Steps = (1,)

    def __post_init__(self) -> None:
        even = next((size for size in self.kernel if size % 2 == 0), None)
        if even is not None:
            raise ValueError(f"kernel: {even} is even; padding keeps the size of odd ones alone")
        kinds = len(self.channels) * len(self.stride) * len(self.pool)
        if kinds > _MOST_LAYERS:
            raise ValueError(f"{kinds:,} layers by channels, stride and pool; {_MOST_LAYERS} are the most there can be")


class Hidden(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Matrix products in front of the one that gives the classes: ``count``, and for each its ``neurons``."""

    count: Annotated[tuple[Annotated[int, Meta(ge=0, le=3)], ...], Meta(min_length=1, max_length=4)]
    neurons: _Channels


class LayerAxes(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, dict=True):
    """``input`` as in a word of `Backbone`, then convolutions, hidden layers and the product that gives ``classes``.

    Raises ValueError for an input that is none, for convolutions of one without rows and columns, and where no network
    is left.
    """

    input: str
    classes: Annotated[int, Meta(ge=2, le=MOST)] = 10
    convolutions: Convolutions | None = None
    hidden: Hidden | None = None

    def __post_init__(self) -> None:
        shape = input_shape(self.input)
        if self.convolutions is not None and shape.height * shape.width == 1:
            raise ValueError(f"convolutions: the input {self.input} has no rows and columns; 28x28 and 32x32x3 have")
        if self.cheapest(lambda layer: 0) is None:
            raise ValueError("layers: nothing is left of the feature map in any of these networks")

    @cached_property
    def axes(self) -> Mapping[str, Sequence[Value]]:
        """Of a space: ``convolutions``, ``conv1_channels`` and so on, ``hidden``, ``hidden1_neurons`` and so on."""
        return {name: values for name, values, _ in self._axes()}

    @cached_property
    def needs(self) -> Mapping[str, tuple[str, Sequence[Value]]]:
        """Of a space: a layer's own axes mean nothing where there are fewer layers."""
        return {name: need for name, _, need in self._axes() if need is not None}

    def _axes(self) -> Iterator[tuple[str, Sequence[Value], tuple[str, Sequence[Value]] | None]]:
        for counter, part, short in ((_CONVOLUTIONS, self.convolutions, "conv"), (_HIDDEN, self.hidden, "hidden")):
            if part is None:
                continue
            yield counter, part.count, None
            for number in range(1, max(part.count) + 1):
                enough = tuple(count for count in part.count if count >= number)
                for name in part.__struct_fields__[1:]:
                    yield f"{short}{number}_{name}", getattr(part, name), (counter, enough)

    def word(self, point: Point) -> str:
        """Of a point of these axes, which may have more."""
        parts = [self.input]
        for number in range(1, int(point.get(_CONVOLUTIONS, 0)) + 1):
            parts += _convolution(*(int(point[f"conv{number}_{name}"])
                                    for name in ("channels", "kernel", "stride", "pool")))
        parts += [str(point[f"hidden{number}_neurons"]) for number in range(1, int(point.get(_HIDDEN, 0)) + 1)]
        return "-".join([*parts, str(self.classes)])

    def cheapest(self, cost: Cost) -> tuple[float, str] | None:
        """The network whose layers' costs add up to the least, and that sum; None where no network is one.

        ``cost`` must not fall as the kernel grows. Layer after layer, with the cheapest way to each feature map.
        """
        best: tuple[float, str] | None = None
        tails = self._multiplied(cost)
        for shape, (before, words) in self._convolved(cost).items():
            ends = [(cost(_matrix(shape, neurons)) + after, more) for neurons, (after, more) in tails.items()]
            if self.hidden is None or 0 in self.hidden.count:
                ends.append((cost(_matrix(shape, self.classes)), (str(self.classes),)))
            after, more = min(ends, key=itemgetter(0))
            if best is None or before + after < best[0]:
                best = before + after, "-".join([self.input, *words, *more])
        return best

    def _convolved(self, cost: Cost) -> _Ways:
        """All feature maps that the convolutions may leave."""
        ways: _Ways = {input_shape(self.input): (0.0, ())}
        part = self.convolutions
        if part is None:
            return ways
        found: _Ways = dict(ways) if 0 in part.count else {}
        # Padding keeps the size, so what a layer leaves does not depend on its kernel.
        kernel = min(part.kernel)
        for number in range(1, max(part.count) + 1):
            reached: _Ways = {}
            for (shape, (before, words)), channels, stride, pool in product(
                    ways.items(), part.channels, part.stride, part.pool):
                layer = Product(shape, channels, (kernel, kernel), stride, kernel // 2, pool)
                if layer.output.size:
                    _keep(reached, layer.output, before + cost(layer), (*words, *_convolution(channels, kernel, stride,
                                                                                             pool)))
            ways = reached
            if number in part.count:
                for shape, (total, words) in ways.items():
                    _keep(found, shape, total, words)
        return found

    def _multiplied(self, cost: Cost) -> Mapping[int, tuple[float, tuple[str, ...]]]:
        """Of each number of neurons of the first hidden layer the cheapest way from there to the classes: what the
        layers after it cost, and the words of all.
        """
        found: dict[int, tuple[float, tuple[str, ...]]] = {}
        ways: dict[int, tuple[float, tuple[str, ...]]]
        part, last = self.hidden, str(self.classes)
        if part is None:
            return found
        ways = {neurons: (cost(_matrix(Shape(1, 1, neurons), self.classes)), (str(neurons), last))
                for neurons in part.neurons}
        for number in range(1, max(part.count) + 1):
            if number in part.count:
                for neurons, way in ways.items():
                    found[neurons] = min(found.get(neurons, way), way, key=itemgetter(0))
            ways = {neurons: min(((cost(_matrix(Shape(1, 1, neurons), then)) + after, (str(neurons), *words))
                                  for then, (after, words) in ways.items()), key=itemgetter(0))
                    for neurons in part.neurons}
        return found

    @cached_property
    def example(self) -> Backbone:
        """One of the networks: that of the fewest weights. Raises BackboneError where even that has too many."""
        found = self.cheapest(lambda layer: layer.weights)
        assert found is not None
        return Backbone(found[1])


def _convolution(channels: int, kernel: int, stride: int, pool: int) -> list[str]:
    word = f"c{channels}k{kernel}" + (f"s{stride}" if stride > 1 else "")
    return [word, f"p{pool}"] if pool > 1 else [word]


def _matrix(shape: Shape, outputs: int) -> Product:
    return Product(shape, outputs, (shape.height, shape.width))


def _keep(ways: _Ways, shape: Shape, cost: float, words: tuple[str, ...]) -> None:
    if shape not in ways or cost < ways[shape][0]:
        ways[shape] = cost, words
