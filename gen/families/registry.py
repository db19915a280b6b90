"""The families that boards can name: those that this package's modules and folders describe."""

import importlib
import pkgutil
from collections.abc import Mapping, Sequence

import gen.families
from boards.board import Board
from boards.registry import BOARDS, BoardFileError

from .family import Family

__all__ = ["FAMILIES", "find_families", "get_family", "require_known_device"]

#: What a family's module calls it.
_FAMILY = "FAMILY"


def find_families(package: str, paths: Sequence[str]) -> dict[str, Family]:
    """Name -> family, of all modules of ``package`` in ``paths`` that have a ``FAMILY``, in the modules' order.

    Raises ValueError where two families have one name.
    """
    found: dict[str, Family] = {}
    for module in pkgutil.iter_modules(paths, f"{package}."):
        if module.name == __name__:
            continue
        family = getattr(importlib.import_module(module.name), _FAMILY, None)
        if family is None:
            continue
        if family.name in found:
            raise ValueError(f"{module.name}: there is a family {family.name!r} already")
        found[family.name] = family
    return found


FAMILIES: Mapping[str, Family] = find_families(gen.families.__name__, gen.families.__path__)


def require_known_device(board: Board) -> None:
    """Raises BoardFileError for a board of a family that is not there, or with resources by names that are not its
    family's.
    """
    if board.family not in FAMILIES:
        raise BoardFileError(f"board {board.name!r}: family must be one of {', '.join(FAMILIES)}, not {board.family!r}")
    expected = FAMILIES[board.family].resources
    if set(board.resources) != set(expected):
        raise BoardFileError(f"board {board.name!r}: resources of the family {board.family} are "
                             f"{', '.join(expected)}, not {', '.join(board.resources)}")


for _board in BOARDS.values():
    require_known_device(_board)


def get_family(name: str) -> Family:
    """Raises ValueError for a family that is not known; the message lists those known."""
    if name not in FAMILIES:
        raise ValueError(f"family must be one of {', '.join(FAMILIES)}, not {name!r}")
    return FAMILIES[name]
