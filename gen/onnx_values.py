"""What an ONNX value means to the importer while it walks the model.

The arrangement of a value's elements is an ``order``: an integer array of the value's ONNX shape (one sample, so its first
axis is 1) that holds, for each element, its flat index in the tensor behind it. Reshape, Flatten and Transpose only
rearrange the order; nothing moves.
"""

from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import TypeVar

import numpy as np

from gen.ir import HostStep

__all__ = [
    "Constant", "Host", "Pending", "PendingAdd", "Quantised", "QuantisedConstant", "RawInput", "Real", "Value",
    "channels_shape", "clipped", "layout_steps",
]


@dataclass(frozen=True, eq=False)
class Constant:
    array: np.ndarray


@dataclass(frozen=True, eq=False)
class QuantisedConstant:
    """A dequantised constant: ``(array - zero_point) * scale``; ``axis`` is that of a scale with more than one element."""

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
        """Zero point subtracted, int64."""
        return self.array.astype(np.int64) - self._along(self.zero_point.astype(np.int64))

    @property
    def real(self) -> np.ndarray:
        return self.integers * self._along(self.scale.astype(np.float64))


@dataclass(frozen=True, eq=False)
class RawInput:
    """A float model input that has not been quantised yet."""

    name: str
    order: np.ndarray


@dataclass(frozen=True, eq=False)
class Quantised:
    """An int8 or uint8 value: elements of IR tensor ``tensor``, or of model input ``tensor`` where that has no tensor yet."""

    tensor: str
    order: np.ndarray
    unsigned: bool


@dataclass(frozen=True, eq=False)
class Real:
    """A dequantised value; the zero point is that of the int8 tensor."""

    quantised: Quantised
    scale: float
    zero_point: int

    @property
    def order(self) -> np.ndarray:
        return self.quantised.order


@dataclass(frozen=True, eq=False)
class Pending:
    """A layer's real result on the way to its QuantizeLinear: ``clip((acc + offset) * scale + bias, low, high)``."""

    name: str
    arguments: dict             # of Conv or Pool
    shape: tuple[int, int, int]
    scale: np.ndarray           # (C,) float64, real value of one unit of the accumulator
    offset: np.ndarray          # (C,) int64
    bias: np.ndarray            # (C,) float64, real
    order: np.ndarray
    nodes: tuple[str, ...]
    low: float = -np.inf
    high: float = np.inf


@dataclass(frozen=True, eq=False)
class PendingAdd:
    """The sum of two dequantised tensors on the way to its QuantizeLinear."""

    name: str
    a: Real
    b: Real
    order: np.ndarray
    nodes: tuple[str, ...]
    low: float = -np.inf
    high: float = np.inf


@dataclass(frozen=True, eq=False)
class Host:
    """A value that the processor makes from a tensor: ``steps`` start from the tensor as (samples, C, H, W)."""

    tensor: str
    steps: tuple[HostStep, ...]
    order: np.ndarray = field(repr=False)   # of the value, counted in itself

    def then(self, step: HostStep, order: np.ndarray | None = None) -> "Host":
        return replace(self, steps=(*self.steps, step), order=self.order if order is None else order)


Clippable = TypeVar("Clippable", Pending, PendingAdd)
Value = Constant | QuantisedConstant | RawInput | Quantised | Real | Pending | PendingAdd | Host


def clipped(value: Clippable, low: float, high: float, node: str) -> Clippable:
    """``value`` with a Clip behind it."""
    return replace(value, low=float(np.clip(value.low, low, high)), high=float(np.clip(value.high, low, high)),
                   nodes=(*value.nodes, node))


def channels_shape(shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """(C, H, W) of a value of ONNX shape ``shape`` (with samples), None beyond two spatial axes."""
    return {2: (*shape[1:], 1, 1), 3: (*shape[1:2], 1, *shape[2:]), 4: shape[1:]}.get(len(shape))  # type: ignore[return-value]


def layout_steps(source: tuple[int, ...], order: np.ndarray) -> tuple[HostStep, ...] | None:
    """Host steps from an array (samples, *source) to the arrangement ``order``; None if no transposition makes it."""
    flat = np.arange(order.size).reshape(source)
    for axes in permutations(range(len(source))):
        moved = flat.transpose(axes)
        if np.array_equal(moved.ravel(), order.ravel()):
            steps: list[HostStep] = []
            if axes != tuple(range(len(source))) and not np.array_equal(flat.ravel(), order.ravel()):
                steps.append(HostStep("transpose", {"axes": (0, *(a + 1 for a in axes))}))
            if moved.shape != order.shape[1:]:
                steps.append(HostStep("reshape", {"shape": (-1, *order.shape[1:])}))
            return tuple(steps)
    return None
