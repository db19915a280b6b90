"""The compiler's graph: quantised layers, each of which the machine can run as it stands.

Feature maps are (C, H, W) int8 raw values with one scale and zero point a tensor. uint8 tensors of the model are
shifted by 128 when they enter. Vectors (after Flatten, Gemm) are (C, 1, 1). Everything before and after the layers (the
outermost quantise and dequantise, Softmax, reshapes of outputs) is host work, kept as steps on the graph's inputs and
outputs. What each field may be is stated in `gen.ir.verify`.

Tensors side by side (Concat), or some channels of one (Split), are no layers: a tensor can be part of another
(`Part`, `gen.ir.parts`). Whether that is how they lie in memory is the machine's business.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from cores.arch.stochastic import Circuit
from gen.ir.epilogue.base import StoreOp
from gen.ir.host import HostStep
from gen.ir.tensor import Requantize, Tensor, broadcasts
from sim.stochastic.streams import Streams

__all__ = ["MAX_VALUES", "Conv", "Graph", "Layer", "NarrowWinograd", "Pool", "Stochastic", "is_binary", "is_broadcast",
           "output_size", "pad_value", "unscaled", "upscaled"]

#: Values of a feature map at most: what describes their arrangement takes eight bytes for each.
MAX_VALUES = 1 << 25


@dataclass(frozen=True, eq=False)
class NarrowWinograd:
    """A 3x3 convolution's sums made of int8 tiles and int8 weights, both rounded; see docs/numerics.md.

    ``weights``: (OC, IC, 4, 4) int16 in -128..127; ``shifts``: of the 16 positions, each 0..2. See
    `sim.golden.winograd_accumulate`.
    """

    weights: np.ndarray
    shifts: tuple[int, ...]


@dataclass(frozen=True)
class Stochastic:
    """A convolution's sums made of ``streams``, ``fan_in`` channels of a tap at a time; see
    `sim.stochastic.layers.conv2d_streams`.
    """

    circuit: Circuit
    streams: Streams
    fan_in: int


@dataclass(frozen=True, eq=False, kw_only=True)
class _Stored:
    """What every layer has of its store: ``epilogue``, the operations between its `Requantize` and memory, in order
    (`gen.ir.epilogue`).
    """

    epilogue: tuple[StoreOp, ...] = ()

    @cached_property
    def others(self) -> tuple[str, ...]:
        """Tensors that it reads beside its input, in the order of the operations that do."""
        return tuple(name for op in self.epilogue for name in op.others)

    @cached_property
    def repeats(self) -> tuple[int, int]:
        """How often each row and each column of its result is in its output."""
        down, across = zip(*(op.repeats for op in self.epilogue), strict=True) if self.epilogue else ((), ())
        return prod(down), prod(across)


@dataclass(frozen=True, eq=False)
class Conv(_Stored):
    """Convolution (a matrix product is one whose kernel covers its input).

    ``weights``: (OC, IC, KH, KW) int16, or (C, 1, KH, KW) if ``depthwise``; real integer weights with their zero point
    subtracted, so -255..255. ``pads``: top, left, bottom, right; padding has ``pad_value``, None stands for the input's
    zero point. A convolution whose input has ``signs`` and whose weights are -1 and +1 is binary. With ``winograd`` its
    sums are those of that form, which ``requantize`` goes with; with ``stochastic`` they are near the layer's own.
    """

    name: str
    input: str
    output: str
    weights: np.ndarray
    depthwise: bool
    stride: tuple[int, int]
    pads: tuple[int, int, int, int]
    requantize: Requantize
    #: ONNX nodes this layer stands for, in order.
    onnx_nodes: tuple[str, ...] = ()
    pad_value: int | None = None
    winograd: NarrowWinograd | None = None
    stochastic: Stochastic | None = None

    op = "conv"

    @property
    def kernel(self) -> tuple[int, int]:
        rows, cols = self.weights.shape[2:]
        return rows, cols

    @property
    def summands(self) -> int:
        """Values that each of its results is made of."""
        return prod(self.weights.shape[1:])

    @property
    def is_exact(self) -> bool:
        """Whether its sums are those of its weights, so that any way to make them gives the same."""
        return self.winograd is None and self.stochastic is None


@dataclass(frozen=True, eq=False)
class Pool(_Stored):
    """Window maximum or sum of each channel; padding has ``pad_value``. A 1x1 sum is a copy through the requantiser."""

    name: str
    input: str
    output: str
    maximum: bool
    kernel: tuple[int, int]
    stride: tuple[int, int]
    pads: tuple[int, int, int, int]
    pad_value: int
    requantize: Requantize
    onnx_nodes: tuple[str, ...] = ()

    op = "pool"

    @property
    def summands(self) -> int:
        """As of a `Conv`."""
        return prod(self.kernel)


Layer = Conv | Pool


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


def output_size(size: int, kernel: int, stride: int, pad_before: int, pad_after: int) -> int:
    return (size + pad_before + pad_after - kernel) // stride + 1


def is_broadcast(graph: Graph, layer: Layer) -> bool:
    """Whether a tensor that a layer reads beside its input has one number for all pixels of a channel."""
    shape = graph.tensors[layer.output].shape
    return any(broadcasts(graph.tensors[name].shape, shape) for name in layer.others)


def unscaled(layer: Layer, target: Tensor) -> Tensor:
    """A layer's output as it is made, before its rows and columns are repeated."""
    (channels, height, width), (down, across) = target.shape, layer.repeats
    return target if (down, across) == (1, 1) else replace(target, shape=(channels, height // down, width // across))


def upscaled(layer: Layer, size: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of a layer's output, of those that are made before they are repeated."""
    return size[0] * layer.repeats[0], size[1] * layer.repeats[1]


def pad_value(layer: Layer, source: Tensor) -> int:
    """What lies around a layer's input."""
    return source.zero_point if layer.pad_value is None else layer.pad_value


def is_binary(layer: Layer, source: Tensor) -> bool:
    """Whether a layer only multiplies -1 and +1 with -1 and +1, padding aside."""
    return (isinstance(layer, Conv) and source.signs and not layer.depthwise
            and bool((np.abs(layer.weights) == 1).all()))
