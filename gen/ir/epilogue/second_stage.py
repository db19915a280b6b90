"""What operations have in common that are a store's second stage: a sum of products, shifted, rounded and clipped."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

from cores.arch.numerics import CONSTANT_BITS
from gen.ir.epilogue.base import Setting, StoreOp
from gen.ir.rules import range_problems, scaling_problems
from gen.ir.tensor import Requantize, Tensor, broadcasts
from npudriver.steps import is_integer

__all__ = ["SecondStage", "WithOperand"]

_CONSTANT = (-(1 << CONSTANT_BITS - 1), (1 << CONSTANT_BITS - 1) - 1)


@dataclass(frozen=True, kw_only=True)
class SecondStage(StoreOp):
    """``clip(round_shift(total, shift) + zero_point, low, high)`` of a total that the operation makes of ``middle``."""

    middle: Tensor
    shift: int
    zero_point: int
    low: int
    high: int

    @property
    def source(self) -> Tensor:
        return self.middle

    @property
    @abstractmethod
    def multipliers(self) -> tuple[int, ...]:
        """Those of its total."""

    def bounds(self, before: tuple[int, int]) -> tuple[int, int]:
        return self.low, self.high

    def absorb(self, after: StoreOp | Requantize, point: int) -> StoreOp | None:
        """A copy that only clips goes into the bounds."""
        if not isinstance(after, Requantize) or not after.only_clips:
            return None
        low, high = after.clipped(self.low, self.high)
        return replace(self, low=low, high=high)

    def applied_to(self, source: Tensor) -> Self | None:
        return None if source.shape != self.middle.shape else replace(self, middle=source)

    def problems(self, setting: Setting) -> Iterator[str]:
        if self.middle.shape != setting.target.shape:
            yield f"its own result is {self.middle.shape}, the output {setting.target.shape}"
        yield from self._number_problems()
        yield from scaling_problems((min(self.multipliers), max(self.multipliers)), (self.shift, self.shift))
        yield from range_problems(self.zero_point, self.low, self.high, 8)

    def _number_problems(self) -> Iterator[str]:
        if not all(map(is_integer, (*self.multipliers, self.shift))):
            yield f"multipliers and shift of {self.name} must be integers"

    def encode(self, *, broadcast: bool) -> dict[str, int]:
        return {"shift": self.shift, "zero_point": self.zero_point, "low": self.low, "high": self.high}

    @property
    def unit(self) -> float:
        """What one of the total is worth, in steps of the result."""
        return float(2.0 ** -self.shift)


@dataclass(frozen=True, kw_only=True)
class WithOperand(SecondStage):
    """One that reads the tensor ``other``, of the shape of the output, or (C, 1, 1), the same number for all pixels of
    a channel; ``constant`` has the zero points in it.
    """

    other: str
    constant: int

    cycles = 3
    refusal = ("multiplies two tensors, or adds a vector to all pixels, which this machine does not; "
               "--features product has it do so")

    @property
    def others(self) -> tuple[str, ...]:
        return (self.other,)

    def problems(self, setting: Setting) -> Iterator[str]:
        shape = setting.target.shape
        if setting.tensors[self.other].shape not in (shape, (shape[0], 1, 1)):
            yield "residual and output differ in shape"
        yield from super().problems(setting)
        if not is_integer(self.constant, *_CONSTANT):
            yield f"the constant beside another tensor must be in {_CONSTANT[0]}..{_CONSTANT[1]}, not {self.constant}"

    def _number_problems(self) -> Iterator[str]:
        if not all(map(is_integer, (*self.multipliers, self.constant, self.shift, self.middle.zero_point))):
            yield "multipliers, constant, shift and zero point beside another tensor must be integers"

    def swapped(self, source: Tensor, tensors: Mapping[str, Tensor]) -> Self | None:
        other = tensors[self.other]
        return None if broadcasts(other.shape, source.shape) else self._swapped(source, other)

    @abstractmethod
    def _swapped(self, source: Tensor, other: Tensor) -> Self:
        """This with the tensor that it reads as its own, and ``source`` as what it reads."""

    def encode(self, *, broadcast: bool) -> dict[str, int]:
        return {**super().encode(broadcast=broadcast), "constant": self.constant, "broadcast": int(broadcast)}
