"""Streams of numbers: their length, how much of them is made, and their bits."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from cores.arch.instruction import Instruction
from cores.arch.isa import Opcode, StepKind
from cores.arch.stochastic import (
    MAX_LENGTH_LOG,
    MIN_LENGTH_LOG,
    SUM_LOG,
    Sequence,
    bipolar_threshold,
    magnitude_threshold,
    sobol_numbers,
)

__all__ = ["Streams", "offsets", "selected_input", "shortened"]


@dataclass(frozen=True)
class Streams:
    """Streams of ``length`` bits, of which the first ``made`` (all, unless given) are made: early termination.

    Raises ValueError unless both are powers of two, ``length`` from 8 to 1024 and ``made`` from 8 to ``length``.
    """

    length: int
    made: int = field(default=0)

    def __post_init__(self) -> None:
        if not self.made:
            object.__setattr__(self, "made", self.length)
        for name, most in (("length", 1 << MAX_LENGTH_LOG), ("made", self.length)):
            value, least = getattr(self, name), 1 << MIN_LENGTH_LOG
            if not (least <= value <= most and value & (value - 1) == 0):
                raise ValueError(f"{name} must be a power of two from {least} to {most}, not {value!r}")

    @classmethod
    def of_fields(cls, fields: Mapping[str, int]) -> Self:
        """Those of a COMPUTE's ``length`` and ``made``."""
        return cls(*(1 << fields[name] + MIN_LENGTH_LOG for name in ("length", "made")))

    @property
    def fields(self) -> dict[str, int]:
        """What a COMPUTE says of them."""
        return {name: getattr(self, name).bit_length() - 1 - MIN_LENGTH_LOG for name in ("length", "made")}

    def shortened(self, shift: int) -> Self:
        """As register ``stream_shift`` makes them: by ``shift`` powers of two, where there are so many."""
        least = 1 << MIN_LENGTH_LOG
        return replace(self, length=max(self.length >> shift, least), made=max(self.made >> shift, least))

    @property
    def weight(self) -> int:
        """What one bit of a sum is worth: so many int8 products' units that ``made`` of them are 1.0."""
        return (1 << SUM_LOG) // self.made

    def numbers(self, sequence: Sequence) -> np.ndarray:
        """(made,) numbers of a shared sequence, of ``MAX_LENGTH_LOG`` bits."""
        return np.array(sobol_numbers(sequence)[:self.made])

    def thresholds(self, sequence: Sequence, *, bipolar: bool) -> np.ndarray:
        """(made,) thresholds of the bits, for magnitudes or for values plus 128."""
        threshold, log = bipolar_threshold if bipolar else magnitude_threshold, self.length.bit_length() - 1
        return np.array([threshold(int(number), log) for number in self.numbers(sequence)])

    def select(self) -> np.ndarray:
        """(made,) bool: the bits of a stream of one half, which choose between two streams."""
        return self.numbers(Sequence.SELECT) >= 1 << MAX_LENGTH_LOG - 1


def shortened(instruction: Instruction, shift: int) -> Instruction:
    """What a machine makes of a COMPUTE when register ``stream_shift`` has ``shift``; of others nothing."""
    if not shift or instruction.opcode != Opcode.COMPUTE or instruction["kind"] != StepKind.STOCHASTIC:
        return instruction
    shorter = {name: max(0, instruction[name] - shift) for name in ("length", "made")}
    return Instruction(instruction.opcode, **{**instruction.fields, **shorter})


def offsets(values: np.ndarray, *, bipolar: bool) -> np.ndarray:
    """What of int8 values is compared with thresholds: their magnitudes, or the values plus 128."""
    values = np.asarray(values, np.int16)
    return values + 128 if bipolar else np.abs(values)


def selected_input(streams: Streams, fan_in: int) -> np.ndarray:
    """(made,) input of the ``fan_in`` that a multiplexer tree lets through."""
    return streams.numbers(Sequence.SELECT) * fan_in >> MAX_LENGTH_LOG
