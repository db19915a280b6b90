"""The boards that can be named on the command line: those that the files of this package describe."""

import importlib
import pkgutil
from collections.abc import Sequence

import boards
from boards.board import Board
from cores.errors import ArgumentError

__all__ = ["BOARDS", "BoardError", "find_boards", "get_board"]

#: What a board's file calls its boards.
_BOARDS = "BOARDS"


class BoardError(ArgumentError):
    """An unknown board; the message lists those known."""

    code = "unknown-name"


def find_boards(package: str, paths: Sequence[str]) -> dict[str, Board]:
    """Name -> board, of all modules of ``package`` in ``paths`` that have a tuple ``BOARDS``, in the modules' order.

    Raises ValueError where two boards have one name.
    """
    found: dict[str, Board] = {}
    for module in pkgutil.iter_modules(paths, f"{package}."):
        if module.name == __name__:
            continue
        for board in getattr(importlib.import_module(module.name), _BOARDS, ()):
            if board.name in found:
                raise ValueError(f"{module.name}: there is a board {board.name!r} already")
            found[board.name] = board
    return found


BOARDS = find_boards(boards.__name__, boards.__path__)


def get_board(name: str) -> Board:
    """Raises BoardError when there is no board of this name."""
    try:
        return BOARDS[name]
    except KeyError:
        raise BoardError(f"unknown board {name!r}; known: {', '.join(BOARDS)}") from None
