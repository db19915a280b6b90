"""Checks of numbers that several parts of the IR share."""

from collections.abc import Iterator

from cores.arch.numerics import MAX_SHIFT, MIN_SHIFT, MULTIPLIER_BITS
from npudriver.steps import is_integer

__all__ = ["INT8", "are_integers", "range_problems", "scaling_problems"]

#: An activation, and a multiplier and a shift of either stage.
INT8 = (-128, 127)
_MULTIPLIER = (0, (1 << MULTIPLIER_BITS) - 1)
_SHIFT = (MIN_SHIFT, MAX_SHIFT)


def are_integers(value: object, count: int, low: int, high: int | None = None) -> bool:
    return isinstance(value, tuple) and len(value) == count and all(is_integer(item, low, high) for item in value)


def scaling_problems(multipliers: tuple[int, int], shifts: tuple[int, int]) -> Iterator[str]:
    """Of the least and the largest multiplier and shift of a stage."""
    for name, (least, most), (low, high) in (("multipliers", multipliers, _MULTIPLIER), ("shifts", shifts, _SHIFT)):
        if least < low or most > high:
            yield f"requantisation {name} must be in {low}..{high}, not {least}..{most}"


def range_problems(zero_point: int, low: int, high: int, bits: int) -> Iterator[str]:
    """Of a stage's zero point and clip bounds; ``bits``: those of its result."""
    if not is_integer(zero_point, *INT8):
        yield f"a stage's zero point must be int8, not {zero_point!r}"
    limit = 1 << bits - 1
    if not (is_integer(low, -limit) and is_integer(high, low, limit - 1)):
        yield f"clip bounds must be ordered integers in {-limit}..{limit - 1}, not {low!r}..{high!r}"
