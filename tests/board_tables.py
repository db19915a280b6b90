"""The tables at the head of docs/boards/*.md: what the files of the boards say.

    python -m tests.board_tables

writes them anew; `tests/boards/test_pages.py` compares.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from boards.board import Board
from boards.registry import BOARDS
from cores.arch.axi import LITE_ADDRESS_BITS
from tests import ROOT

__all__ = ["FOLDER", "boards_of", "page"]

FOLDER = ROOT / "docs" / "boards"

_PLACE = re.compile(r"(<!-- boards: (.+?); python -m tests\.board_tables -->\n).*?(<!-- end of boards -->\n)", re.S)


def _interrupt(board: Board) -> str:
    tree = board.linux
    return "" if tree is None else f"`<0 {tree.interrupt} 4>` of `&{tree.interrupt_controller}`"


#: What a line is about -> what a board has there; lines that no board has anything in are left out.
_FACTS: Mapping[str, Callable[[Board], str]] = {
    "`--board`": lambda board: f"`{board.name}`",
    "device": lambda board: board.part,
    "in it": lambda board: ", ".join(f"{count:,} {name}" for name, count in board.resources.items()),
    "clock of the project, unless `--clock` says otherwise": lambda board: f"{board.clock_mhz:g} MHz",
    "registers": lambda board: "" if board.registers_base is None else (
        f"{board.registers_base:#010x}, {1 << LITE_ADDRESS_BITS - 10} KiB"),
    "interrupt, in the device tree": _interrupt,
    "bitstream, as Linux takes it": lambda board: "" if board.linux is None else f"`{board.linux.bitstream}`",
    "memory": lambda board: board.memory.device,
    "its rate for long bursts": lambda board: (
        f"{board.memory.sustained / 1e9:.2f} GB/s, {board.memory.efficiency_basis}"),
    "where a package looks for the device": lambda board: f"`{board.driver_device}`",
}


def boards_of(path: Path) -> list[Board]:
    """The boards that a page names. Raises ValueError for a page without a place for their table."""
    found = _PLACE.search(path.read_text())
    if found is None:
        raise ValueError(f"{path} has no <!-- boards: NAMES; ... --> with <!-- end of boards --> after it")
    return [BOARDS[name] for name in found[2].split(", ")]


def page(path: Path) -> str:
    """The page's text with the table as it must be. Raises ValueError as `boards_of`."""
    boards = boards_of(path)
    rows = [[name, *(fact(board) for board in boards)] for name, fact in _FACTS.items()]
    head = [["", *(board.title for board in boards)], ["---"] * (len(boards) + 1)]
    lines = [*head, *(row for row in rows if any(row[1:]))]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return _PLACE.sub(lambda place: f"{place[1]}\n{table}\n\n{place[3]}", path.read_text())


if __name__ == "__main__":
    for one in sorted(FOLDER.glob("*.md")):
        if "<!-- boards:" in one.read_text():
            one.write_text(page(one))
