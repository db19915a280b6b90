"""Board descriptions, against amaranth-boards where it knows the board, and how they are found."""

import json
import sys
from pathlib import Path

import pytest

from boards.board import Board
from boards.registry import BOARDS, BoardError, find_boards, get_board
from cores.config import PRESET_MACS, ConfigError


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_every_preset_is_a_configuration(board: Board):
    for macs in PRESET_MACS:
        config = board.config(macs)
        assert config.macs == macs
        assert (config.multiplier_width, config.address_width) == (board.multiplier_width, board.address_width)


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_device_is_that_of_the_amaranth_platform(board: Board):
    platform = board.platform()
    for fact in (platform.device, platform.package, platform.speed):
        assert fact.lower() in board.part.lower()
    assert board.part.lower().startswith(platform.device.lower())


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_a_board_is_a_json_object(board: Board):
    assert json.loads(json.dumps(board.to_dict()))["memory"]["sustained"] == board.memory.sustained


def test_config_takes_overrides_and_checks_them():
    assert get_board("zu3eg").config(256, acc_depth=1024).acc_depth == 1024
    with pytest.raises(ConfigError, match="acc_depth must be a power of two in 64..4096, not 3"):
        get_board("zu3eg").config(256, acc_depth=3)


def test_unknown_board_lists_the_known():
    with pytest.raises(BoardError, match=rf"^unknown board 'de1'; known: {', '.join(BOARDS)}$"):
        get_board("de1")
    assert {"zu3eg", "zcu102", "kv260", "zynq7020", "pynq-z2", "arty-z7-20", "cyclonev", "de1-soc", "ecp5", "ecpix-5"
            } <= set(BOARDS)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "more_boards"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "helper.py").write_text("SOMETHING = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == folder.name]:
        monkeypatch.delitem(sys.modules, name)
    return folder


_NEW = """
from dataclasses import replace
from boards.zu3eg import BOARDS as _KNOWN
BOARDS = (replace(_KNOWN[0], name="mine", title="Mine", part="xczu2eg-sbva484-1-i"),)
"""


def test_a_new_board_is_a_file(package: Path):
    (package / "mine.py").write_text(_NEW)
    found = find_boards("more_boards", [str(package)])
    assert list(found) == ["mine"] and found["mine"].config(64).macs == 64


def test_two_boards_of_one_name(package: Path):
    (package / "a_board.py").write_text(_NEW)
    (package / "b_board.py").write_text(_NEW)
    with pytest.raises(ValueError, match="more_boards.b_board: there is a board 'mine' already"):
        find_boards("more_boards", [str(package)])
