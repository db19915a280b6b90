"""The boards that can be named on the command line: those that the files of this package describe, and the user's."""

import importlib
import os
import pkgutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import boards
from boards.board import Board
from cores.errors import ArgumentError, NpugenError

__all__ = ["BOARDS", "BoardError", "BoardFileError", "OWN_BOARDS", "find_boards", "get_board", "own_folders"]

#: What a board's file calls its boards.
_BOARDS = "BOARDS"
#: The environment's variable that names folders with files of further boards, as PATH does.
OWN_BOARDS = "NPUGEN_BOARDS"


class BoardError(ArgumentError):
    """An unknown board; the message lists those known."""

    code = "unknown-name"


class BoardFileError(NpugenError):
    """A file that describes no board; the message says which, and why."""

    code = "bad-board"


def find_boards(package: str, paths: Sequence[str]) -> dict[str, Board]:
    """Name -> board, of all modules of ``package`` in ``paths`` that have a tuple ``BOARDS``, in the modules' order.

    Raises BoardFileError for a module that cannot be imported, and for what is no board or has a known one's name.
    """
    found: dict[str, Board] = {}
    for module in pkgutil.iter_modules(paths, f"{package}."):
        if module.name == __name__:
            continue
        for board in _described(module.name):
            if board.name in found:
                raise BoardFileError(f"{module.name}: there is a board {board.name!r} already")
            found[board.name] = board
    return found


def _described(name: str) -> Iterator[Board]:
    try:
        described = getattr(importlib.import_module(name), _BOARDS, ())
    except Exception as error:      # of a file that somebody has just written, whatever it is
        where = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise BoardFileError(f"{name}{where}: {str(error) or type(error).__name__}") from error
    if not isinstance(described, tuple) or not all(isinstance(board, Board) for board in described):
        raise BoardFileError(f"{name}: {_BOARDS} must be a tuple of boards; that of one is (Board(...),)")
    yield from described


def own_folders(named: str) -> list[str]:
    """The folders of `OWN_BOARDS`, which become part of the package.

    Raises BoardFileError for one that is not there, and for a file in it that would be hidden by one of ours.
    """
    ours = {module.name for module in pkgutil.iter_modules(boards.__path__)}
    folders = [folder for folder in named.split(os.pathsep) if folder]
    for folder in folders:
        if not Path(folder).is_dir():
            raise BoardFileError(f"{OWN_BOARDS}: there is no folder {folder}")
        for module in pkgutil.iter_modules([folder]):
            if module.name in ours:
                raise BoardFileError(f"{OWN_BOARDS}: {Path(folder, module.name)}.py has the name of a file of "
                                     "npugen's; give it another")
    return folders


boards.__path__ += [folder for folder in own_folders(os.environ.get(OWN_BOARDS, "")) if folder not in boards.__path__]
BOARDS = find_boards(boards.__name__, boards.__path__)


def get_board(name: str) -> Board:
    """Raises BoardError when there is no board of this name."""
    try:
        return BOARDS[name]
    except KeyError:
        raise BoardError(f"unknown board {name!r}; known: {', '.join(BOARDS)}") from None
