"""The boards that can be named on the command line: those that the files of this package describe, and the user's."""

import importlib
import os
import pkgutil
import sys
import traceback
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
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


def find_boards(package: str, paths: Sequence[str], own: Collection[str] = ()) -> dict[str, Board]:
    """Name -> board, of all modules of ``package`` in ``paths`` that have a tuple ``BOARDS``, in the modules' order.

    Those in the folders ``own`` must have one, unless their names begin with an underscore. Raises BoardFileError, with
    the file's path, for one that cannot be imported, and for what is no board or has a known one's name.
    """
    found: dict[str, Board] = {}
    for module in pkgutil.iter_modules(paths, f"{package}."):
        if module.name == __name__:
            continue
        folder, name = Path(getattr(module.module_finder, "path", "")), module.name.rpartition(".")[2]
        path = folder / (f"{name}/__init__.py" if module.ispkg else f"{name}.py")
        with _unkept(str(folder) in own):
            described = _described(module.name, path, required=str(folder) in own and not name.startswith("_"))
        for board in described:
            if board.name in found:
                raise BoardFileError(f"{path}: there is a board {board.name!r} already")
            found[board.name] = board
    return found


@contextmanager
def _unkept(users: bool) -> Iterator[None]:
    """Python keeps no compiled form of what is imported from the ``users`` own folders: nothing is written there, and
    one of the same second and size would be taken for that of a file that was just changed.
    """
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, users or sys.dont_write_bytecode
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def _described(name: str, path: Path, *, required: bool) -> Sequence[Board]:
    try:
        described = getattr(importlib.import_module(name), _BOARDS, None)
    except (Exception, SystemExit) as error:    # of a file that somebody has just written, whatever it is
        raise BoardFileError(f"{path}{_line(error, path)}: {_words(error)}") from error
    if described is None and not required:
        return ()
    if described is None:
        raise BoardFileError(f"{path}: it has no {_BOARDS}, a tuple of boards; a file that describes none has a name "
                             "that begins with _")
    if not isinstance(described, tuple) or not all(isinstance(board, Board) for board in described):
        raise BoardFileError(f"{path}: {_BOARDS} must be a tuple of boards; that of one is (Board(...),)")
    if not described:
        raise BoardFileError(f"{path}: {_BOARDS} is empty")
    return described


def _line(error: BaseException, path: Path) -> str:
    """Where in the file it went wrong; "" if it did elsewhere."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f", line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f", line {lines[-1]}" if lines else ""


def _words(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return "it ends the program"
    return (error.msg if isinstance(error, SyntaxError) else str(error)) or type(error).__name__


def own_folders(named: str) -> list[str]:
    """The folders of `OWN_BOARDS`, as absolute paths, which become part of the package.

    Raises BoardFileError for one that is not there, and for a file that one of ours or of a folder before would hide.
    """
    taken = {module.name: "of npugen's" for module in pkgutil.iter_modules(boards.__path__)}
    folders = [folder for folder in dict.fromkeys(named.split(os.pathsep)) if folder]
    for folder in folders:
        if not Path(folder).is_dir():
            raise BoardFileError(f"{OWN_BOARDS}: there is no folder {folder}")
        for module in pkgutil.iter_modules([folder]):
            if module.name in taken:
                raise BoardFileError(f"{OWN_BOARDS}: {Path(folder, module.name)}.py has the name of a file "
                                     f"{taken[module.name]}; give it another")
            taken[module.name] = f"in {folder}"
    return [os.path.abspath(folder) for folder in folders]


_OWN = own_folders(os.environ.get(OWN_BOARDS, ""))
boards.__path__ += [folder for folder in _OWN if folder not in boards.__path__]
BOARDS = find_boards(boards.__name__, boards.__path__, _OWN)


def get_board(name: str) -> Board:
    """Raises BoardError when there is no board of this name."""
    try:
        return BOARDS[name]
    except KeyError:
        raise BoardError(f"unknown board {name!r}; known: {', '.join(BOARDS)} (and those in folders that {OWN_BOARDS} "
                         "names)") from None
