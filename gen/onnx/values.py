"""What an ONNX value means to the importer while it walks the model.

The arrangement of a value's elements is an ``order``: an integer array of the value's ONNX shape (one sample, so its
first axis is 1, unless the model has split other axes off to it) that holds, for each element, its flat index in the
tensor after it. Reshape, Flatten and Transpose only rearrange the order; nothing moves.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any, Literal, Self

import numpy as np

from gen.ir.epilogue.base import StoreOp
from gen.ir.graph import Conv, Pool
from gen.ir.host import HostStep
from gen.ir.layers.rows import RowOp
from gen.ir.tensor import Tensor
from gen.onnx.model import Node
from gen.onnx.windows import Windows

__all__ = [
    "Condition", "Constant", "Head", "Host", "Padded", "Pending", "PendingAdd", "PendingBend", "PendingConcat",
    "PendingOperation", "PendingPixels", "PendingPool", "PendingProduct", "PendingRows", "PendingTable", "Quantisation",
    "Quantised", "QuantisedConstant", "QuantisedPadded", "RawInput", "Real", "Unquantised", "Value", "channels_first",
    "channels_shape", "channels_with_gaps", "is_plain", "is_whole", "layout_steps",
]

#: Axes beyond which `layout_steps` does not look for a transposition.
_MAX_TRANSPOSED = 4


@dataclass(frozen=True)
class Quantisation:
    """How the model quantises an activation, with its own zero point."""

    scale: float
    zero_point: int
    unsigned: bool

    @property
    def internal(self) -> int:
        """The zero point of the int8 tensor."""
        return self.zero_point - 128 if self.unsigned else self.zero_point

    def step(self, kind: Literal["quantize", "dequantize"]) -> HostStep:
        return HostStep(kind, {"scale": self.scale, "zero_point": self.zero_point, "unsigned": self.unsigned})


@dataclass(frozen=True, eq=False)
class Constant:
    array: np.ndarray


@dataclass(frozen=True, eq=False)
class QuantisedConstant:
    """A dequantised constant: ``(array - zero_point) * scale``, of one element each or along ``axis``."""

    array: np.ndarray
    scale: np.ndarray
    zero_point: np.ndarray
    axis: int

    def _along(self, values: np.ndarray) -> np.ndarray:
        if values.size == 1:
            return values.reshape(())
        shape = [1] * self.array.ndim
        shape[self.axis] = values.size
        return values.reshape(shape)

    @property
    def integers(self) -> np.ndarray:
        """Zero point subtracted; int16 of 8 bits, int64 of others."""
        number = np.int16 if self.array.itemsize == 1 else np.int64
        difference: np.ndarray = np.subtract(self.array, self._along(self.zero_point), dtype=number, casting="unsafe")
        return difference

    @property
    def real(self) -> np.ndarray:
        return self.integers * self._along(self.scale.astype(np.float64))


@dataclass(frozen=True, eq=False)
class RawInput:
    """A float model input that has not been quantised yet; ``others_quantised``: other activations are.

    ``maker``: the node on the processor whose result it is, where the model is cut there (`gen.partition`).
    """

    name: str
    order: np.ndarray
    others_quantised: bool
    maker: str = ""


@dataclass(frozen=True, eq=False)
class Quantised:
    """An int8 or uint8 value: elements of IR tensor ``tensor``, or of a model input that has no tensor yet."""

    tensor: str
    order: np.ndarray
    unsigned: bool
    #: The last node that rearranged it, "" for none.
    moved_by: str = ""


@dataclass(frozen=True, eq=False)
class Real:
    """A dequantised value; the zero point is that of the int8 tensor."""

    quantised: Quantised
    scale: float
    zero_point: int

    @property
    def order(self) -> np.ndarray:
        return self.quantised.order

    @property
    def moved_by(self) -> str:
        return self.quantised.moved_by


@dataclass(frozen=True, eq=False)
class Padded:
    """A dequantised value with ``pads`` (top, left, bottom, right) of ``number``, by the node ``name``."""

    name: str
    real: Real
    pads: tuple[int, int, int, int]
    number: float

    @property
    def order(self) -> np.ndarray:
        return self.real.order

    @property
    def shape(self) -> tuple[int, ...]:
        """With the padding."""
        before, (top, left, bottom, right) = self.order.shape, self.pads
        wider = (before[-2] + top + bottom,) if len(before) == 4 else ()
        return (*before[:2], *wider, before[-1] + left + right)


@dataclass(frozen=True, eq=False)
class QuantisedPadded:
    """``padded`` in the integers of its tensor, by ``node``."""

    padded: Padded
    node: Node

    @property
    def order(self) -> np.ndarray:
        return self.padded.order


@dataclass(frozen=True, eq=False, kw_only=True)
class Unquantised:
    """The real result of node ``name`` on the way to its QuantizeLinear, clipped to ``low``..``high``."""

    name: str
    order: np.ndarray
    #: ONNX nodes so far.
    nodes: tuple[str, ...]
    low: float = -np.inf
    high: float = np.inf
    #: As that of `Quantised`.
    moved_by: str = ""

    def clipped(self, low: float, high: float, node: str) -> Self:
        """This with a Clip after it."""
        return replace(self, low=float(np.clip(self.low, low, high)), high=float(np.clip(self.high, low, high)),
                       nodes=(*self.nodes, node))


@dataclass(frozen=True, eq=False, kw_only=True)
class Pending(Unquantised):
    """A layer's: ``(acc + offset) * scale + bias``."""

    #: `Conv` or `Pool`, and its arguments but for the name, the output and the requantisation.
    layer: type[Conv] | type[Pool]
    arguments: dict[str, Any]
    shape: tuple[int, int, int]
    scale: np.ndarray           # (C,) float64, real value of an LSB of the accumulator
    offset: np.ndarray          # (C,) int64
    bias: np.ndarray            # (C,) float64, real

    @property
    def only_counts(self) -> bool:
        """Whether each value is a single one of a tensor, or the negative of one, but for scale and bias."""
        if self.layer is Pool:
            return self.only_copies
        weights, windows = self.arguments["weights"], (self.arguments["stride"], self.arguments["pads"])
        return (self.arguments["depthwise"] and weights.shape[2:] == (1, 1) and windows == ((1, 1), (0, 0, 0, 0))
                and bool((np.abs(weights) == 1).all()))

    @property
    def only_copies(self) -> bool:
        """Whether this is a tensor as it stands, but for scale and bias, perhaps upsampled."""
        windows = tuple(self.arguments.get(key) for key in ("kernel", "stride", "pads"))
        return self.layer is Pool and windows == ((1, 1), (1, 1), (0, 0, 0, 0))


@dataclass(frozen=True, eq=False, kw_only=True)
class PendingAdd(Unquantised):
    """The sum of two tensors, the first of which may still be a layer's result, and either one a function.

    ``apart``: one of both is always zero, so that a result in steps of the sum is rounded once. ``instead``: another
    such sum of the same numbers, where the first operand would be too coarse.
    """

    a: "Real | Pending | PendingTable"
    b: "Real | PendingTable"
    apart: bool = False
    instead: "Callable[[], PendingAdd] | None" = None


@dataclass(frozen=True, eq=False, kw_only=True)
class PendingOperation(Unquantised):
    """What an operation of a store makes of a tensor.

    ``operation`` makes it of the tensor, as it is before the operation, the result's quantisation, and the lowest and
    highest integer of that. It raises ValueError for scales that the operation cannot have.
    """

    real: Real
    operation: Callable[[Tensor, Quantisation, tuple[int, int]], StoreOp]


@dataclass(frozen=True, eq=False, kw_only=True)
class PendingBend(Unquantised):
    """A layer's result ``above`` zero, and ``below`` zero that times ``slope``; None: one for each channel."""

    above: Pending
    below: Pending
    slope: float | None


@dataclass(frozen=True, eq=False, kw_only=True)
class PendingTable(Unquantised):
    """ONNX value ``value``: a function, value by value, of the quantised one ``source``, which stands for ``real``."""

    real: Real
    value: str
    source: str


@dataclass(frozen=True, eq=False, kw_only=True)
class PendingConcat(Unquantised):
    """Tensors of one height and width after each other, the channels of the first one first."""

    parts: tuple[Real, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class PendingPixels(Unquantised):
    """Of the pixels of all parts, which have one number of channels, those of the first one first, these ``places``, in
    rows and columns of ``size`` (`gen.ir.layers.move`).
    """

    parts: tuple[Real | Pending, ...]
    places: np.ndarray
    size: tuple[int, int]


@dataclass(frozen=True, eq=False, kw_only=True)
class Head:
    """A product of two tensors: arguments of `MatMul` but for name, output, outputs and requantisation."""

    arguments: dict[str, Any]


@dataclass(frozen=True, eq=False, kw_only=True)
class PendingProduct(Unquantised):
    """Products of two activations, ``heads``, each of which has ``outputs`` channels of ``size`` pixels: the channels
    of the first one first. A step of their sums is ``scale``.
    """

    heads: tuple[Head, ...]
    outputs: int
    size: tuple[int, int]
    scale: float


@dataclass(frozen=True, eq=False, kw_only=True)
class PendingRows(Unquantised):
    """A `RowOp`'s: ``acc * scale + bias``; ``arguments``: its own, but for name, output and requantisation. Of channels
    that are ``turned`` it is ``-acc * scale + bias``.
    """

    layer = RowOp
    arguments: dict[str, Any]
    shape: tuple[int, int, int]
    scale: np.ndarray           # (C,) float64
    bias: np.ndarray            # (C,) float64, real
    turned: np.ndarray          # (C,) bool


@dataclass(frozen=True, eq=False, kw_only=True)
class PendingPool(Unquantised):
    """``factor`` times the maximum of windows of a layer's result, plus ``shift``: what a Sign can follow."""

    inner: Pending
    windows: Windows
    shape: tuple[int, int, int]
    factor: np.ndarray          # (C,) float64
    shift: np.ndarray


@dataclass(frozen=True, eq=False)
class Condition:
    """Where ``value`` is 0 or more; where it is less if ``inverted``."""

    value: "Pending | PendingPool"
    inverted: bool

    @property
    def order(self) -> np.ndarray:
        return self.value.order


@dataclass(frozen=True, eq=False)
class Host:
    """A value that the processor makes from a tensor: ``steps`` start from the tensor as (samples, C, H, W).

    ``maker``: the node that is the processor's, where that may be in front of a layer, too.
    """

    tensor: str
    steps: tuple[HostStep, ...]
    order: np.ndarray = field(repr=False)   # of the value, counted in itself
    maker: str = ""
    #: The same as a layer, if it is quantised.
    layer: "PendingRows | None" = None

    def then(self, step: HostStep, order: np.ndarray | None = None) -> "Host":
        return replace(self, steps=(*self.steps, step), order=self.order if order is None else order, layer=None)


Value = (Constant | QuantisedConstant | RawInput | Quantised | Real | Padded | QuantisedPadded | Unquantised | Condition
         | Host)


def channels_shape(shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """(C, H, W) of a value of ONNX shape ``shape``, that of the one sample first; None for any other first axis, and
    beyond two spatial ones.
    """
    if shape[:1] != (1,):
        return None
    return {2: (*shape[1:], 1, 1), 3: (*shape[1:2], 1, *shape[2:]), 4: shape[1:]}.get(len(shape))  # type: ignore[return-value]


def channels_first(order: np.ndarray) -> np.ndarray:
    """(1, C, H, W) of an arrangement whose channels are its last axis: W the axis before, H all others together."""
    return np.moveaxis(order.reshape(1, -1, *order.shape[-2:]), -1, 1)


def is_whole(order: np.ndarray, size: int) -> bool:
    """Whether an arrangement holds every one of ``size`` elements once."""
    return order.size == size and bool(np.bincount(order.ravel(), minlength=size).max(initial=0) == 1)


def channels_with_gaps(order: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """The channels of a tensor of ``shape`` that an arrangement has, each as a whole and once, where it lacks others
    between them; else None.
    """
    channels, pixels = shape[0], math.prod(shape[1:])
    if order.size == channels * pixels:
        return None
    held = np.bincount(order.ravel(), minlength=channels * pixels).reshape(channels, pixels)
    used = np.flatnonzero(held.any(axis=1))
    whole = used.size > 0 and held.max() == 1 and bool(held[used].all())
    return used if whole and used[-1] - used[0] >= used.size else None


def is_plain(order: np.ndarray) -> bool:
    """Whether an arrangement leaves every element where it is."""
    return np.array_equal(order.ravel(), np.arange(order.size))


def layout_steps(source: tuple[int, ...], order: np.ndarray) -> tuple[HostStep, ...]:
    """Host steps from an array (samples, *source) to the arrangement ``order``, a selection of its elements."""
    flat = np.arange(math.prod(source)).reshape(source)
    axes = range(len(source))
    candidates = permutations(axes) if len(source) <= _MAX_TRANSPOSED else [tuple(axes)]
    for turned in candidates if order.size == flat.size else []:
        moved = flat.transpose(turned)
        if np.array_equal(moved.ravel(), order.ravel()):
            steps: list[HostStep] = []
            if turned != tuple(axes) and not np.array_equal(flat.ravel(), order.ravel()):
                steps.append(HostStep("transpose", {"axes": (0, *(a + 1 for a in turned))}))
            if moved.shape != order.shape[1:]:
                steps.append(HostStep("reshape", {"shape": (-1, *order.shape[1:])}))
            return tuple(steps)
    return (HostStep("gather", {"index": order[0]}),)
