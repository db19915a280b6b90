"""A function of a layer's result, value by value."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from cores.arch.isa import Opcode
from cores.arch.numerics import TABLE_BYTES
from gen.ir.epilogue.base import EQUAL, Known, Range, Setting, StoreOp
from gen.ir.tensor import Requantize, Tensor, repeated_by
from sim.golden import requantize, upsample
from sim.store_operations import look_up
from sim.table import pack_table

__all__ = ["Table"]


@dataclass(frozen=True, eq=False)
class Table(StoreOp):
    """Each value is replaced by that of a table. See `sim.store_operations.look_up`.

    ``middle`` may be of fewer rows and columns than the output, as a model has it that looks up first and upsamples
    then (`repeated_by`). ``values``: (256,) int8, of -128 first.
    """

    middle: Tensor
    values: np.ndarray

    name, verb = "table", "looks up"
    opcode = Opcode.STORE_TABLE
    repeatable = True
    refusal = "needs a table of its function, which this machine does not have; --features table gives it one"

    @property
    def source(self) -> Tensor:
        return self.middle

    def eval(self, values: np.ndarray, others: Sequence[np.ndarray], point: int) -> np.ndarray:
        return look_up(values, self.values)

    def value_range(self, values: Range, others: Sequence[Range], point: int) -> Range:
        found = [look_up(np.arange(least, most + 1), self.values)
                 for least, most in zip(*(end.tolist() for end in values), strict=True)]
        return np.array([some.min() for some in found]), np.array([some.max() for some in found])

    def bounds(self, before: tuple[int, int]) -> tuple[int, int]:
        return int(self.values.min()), int(self.values.max())

    def distance(self, apart: np.ndarray, known: Known, setting: Setting) -> np.ndarray:
        """As far as entries are from each other that are within reach."""
        if not apart.any():
            return EQUAL
        values = known.values(self.middle.name).astype(np.int64)
        here, most = look_up(values, self.values).astype(np.int64), np.zeros(values.shape)
        for steps in range(1, ceil(float(apart.max())) + 1):
            reached = apart > steps - 1
            for side in (-steps, steps):
                there = look_up(np.clip(values + side, -128, 127), self.values)
                most = np.where(reached, np.maximum(most, np.abs(there - here)), most)
        return upsample(most, repeated_by(self.middle, setting.target))

    def problems(self, setting: Setting) -> Iterator[str]:
        middle, target = self.middle.shape, setting.target.shape
        sizes = zip(middle[1:], target[1:], setting.repeats, strict=True)
        if middle[0] != target[0] or any(
                not size or whole % size or factor % (whole // size) for size, whole, factor in sizes):
            yield f"what its table is of is {middle}, the output {target}"
        if self.values.shape != (TABLE_BYTES,) or self.values.dtype != np.int8:
            yield f"a table must be ({TABLE_BYTES},) int8, not {self.values.shape} {self.values.dtype}"

    def absorb(self, after: StoreOp | Requantize, point: int) -> StoreOp | None:
        """What makes each value of one, the same for all channels, goes into the entries."""
        if isinstance(after, Requantize):
            if not after.is_uniform:
                return None
            stage = after.bias[:1], after.multiplier[:1], after.shift[:1]
            values = requantize(self.values[None, None], *stage, after.zero_point, after.low, after.high).reshape(-1)
        elif after.others or not after.repeats == after.windows == (1, 1):
            return None
        else:
            values = after.eval(self.values, (), point)
        return replace(self, values=values)

    def applied_to(self, source: Tensor) -> "Table":
        return replace(self, middle=source)

    def encode(self, *, broadcast: bool) -> dict[str, int]:
        return {"load": 0}

    def constants(self, beat_bytes: int) -> np.ndarray:
        return pack_table(self.values, beat_bytes)
