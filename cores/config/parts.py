"""Parts of the machine that an optional unit puts something else in the place of."""

from collections.abc import Mapping
from typing import TypeVar

from cores.config.core import Core

__all__ = ["part_of"]

_T = TypeVar("_T")


def part_of(config: Core, plain: type[_T], of_units: Mapping[str, type[_T]]) -> type[_T]:
    """What a machine has: that of the unit that it has, or what is ``plain``. Units by the field that says so.

    Two units that put something else in one place are an AssertionError: no machine can have both.
    """
    found = [part for field, part in of_units.items() if getattr(config, field)]
    assert len(found) <= 1, f"more than one unit in the place of {plain.__name__}"
    return found[0] if found else plain
