"""--memory: what a simulated machine's memory is like."""

import argparse

from boards.board import Board
from boards.registry import BOARDS, BoardError, get_board
from gen.cli.errors import UsageError

__all__ = ["IDEAL", "add_memory_option", "chosen_memory"]

#: A beat a cycle in each direction, nothing else in the way.
IDEAL = "ideal"


def add_memory_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--memory", metavar="ideal|BOARD", default=IDEAL,
                        help="the memory that the machine works on: a beat a cycle each way, or a board's, with the "
                             "width of its port, shared data pins, rows and refreshes: "
                             f"{', '.join(BOARDS)} (default {IDEAL})")


def chosen_memory(arguments: argparse.Namespace) -> Board | None:
    """None for the ideal one. Raises UsageError for a board that is not known."""
    if arguments.memory == IDEAL:
        return None
    try:
        return get_board(arguments.memory)
    except BoardError as error:
        raise UsageError.of(error, f"--memory {arguments.memory}: {error}, or {IDEAL}") from None
