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

import numpy as np

from cores.arch.stochastic import Circuit
from gen.ir.host import HostStep
from sim.stochastic.streams import Streams

__all__ = ["MAX_VALUES", "Bend", "Conv", "Graph", "Layer", "NarrowWinograd", "Part", "Pool", "Requantize", "Residual",
           "Stochastic", "Table", "Tensor", "is_binary", "is_broadcast", "output_size", "pad_value", "repeats",
           "second_stage", "unscaled", "upscaled"]

#: Values of a feature map at most: what describes their arrangement takes eight bytes for each.
MAX_VALUES = 1 << 25


@dataclass(frozen=True)
class Part:
    """As many channels of tensor ``whole`` as there are, from ``first`` on."""

    whole: str
    first: int


@dataclass(frozen=True)
class Tensor:
    """An int8 feature map.

    ``onnx_name`` is the quantised ONNX tensor it stands for, ``onnx_unsigned`` whether that is uint8. ``signs``: every
    value is -1 or +1, as `gen.ir.verify` proves of the layer that writes it; the ONNX tensor is then float. With
    ``part`` its values are those of channels of another tensor: what is written to one of both can be read from the
    other. What they stand for, scale and zero point, is each one's own.
    """

    name: str
    shape: tuple[int, int, int]
    scale: float
    zero_point: int
    onnx_name: str = ""
    onnx_unsigned: bool = False
    signs: bool = False
    part: Part | None = None


@dataclass(frozen=True, eq=False)
class Requantize:
    """First stage of a store, per channel; see `sim.golden.requantize`. ``bias`` has the input's zero point in it.

    Clip bounds are those of int8, in front of a `Residual` of FIRST_BITS.
    """

    bias: np.ndarray        # (C,) int64
    multiplier: np.ndarray  # (C,) int64
    shift: np.ndarray       # (C,) int64
    zero_point: int
    low: int
    high: int


@dataclass(frozen=True)
class Residual:
    """Second stage of a store: the layer's own result ``middle`` (never in memory) plus tensor ``other``, or with
    ``product`` times that.

    ``other`` has the shape of the output, or (C, 1, 1), the same number for all pixels of a channel.
    A ``middle`` that is added to may have FIRST_BITS, and then any zero point, which is in the first stage's bias. See
    `sim.golden.residual_add`. One that is multiplied has the zero point of the first stage; ``multiplier_b`` is the
    product's, of PRODUCT_MULTIPLIER_BITS, ``constant`` that times the zero point of ``other``, ``multiplier_a`` 0. See
    `sim.golden.product`.
    """

    middle: Tensor
    other: str
    multiplier_a: int
    multiplier_b: int
    constant: int
    shift: int
    zero_point: int
    low: int
    high: int
    product: bool = False


@dataclass(frozen=True)
class Bend:
    """Second stage of a store: what the layer's own result ``middle`` (never in memory) is above its zero point times
    ``multiplier_a``, what it is below times ``multiplier_b``. See `sim.golden.bend`.
    """

    middle: Tensor
    multiplier_a: int
    multiplier_b: int
    shift: int
    zero_point: int
    low: int
    high: int


@dataclass(frozen=True, eq=False)
class Table:
    """What becomes of a layer's own result ``middle`` (never in memory), value by value. See `sim.golden.look_up`.

    ``middle`` may be of fewer rows and columns than the output, as a model has it that looks up first and upsamples
    then (`repeated_by`). ``values``: (256,) int8, of -128 first.
    """

    middle: Tensor
    values: np.ndarray


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


@dataclass(frozen=True, eq=False)
class Conv:
    """Convolution (a matrix product is one whose kernel covers its input).

    ``weights``: (OC, IC, KH, KW) int16, or (C, 1, KH, KW) if ``depthwise``; real integer weights with their zero point
    subtracted, so -255..255. ``pads``: top, left, bottom, right; padding has ``pad_value``, None stands for the input's
    zero point. A convolution whose input has ``signs`` and whose weights are -1 and +1 is binary. With ``winograd`` its
    sums are those of that form, which ``requantize`` goes with; with ``stochastic`` they are near the layer's own.
    ``upsample``: so often each row and each column of its result is there, in front of what is added. ``bend`` is
    instead of ``residual``; ``table`` comes last.
    """

    name: str
    input: str
    output: str
    weights: np.ndarray
    depthwise: bool
    stride: tuple[int, int]
    pads: tuple[int, int, int, int]
    requantize: Requantize
    residual: Residual | None = None
    #: ONNX nodes this layer stands for, in order.
    onnx_nodes: tuple[str, ...] = ()
    pad_value: int | None = None
    winograd: NarrowWinograd | None = None
    upsample: tuple[int, int] = (1, 1)
    bend: Bend | None = None
    table: Table | None = None
    stochastic: Stochastic | None = None

    op = "conv"

    @property
    def is_exact(self) -> bool:
        """Whether its sums are those of its weights, so that any way to make them gives the same."""
        return self.winograd is None and self.stochastic is None


@dataclass(frozen=True, eq=False)
class Pool:
    """Window maximum or sum of each channel; padding has ``pad_value``. A 1x1 sum is a copy through the requantiser.

    ``upsample``, ``bend``, ``table``: as of a `Conv`.
    """

    name: str
    input: str
    output: str
    maximum: bool
    kernel: tuple[int, int]
    stride: tuple[int, int]
    pads: tuple[int, int, int, int]
    pad_value: int
    requantize: Requantize
    residual: Residual | None = None
    onnx_nodes: tuple[str, ...] = ()
    upsample: tuple[int, int] = (1, 1)
    bend: Bend | None = None
    table: Table | None = None

    op = "pool"


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


def repeats(other: Sequence[int], result: Sequence[int]) -> bool:
    """Whether what is added to a result, or multiplied with it, is one number for all pixels of a channel, by their
    shapes: channels, or blocks of them, rows, columns.
    """
    return tuple(other[1:]) != tuple(result[1:])


def is_broadcast(graph: Graph, layer: Layer) -> bool:
    """Whether what a layer adds to its result, or multiplies it with, `repeats`."""
    return (layer.residual is not None
            and repeats(graph.tensors[layer.residual.other].shape, graph.tensors[layer.output].shape))


def second_stage(layer: Layer) -> Residual | Bend | None:
    return layer.residual or layer.bend


def unscaled(layer: Layer, target: Tensor) -> Tensor:
    """A layer's output as it is made, before it is upsampled."""
    if layer.upsample == (1, 1):
        return target
    channels, height, width = target.shape
    return replace(target, shape=(channels, height // layer.upsample[0], width // layer.upsample[1]))


def upscaled(layer: Layer, size: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of a layer's output, of those that are made before it is upsampled."""
    return size[0] * layer.upsample[0], size[1] * layer.upsample[1]


def repeated_by(middle: Tensor, target: Tensor) -> tuple[int, int]:
    """How often each row and each column of what a table is of is in the layer's output."""
    return target.shape[1] // middle.shape[1], target.shape[2] // middle.shape[2]


def pad_value(layer: Layer, source: Tensor) -> int:
    """What lies around a layer's input."""
    return source.zero_point if layer.pad_value is None else layer.pad_value


def is_binary(layer: Layer, source: Tensor) -> bool:
    """Whether a layer only multiplies -1 and +1 with -1 and +1, padding aside."""
    return (isinstance(layer, Conv) and source.signs and not layer.depthwise
            and bool((np.abs(layer.weights) == 1).all()))
