"""docs/boards: a page for every board, whose table is what its file says."""

from pathlib import Path

import pytest

from boards.registry import BOARDS
from tests import ROOT
from tests.board_tables import FOLDER, boards_of, page

PAGES = [path for path in sorted(FOLDER.glob("*.md")) if path.name != "linux.md"]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_table_is_that_of_the_boards(path: Path):
    assert path.read_text() == page(path), f"{path} is not up to date: run `python -m tests.board_tables`"


def test_every_board_has_a_page():
    """And the page of all boards leads there."""
    assert sorted(board.name for path in PAGES for board in boards_of(path)) == sorted(BOARDS)
    overview = (ROOT / "docs" / "boards.md").read_text()
    assert [path.name for path in sorted(FOLDER.glob("*.md")) if f"(boards/{path.name})" not in overview] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_commands_are_for_a_board_of_the_page(path: Path):
    names = {board.name for board in boards_of(path)}
    lines = [line.split() for line in path.read_text().splitlines() if line.startswith("    python -m gen")]
    assert len(lines) >= 3
    given = {words[words.index("--board") + 1] for words in lines if "--board" in words}
    assert given and given <= names


def test_a_page_without_a_place(tmp_path: Path):
    (tmp_path / "x.md").write_text("# X\n")
    with pytest.raises(ValueError, match="has no <!-- boards: NAMES"):
        page(tmp_path / "x.md")
