"""A network of the zoo: what it is called, how large it is, and how its model is made."""

from collections.abc import Callable
from dataclasses import dataclass

import onnx

from gen.zoo.builder import Builder, Tensor
from gen.zoo.errors import ZooError

__all__ = ["Made", "Network", "make"]

_MOST_CLASSES = 10_000


@dataclass(frozen=True, kw_only=True)
class Network:
    """``size``: (height, width) of its image unless another is asked for.

    Others are multiples of ``step`` from ``least`` to ``largest``, with which the model stays below protobuf's 2 GiB.
    """

    name: str
    title: str
    #: Adds the layers after the image, and the outputs, for so many classes.
    layers: Callable[[Builder, Tensor, int], None]
    size: tuple[int, int] = (224, 224)
    least: int = 32
    largest: int = 1024
    step: int = 1
    channels: int = 3
    classes: int = 1000
    #: That its statistics are measured on, at least: more where pixels of a map are alike, so that few count as one.
    pictures: int = 2


@dataclass(frozen=True, eq=False, kw_only=True)
class Made:
    """A model; weights and multiply-accumulates of its convolutions and fully connected layers, without biases."""

    model: onnx.ModelProto
    weights: int
    macs: int


def make(network: Network, *, seed: int = 0, classes: int | None = None, size: tuple[int, int] | None = None) -> Made:
    """The model; equal arguments give equal models. Raises ZooError for a size or number of classes it cannot have."""
    size, classes = size or network.size, network.classes if classes is None else classes
    if any(side % network.step or not network.least <= side <= network.largest for side in size):
        step = f" in steps of {network.step}" if network.step > 1 else ""
        raise ZooError(f"--size {size[0]}x{size[1]}: {network.name} takes sides of {network.least} to "
                       f"{network.largest}{step}")
    if not 2 <= classes <= _MOST_CLASSES:
        raise ZooError(f"--classes {classes}: must be 2 to {_MOST_CLASSES:,}")
    builder = Builder(name=network.name, seed=seed)
    network.layers(builder, builder.image((network.channels, *size), network.pictures), classes)
    return Made(model=builder.model, weights=builder.weights, macs=builder.macs)
