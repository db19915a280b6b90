"""Row operations: what a machine makes of the channels of a pixel together. The one statement of their arithmetic.

Everything is exact. A row is a pixel's channels. docs/numerics.md has the formulas and how far they are from real ones.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from cores.arch.rows import (
    CENTRE_PLACES,
    COARSE,
    ENTRY_BITS,
    EPSILON_BITS,
    EPSILON_PLACES,
    FACTOR_TABLE,
    INDEX_BITS,
    MEAN_PLACES,
    SHIFTS,
)

__all__ = ["EXPONENTIAL_PLACES", "Rows", "exponentials", "moment_step", "moments"]

#: Places after the point of a Softmax's results.
EXPONENTIAL_PLACES = 22
#: Those of a normalisation's, but for the channels' number.
_MOMENT_PLACES = 17
#: `Rows.base` of exponentials, whose largest is one.
_EXPONENTIAL_BASE = 14
_FACTORS = np.array(FACTOR_TABLE)


@dataclass(frozen=True, eq=False)
class Rows:
    """What a machine does with rows: divides exponentials by their sum or, ``moments``, values less their mean by the
    root of their mean square.

    ``channels``: of a row. ``table``: uint16 (256,), the exponential of each difference to the maximum, modulo 256.
    Of moments: ``zero_point`` is subtracted first; ``centred`` says that a mean is, made of the sum by ``mean``, in
    1 / 2**`MEAN_PLACES`; ``epsilon`` is added to the squared channels' number times the variance, in
    1 / 2**`EPSILON_PLACES`. ``base``: the exponent for which nothing is shifted.
    """

    moments: int
    channels: int
    zero_point: int = 0
    centred: int = 0
    mean: int = 0
    epsilon: int = 0
    base: int = _EXPONENTIAL_BASE
    table: np.ndarray = field(default_factory=lambda: np.zeros(256, np.int64))

    @classmethod
    def of_fields(cls, fields: Mapping[str, int], table: np.ndarray) -> "Rows":
        """As a ROWS_SET and ROWS_TABLEs say."""
        return cls(**{name: fields[name] for name in cls._names()}, table=table)

    @classmethod
    def _names(cls) -> list[str]:
        return [one.name for one in dataclasses.fields(cls) if one.name != "table"]

    @property
    def fields(self) -> dict[str, int]:
        """Of the ROWS_SET."""
        return {name: int(getattr(self, name)) for name in self._names()}

    def centres(self, maxima: np.ndarray) -> np.ndarray:
        """What is subtracted from rows with these maxima."""
        return maxima.astype(np.int64) << CENTRE_PLACES

    def totals(self, values: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums of (..., channels, rows) values, and of their exponentials or squares, (..., rows) each."""
        if self.moments:
            less = values.astype(np.int64) - self.zero_point
            return less.sum(axis=-2) * self.centred, (less**2).sum(axis=-2)
        return np.zeros_like(centres), self._exponentials(values, centres).sum(axis=-2)

    def factors(self, centres: np.ndarray, totals: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, ...]:
        """What is subtracted from rows with these `totals`, what their values are multiplied by, and how far products
        are shifted.
        """
        sums, squares = totals
        number = squares
        if self.moments:
            number = (self.channels * squares - sums**2 << EPSILON_PLACES) + self.epsilon
            half = 1 << MEAN_PLACES - CENTRE_PLACES - 1
            means = sums * self.mean + half >> MEAN_PLACES - CENTRE_PLACES
            centres = means + (self.zero_point << CENTRE_PLACES)
        exponent = np.frexp(np.maximum(number, 1).astype(np.float64))[1].astype(np.int64) - 1
        place = exponent // 2 if self.moments else exponent
        behind = (2 * place + 2 if self.moments else place + 1) - INDEX_BITS
        index = np.where(behind < 0, number << np.maximum(-behind, 0), number >> np.maximum(behind, 0))
        found = _FACTORS[index + (0 if self.moments else 1 << INDEX_BITS)]
        shift = np.clip(place - self.base, 0, SHIFTS - 1)
        if self.moments:
            coarse = shift // COARSE
        else:       # of a sum of many exponentials one more, so that its factor keeps its bits
            coarse = np.where(shift >= COARSE, 3, 2)
            shift = shift - (coarse - 2) * COARSE
        return centres, found >> (shift % COARSE if self.moments else shift), coarse * COARSE

    def results(self, values: np.ndarray, centres: np.ndarray, factors: np.ndarray, shifts: np.ndarray) -> np.ndarray:
        """What becomes of (..., channels, rows) values."""
        if self.moments:
            numbers = (values.astype(np.int64) << CENTRE_PLACES) - centres[..., None, :]
        else:
            numbers = self._exponentials(values, centres)
        return numbers * factors[..., None, :] >> shifts[..., None, :]

    def of(self, values: np.ndarray) -> np.ndarray:
        """All passes: int64 of int8 (..., channels, rows)."""
        centres = self.centres(values.max(axis=-2))
        centres, factors, shifts = self.factors(centres, self.totals(values, centres))
        return self.results(values, centres, factors, shifts)

    def _exponentials(self, values: np.ndarray, centres: np.ndarray) -> np.ndarray:
        return self.table[values - (centres >> CENTRE_PLACES)[..., None, :] & 255]


def exponentials(channels: int, scale: float) -> Rows:
    """Softmax of ``channels`` values of step ``scale``; results in 1 / 2**`EXPONENTIAL_PLACES`."""
    less = -np.arange(256) % 256
    return Rows(0, channels, table=np.round(((1 << ENTRY_BITS) - 1) * np.exp(-scale * less)).astype(np.int64))


def moments(channels: int, scale: float, zero_point: int, epsilon: float, *, centred: bool) -> tuple[Rows, float]:
    """Normalisation of ``channels`` values of step ``scale``, and the step of its results.

    ``centred``: their mean is subtracted; ``epsilon`` is added to the mean of the squares. Raises ValueError for one
    that is beyond the numbers that the machine has roots of, beside the mean square of values over the whole range.
    """
    base = _places(channels) - 8 + EPSILON_PLACES // 2
    added, room = round(epsilon * (channels / scale) ** 2 * (1 << EPSILON_PLACES)), 1 << 2 * (base + SHIFTS)
    largest = min((1 << EPSILON_BITS) - 1, room - (channels**2 << 14 + EPSILON_PLACES))
    if added > largest:
        raise ValueError(f"epsilon is {added / largest:.3g} times the largest that it can be beside steps of "
                         f"{scale:.3g}")
    rows = Rows(
        1, channels, zero_point=0 if centred else zero_point,
        centred=int(centred), mean=min(round((1 << MEAN_PLACES) / channels), (1 << MEAN_PLACES) - 1) * centred,
        epsilon=added, base=base)
    return rows, moment_step(channels)


def moment_step(channels: int) -> float:
    """The step of the results of moments."""
    return channels * 2.0 ** -(_places(channels) + _MOMENT_PLACES)


def _places(channels: int) -> int:
    return (channels - 1).bit_length()
