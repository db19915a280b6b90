"""A layer: sums of what it reads, and activations of them. What differs between kinds is here asked of them."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from math import prod
from typing import ClassVar, Self

import numpy as np

from gen.ir.epilogue.base import Range, StoreOp
from gen.ir.tensor import Requantize, Tensor

__all__ = ["Layer", "any_int8", "output_size"]


def any_int8(channels: int) -> Range:
    """Of channels of which nothing is known."""
    return np.full(channels, -128), np.full(channels, 127)


def output_size(size: int, kernel: int, stride: int, pad_before: int, pad_after: int) -> int:
    return (size + pad_before + pad_after - kernel) // stride + 1


@dataclass(frozen=True, eq=False)
class Layer(ABC):
    """One layer. It goes over windows of its input; those of a kind without are a pixel.

    ``pads``: top, left, bottom, right; padding has ``pad_value``, None stands for the input's zero point. Sums become
    activations by ``requantize``; ``epilogue`` are the operations between that and memory, in order
    (`gen.ir.epilogue`). ``onnx_nodes`` are those that the layer stands for, in order.
    """

    name: str
    input: str
    output: str
    _: KW_ONLY
    requantize: Requantize
    stride: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    pad_value: int | None = None
    epilogue: tuple[StoreOp, ...] = ()
    onnx_nodes: tuple[str, ...] = ()

    #: In reports and messages.
    op: ClassVar[str]
    #: Its sums are there until the store has read them, as often as that does; others are made again each time.
    keeps_sums: ClassVar[bool] = True

    @property
    def kernel(self) -> tuple[int, int]:
        """Rows and columns of a window."""
        return 1, 1

    @property
    def operands(self) -> tuple[str, ...]:
        """The tensors that its sums are made of, its input first."""
        return (self.input,)

    @cached_property
    def others(self) -> tuple[str, ...]:
        """Tensors that its epilogue reads, in the order of the operations that do."""
        return tuple(name for op in self.epilogue for name in op.others)

    @property
    def reads(self) -> tuple[str, ...]:
        """All that it reads."""
        return *self.operands, *self.others

    @cached_property
    def repeats(self) -> tuple[int, int]:
        """How often each row and each column of its result is in its output."""
        down, across = zip(*(op.repeats for op in self.epilogue), strict=True) if self.epilogue else ((), ())
        return prod(down), prod(across)

    @cached_property
    def windows(self) -> tuple[int, int]:
        """Rows and columns of its result of which its output has one value; the windows do not overlap."""
        rows, cols = zip(*(op.windows for op in self.epilogue), strict=True) if self.epilogue else ((), ())
        return prod(rows), prod(cols)

    def padding(self, zero_point: int) -> int:
        """What lies around its input, whose zero point this is."""
        return zero_point if self.pad_value is None else self.pad_value

    # -- the IR's rules ------------------------------------------------------------------------------------------

    @abstractmethod
    def channels(self, source: Tensor) -> int:
        """Channels of its output, if that is its input."""

    def size(self, source: Tensor) -> tuple[int, int]:
        """Rows and columns of what it makes of that, before its epilogue changes them: one for each of its windows."""
        (rows, cols), (top, left, bottom, right) = self.kernel, self.pads
        return (output_size(source.shape[1], rows, self.stride[0], top, bottom),
                output_size(source.shape[2], cols, self.stride[1], left, right))

    def problems(self, sources: Sequence[Tensor]) -> Iterator[str]:
        """What breaks a rule of its kind, in words; ``sources``: its operands."""
        return iter(())

    def makes_signs(self, source: Tensor) -> bool:
        """Whether its first stage, which clips to -1 and +1, never gives 0: as of ``2 * sum + 1``."""
        return self.requantize.zero_point == 1 and bool((self.requantize.scale == 2).all())

    # -- arithmetic ----------------------------------------------------------------------------------------------

    @abstractmethod
    def accumulate(self, operands: Sequence[np.ndarray], zero_point: int) -> np.ndarray:
        """Its sums, int64 (..., C, H, W), of int8 (..., C, H, W) each; ``zero_point``: that of its input."""

    @property
    @abstractmethod
    def summands(self) -> int:
        """Values that each of its sums is made of."""

    @property
    def copies(self) -> bool:
        """Whether each of its sums is the value in that place, so that it only requantises."""
        return False

    @property
    def is_exact(self) -> bool:
        """Whether its sums are those that its kind says, so that any way to make them gives the same."""
        return True

    @abstractmethod
    def sum_range(self, operands: Sequence[Range]) -> Range:
        """Lowest and highest sum of each channel, of operands, padded, with values in these."""

    @abstractmethod
    def sum_distance(self, apart: Sequence[np.ndarray]) -> np.ndarray:
        """How far its sums can be from others', whose operands are ``apart`` by at most these numbers."""

    # -- what machines have room for -----------------------------------------------------------------------------

    def reach(self, operands: Sequence[Range]) -> Range:
        """`sum_range`, as accumulators have it on the way there and at the end."""
        return self.sum_range(operands)

    def room_problem(self) -> tuple[str, int] | None:
        """Why no machine makes its sums, if none does, and the limit that it breaks."""
        return None

    def without(self, channels: np.ndarray) -> Self | None:
        """With sums of 0 in these channels, bool (C,), whatever it reads; None if that cannot be."""
        return None

    def macs(self, target: Tensor) -> int:
        """Multiplications; ``target``: what it makes, before rows and columns are repeated."""
        return 0

    @property
    def summed_channels(self) -> int:
        """Input channels that a sum is made of; 0 where it is a result's own channel, or nothing is multiplied."""
        return 0

    @property
    def form(self) -> Hashable:
        """What its cycles depend on, beside the sizes of tensors, its epilogue and the way that it is computed."""
        return self.op, self.kernel, self.stride, self.pads, self.summands, len(self.requantize.bias)
