"""The interface of what a store does to a layer's activations."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar, Protocol, Self

import numpy as np

from cores.arch.isa import Opcode
from gen.ir.tensor import Requantize, Tensor

__all__ = ["EQUAL", "Known", "Range", "Setting", "StoreOp"]

#: Lowest and highest value of each channel, int64 (C,) each.
Range = tuple[np.ndarray, np.ndarray]

#: Nowhere apart; see `StoreOp.distance`.
EQUAL = np.zeros(())


@dataclass(frozen=True)
class Setting:
    """The layer that an operation is part of: its first stage, its output, before windows of it become one value, how
    often that has each row and column of its result, and the graph's tensors.
    """

    first: Requantize
    target: Tensor
    repeats: tuple[int, int]
    tensors: Mapping[str, Tensor]


class Known(Protocol):
    """What `StoreOp.distance` may ask, by tensors' names."""

    def values(self, name: str) -> np.ndarray:
        """(N, C, H, W) integers of a tensor, or of a result inside a layer."""

    def apart(self, name: str) -> np.ndarray:
        """How far onnxruntime's numbers are from a tensor's, in its steps."""


class StoreOp(ABC):
    """One operation of an epilogue. Values are int8, or of FIRST_BITS before one that is `wide`."""

    #: In reports.
    name: ClassVar[str]
    #: What it does, in messages: "it adds".
    verb: ClassVar[str]
    #: What has the store engine do it; None: it is part of every STORE.
    opcode: ClassVar[Opcode | None] = None
    #: Turns of a pixel of a block at the store engine's multipliers, where those are more than one: its cycles, if all
    #: are at the same.
    cycles: ClassVar[int] = 1
    #: It takes first-stage results of FIRST_BITS.
    wide: ClassVar[bool] = False
    #: It takes what the first stage makes less the first stage's zero point.
    centred: ClassVar[bool] = False
    #: It may follow an operation that repeats rows and columns as well as go before it.
    repeatable: ClassVar[bool] = False
    #: Values stay what they are.
    keeps_values: ClassVar[bool] = False
    #: What a machine lacks that does not have it, or one of the fields it needs, and what to do.
    refusal: ClassVar[str] = "has an operation that this machine's stores do not"

    @property
    def source(self) -> Tensor | None:
        """What it is applied to, never in memory, where that stands for something."""
        return None

    @property
    def others(self) -> tuple[str, ...]:
        """Tensors that it reads beside."""
        return ()

    @property
    def repeats(self) -> tuple[int, int]:
        """How often each row and each column is there after it: what it changes of the shape."""
        return 1, 1

    @property
    def windows(self) -> tuple[int, int]:
        """Rows and columns of values of which it makes one: what else it can change of the shape."""
        return 1, 1

    # -- arithmetic ----------------------------------------------------------------------------------------------

    @abstractmethod
    def eval(self, values: np.ndarray, others: Sequence[np.ndarray], point: int) -> np.ndarray:
        """Its result of ``values`` (..., C, H, W), or of arrays of any shape where it does not change that.

        ``others``: of the tensors that it reads; ``point``: the first stage's zero point.
        """

    def value_range(self, values: Range, others: Sequence[Range], point: int) -> Range:
        """Lowest and highest result of each channel: as of one that is monotone in each operand for any value of the
        others.
        """
        found = [self.eval(first, rest, point) for first, *rest in product(values, *others)]
        return np.min(found, axis=0), np.max(found, axis=0)

    def bounds(self, before: tuple[int, int]) -> tuple[int, int]:
        """Lowest and highest value that it can make, of any in ``before``."""
        return before

    def distance(self, apart: np.ndarray, known: Known, setting: Setting) -> np.ndarray:
        """How far onnxruntime's result can be from this one before it is rounded, in its steps, where operands are
        ``apart``: an array that broadcasts to the values, `EQUAL` for nowhere.
        """
        return apart

    # -- the IR's rules ------------------------------------------------------------------------------------------

    def problems(self, setting: Setting) -> Iterator[str]:
        """What breaks a rule, in words."""
        return iter(())

    # -- fusion --------------------------------------------------------------------------------------------------

    def absorb(self, after: "StoreOp | Requantize", point: int) -> "StoreOp | None":
        """This and what comes after it as one operation, if there is such a one: another operation, or the first stage
        of a copy. ``point``: the zero point of that first stage.
        """
        return None

    def applied_to(self, source: Tensor) -> Self | None:
        """This with ``source``, which is no longer in memory, as its `source`; None if it cannot be that."""
        return self

    def swapped(self, source: Tensor, tensors: Mapping[str, Tensor]) -> Self | None:
        """This with ``source``, which it is applied to, and the tensor that it reads beside exchanged."""
        return None

    # -- instructions --------------------------------------------------------------------------------------------

    def encode(self, *, broadcast: bool) -> dict[str, int]:
        """Fields of its instruction; ``broadcast``: the other operand is one number for all pixels of a channel.

        One that has `constants` has a field ``load``, one that reads two rows ``row_words``: both are 0 here.
        """
        return {}

    def constants(self, beat_bytes: int) -> np.ndarray | None:
        """Beats, uint8 (beats, beat_bytes), that the store engine takes from the side ring with ``load``."""
        return None
