"""The compiler's graph: quantised layers, each of which the machine can run as it stands.

Feature maps are (C, H, W) int8 raw values with one scale and zero point a tensor. uint8 tensors of the model are
shifted by 128 when they enter. Vectors (after Flatten, Gemm) are (C, 1, 1). Everything before and after the layers (the
outermost quantise and dequantise, Softmax, reshapes of outputs) is host work, kept as steps on the graph's inputs and
outputs. What each field may be is stated in `gen.ir.verify`. A tensor with a value is a constant, as a number for each
pixel that is added: layers read it as they read any tensor.

Tensors side by side (Concat), or some channels of one (Split), are no layers: a tensor can be part of another
(`Part`, `gen.ir.parts`). Whether that is how they lie in memory is the machine's business.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from gen.ir.host import HostStep
from gen.ir.layers.base import Layer, output_size
from gen.ir.layers.conv import Conv
from gen.ir.layers.matmul import MatMul, Turn
from gen.ir.layers.move import Move
from gen.ir.layers.pool import Pool
from gen.ir.tensor import Tensor, broadcasts

__all__ = [
    "MAX_VALUES", "Conv", "Graph", "Layer", "MatMul", "Move", "Pool", "Turn", "before_windows", "is_broadcast",
    "output_size", "rescaled", "unscaled",
]

#: Values of a feature map at most: what describes their arrangement takes eight bytes for each.
MAX_VALUES = 1 << 25

_L = TypeVar("_L", bound=Layer)


@dataclass(frozen=True, eq=False)
class Graph:
    """Layers in execution order, each channel of a tensor written once."""

    name: str
    tensors: Mapping[str, Tensor]
    layers: Sequence[Layer]
    #: Model input name -> tensor, and the host steps before it (ending in int8 or uint8 NCHW).
    inputs: Mapping[str, tuple[str, tuple[HostStep, ...]]]
    #: Model output name -> tensor, and the host steps after it (starting from int8 or uint8 NCHW).
    outputs: Mapping[str, tuple[str, tuple[HostStep, ...]]]

    @property
    def constants(self) -> dict[str, np.ndarray]:
        """Tensors that have a value, and these."""
        return {name: tensor.value for name, tensor in self.tensors.items() if tensor.value is not None}

    @property
    def given(self) -> list[str]:
        """Tensors that are there before the first layer: inputs and constants."""
        return [*(tensor for tensor, _ in self.inputs.values()), *self.constants]

    def of(self, kind: type[_L]) -> Iterator[_L]:
        """Its layers of a kind."""
        return (layer for layer in self.layers if isinstance(layer, kind))

    def changed(self, kind: type[_L], change: Callable[[_L], Layer]) -> "Graph":
        """With what ``change`` makes of each layer of a kind."""
        return replace(self, layers=tuple(change(layer) if isinstance(layer, kind) else layer for layer in self.layers))


def is_broadcast(graph: Graph, layer: Layer) -> bool:
    """Whether a tensor that a layer reads beside its input has one number for all pixels of a channel."""
    shape = graph.tensors[layer.output].shape
    return any(broadcasts(graph.tensors[name].shape, shape) for name in layer.others)


def unscaled(layer: Layer, target: Tensor) -> Tensor:
    """A layer's output as it is made, before its rows and columns are repeated, or windows of it become one value; of
    these there is what is in a window.
    """
    if layer.repeats == layer.windows == (1, 1):
        return target
    (channels, *size) = target.shape
    height, width = (length * window // repeats
                     for length, window, repeats in zip(size, layer.windows, layer.repeats, strict=True))
    return replace(target, shape=(channels, height, width))


def before_windows(layer: Layer, source: Tensor, target: Tensor) -> Tensor:
    """A layer's output before windows of it become one value, with what is in none; ``source``: its input."""
    if layer.windows == (1, 1):
        return target
    height, width = (length * repeats for length, repeats in zip(layer.size(source), layer.repeats, strict=True))
    return replace(target, shape=(target.shape[0], height, width))


def rescaled(layer: Layer, size: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of a layer's output, of those that are made before its epilogue changes them."""
    rows, cols = (length * repeats // window
                  for length, repeats, window in zip(size, layer.repeats, layer.windows, strict=True))
    return rows, cols
