"""The compiler's graph: quantised layers, each of which the machine can run as it stands.

Feature maps are (C, H, W) int8 raw values with one scale and zero point a tensor. uint8 tensors of the model are
shifted by 128 when they enter. Vectors (after Flatten, Gemm) are (C, 1, 1). Everything before and after the layers (the
outermost quantise and dequantise, Softmax, reshapes of outputs) is host work, kept as steps on the graph's inputs and
outputs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from cores.arch.numerics import FIRST_BITS, POSITIONS
from gen.ir.errors import GraphError

__all__ = ["MAX_VALUES", "Conv", "Graph", "HostStep", "Layer", "NarrowWinograd", "Pool", "Requantize",
           "Residual", "Tensor", "is_binary", "pad_value", "verify"]

#: Values of a feature map at most: what describes their arrangement takes eight bytes for each.
MAX_VALUES = 1 << 25


@dataclass(frozen=True)
class Tensor:
    """An int8 feature map.

    ``onnx_name`` is the quantised ONNX tensor it stands for, ``onnx_unsigned`` whether that is uint8. ``signs``: every
    value is -1 or +1, as `_makes_signs` proves of the layer that writes it; the ONNX tensor is then float.
    """

    name: str
    shape: tuple[int, int, int]
    scale: float
    zero_point: int
    onnx_name: str = ""
    onnx_unsigned: bool = False
    signs: bool = False


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
    """Second stage of a store: the layer's own result ``middle`` (never in memory) plus tensor ``other``.

    ``middle`` may have FIRST_BITS, and then any zero point, which is in the first stage's bias. See
    `sim.golden.residual_add`.
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


@dataclass(frozen=True, eq=False)
class NarrowWinograd:
    """A 3x3 convolution's sums made of int8 tiles and int8 weights, both rounded; see docs/numerics.md.

    ``weights``: (OC, IC, 4, 4) int16 in -128..127; ``shifts``: of the 16 positions, each 0..2. See
    `sim.golden.winograd_accumulate`.
    """

    weights: np.ndarray
    shifts: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Conv:
    """Convolution (a matrix product is one whose kernel covers its input).

    ``weights``: (OC, IC, KH, KW) int16, or (C, 1, KH, KW) if ``depthwise``; real integer weights with their zero point
    subtracted, so -255..255. ``pads``: top, left, bottom, right; padding has ``pad_value``, None stands for the input's
    zero point. A convolution whose input has ``signs`` and whose weights are -1 and +1 is binary. With ``winograd`` its
    sums are those of that form, which ``requantize`` goes with.
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

    op = "conv"


@dataclass(frozen=True, eq=False)
class Pool:
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
    residual: Residual | None = None
    onnx_nodes: tuple[str, ...] = ()

    op = "pool"


Layer = Conv | Pool


@dataclass(frozen=True)
class HostStep:
    """Work of the processor, on an input on its way in or an output on its way out; arrays have the sample axis first.

    quantize (scale, zero_point, unsigned), dequantize (the same), softmax (axis), reshape (shape, -1 for samples),
    transpose (axes), gather (index: places in a flattened sample, an array of the result's shape without samples),
    retype (unsigned: from int8 to uint8, or back; values are shifted by 128), join (parts, constant, scale, bias):
    channel ``c`` of a sum that int8 does not hold is ``constant`` and the values of channels ``c``, ``c + C``, ...
    together; float32 after ``scale`` and ``bias``.
    """

    kind: Literal["quantize", "dequantize", "softmax", "reshape", "transpose", "gather", "retype", "join"]
    parameters: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Graph:
    """Layers in execution order, each tensor written once."""

    name: str
    tensors: Mapping[str, Tensor]
    layers: Sequence[Layer]
    #: Model input name -> tensor, and the host steps before it (ending in int8 or uint8 NCHW).
    inputs: Mapping[str, tuple[str, tuple[HostStep, ...]]]
    #: Model output name -> tensor, and the host steps after it (starting from int8 or uint8 NCHW).
    outputs: Mapping[str, tuple[str, tuple[HostStep, ...]]]


def output_size(size: int, kernel: int, stride: int, pad_before: int, pad_after: int) -> int:
    return (size + pad_before + pad_after - kernel) // stride + 1


def pad_value(layer: Layer, source: Tensor) -> int:
    """What lies around a layer's input."""
    return source.zero_point if layer.pad_value is None else layer.pad_value


def _makes_signs(layer: Layer, source: Tensor) -> bool:
    """Whether a layer's output is proven to be -1 and +1: ``2 * sum + 1`` clipped, or the maximum of such values."""
    stage, scale = layer.requantize, layer.requantize.multiplier / np.exp2(layer.requantize.shift)
    if layer.residual or (stage.low, stage.high) != (-1, 1):
        return False
    if isinstance(layer, Pool) and layer.maximum and source.signs:
        return stage.zero_point == 0 and bool((scale == 1).all()) and not stage.bias.any()
    return stage.zero_point == 1 and bool((scale == 2).all())


def is_binary(layer: Layer, source: Tensor) -> bool:
    """Whether a layer only multiplies -1 and +1 with -1 and +1, padding aside."""
    return (isinstance(layer, Conv) and source.signs and not layer.depthwise
            and bool((np.abs(layer.weights) == 1).all()))


def verify(graph: Graph) -> None:
    """Check every rule of the IR. Raises GraphError that names the layer and the rule."""
    written = {tensor for tensor, _ in graph.inputs.values()}
    for layer in graph.layers:
        def require(condition: bool, message: str, layer: Layer = layer) -> None:
            if not condition:
                raise GraphError(f"layer {layer.name}: {message}")

        for name in (layer.input, layer.output, *([layer.residual.other] if layer.residual else [])):
            require(name in graph.tensors, f"tensor {name!r} is not in the graph")
        require(layer.input in written, f"input {layer.input!r} is read before it is written")
        require(layer.output not in written, f"output {layer.output!r} is written twice")
        source, target = graph.tensors[layer.input], graph.tensors[layer.output]
        if isinstance(layer, Conv):
            oc, ic, *kernel = layer.weights.shape
            require(layer.weights.dtype == np.int16 and int(np.abs(layer.weights).max(initial=0)) <= 255,
                    "weights must be int16 in -255..255")
            fits = oc == source.shape[0] and ic == 1 if layer.depthwise else ic == source.shape[0]
            require(fits, "weights do not fit the input's channels")
            if layer.winograd:
                require((kernel, tuple(layer.stride), layer.depthwise) == ([3, 3], (1, 1), False),
                        "only dense 3x3 layers of stride 1 have a narrow Winograd form")
                require(layer.winograd.weights.shape == (oc, ic, 4, 4)
                        and int(np.abs(layer.winograd.weights + 0.5).max(initial=0)) <= 127,
                        "transformed weights must be (OC, IC, 4, 4) in -128..127")
                require(len(layer.winograd.shifts) == POSITIONS and set(layer.winograd.shifts) <= {0, 1, 2},
                        f"narrow Winograd has {POSITIONS} shifts of 0..2")
        else:
            oc, kernel = source.shape[0], list(layer.kernel)
        top, left, bottom, right = layer.pads
        spatial = (output_size(source.shape[1], kernel[0], layer.stride[0], top, bottom),
                   output_size(source.shape[2], kernel[1], layer.stride[1], left, right))
        require(target.shape == (oc, *spatial), f"output is {target.shape}, its layer makes {(oc, *spatial)}")
        require(min(spatial) >= 1, "output is empty")
        requantize = layer.requantize
        require(all(a.shape == (oc,) for a in (requantize.bias, requantize.multiplier, requantize.shift)),
                "one bias, multiplier and shift a channel")
        limit = 1 << (FIRST_BITS if layer.residual else 8) - 1
        require(-limit <= requantize.low <= requantize.high < limit,
                f"clip bounds must be ordered and in {-limit}..{limit - 1}")
        require(not target.signs or _makes_signs(layer, source), "output is not limited to -1 and +1")
        require(-128 <= pad_value(layer, source) <= 127, "the padding must be int8")
        if layer.residual:
            require(-128 <= layer.residual.low <= layer.residual.high <= 127, "clip bounds must be ordered int8")
            require(layer.residual.other in written, f"residual {layer.residual.other!r} is read before it is written")
            require(graph.tensors[layer.residual.other].shape == target.shape, "residual and output differ in shape")
        written.add(layer.output)
    for name, (tensor, _) in graph.outputs.items():
        if tensor not in written:
            raise GraphError(f"output {name}: tensor {tensor!r} is never written")
