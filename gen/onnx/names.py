"""Names that nothing else has."""

from collections.abc import Container
from itertools import chain, count

__all__ = ["unique"]


def unique(wanted: str, taken: Container[str]) -> str:
    """``wanted``, with a number after it where that is taken."""
    return next(n for n in chain([wanted], (f"{wanted}_{i}" for i in count(2))) if n not in taken)
