"""Board descriptions, against amaranth-boards where it knows the board, and how they are found."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from boards.board import Board
from boards.registry import BOARDS, OWN_BOARDS, BoardError, BoardFileError, find_boards, get_board, own_folders
from cores.config import PRESET_MACS, ConfigError
from gen.families.registry import require_known_device
from tests import ROOT


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
    with pytest.raises(BoardError, match=(
            rf"^unknown board 'de1'; known: {', '.join(BOARDS)} \(and those in folders that {OWN_BOARDS} names\)$")):
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
    with pytest.raises(BoardFileError, match="/b_board.py: there is a board 'mine' already$"):
        find_boards("more_boards", [str(package)])


@pytest.mark.parametrize("text, said", [
    ("BOARDS = (", ", line 1: '(' was never closed"),
    ("from boards.board import Board\nBOARDS = (Board(name='x'),)", ", line 2: .*missing 10 required keyword-only .*"),
    (_NEW.replace('name="mine"', "clock=3"), ", line 4: .*unexpected keyword argument 'clock'"),
    (_NEW.replace("),)", "))"), ": BOARDS must be a tuple of boards; that of one is (Board(...),)"),
    ("raise RuntimeError", ", line 1: RuntimeError"),
    ("\nimport sys\nsys.exit(0)", ", line 3: it ends the program"),
    ("BOARDS = ()", ": BOARDS is empty"),
    ("BOARD = ()", ": it has no BOARDS, a tuple of boards; a file that describes none has a name that begins with _"),
])
def test_a_file_that_describes_no_board(text: str, said: str, package: Path):
    (package / "helper.py").rename(package / "_helper.py")
    (package / "mine.py").write_text(text)
    words = re.escape(said).replace(r"\.\*", ".*")
    with pytest.raises(BoardFileError, match=f"^{re.escape(str(package / 'mine.py'))}{words}$"):
        find_boards("more_boards", [str(package)], [str(package)])


def test_a_device_that_its_family_does_not_know():
    board = get_board("zu3eg")
    with pytest.raises(BoardFileError, match="board 'zu3eg': family must be one of .*xcup, not 'zynq'"):
        require_known_device(replace(board, family="zynq"))
    with pytest.raises(BoardFileError, match="the family xcup are lut, ff, dsp, bram36, not lut, bram"):
        require_known_device(replace(board, resources={"lut": 1, "bram": 2}))


def test_boards_in_a_folder_of_ones_own(tmp_path: Path):
    """Named as a variable of the environment, by any command, in any folder; what is wrong there is one line."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "mine.py").write_text(_NEW)
    page = (ROOT / "docs" / "boards.md").read_text()
    (example,) = re.findall(r"```python\n# ~/my-boards/zybo.py\n(.*?)```", page, re.S)
    (folder / "zybo.py").write_text(example)

    def asked(named: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "gen", "boards", "--json"], cwd=tmp_path, capture_output=True,
                              text=True, env={**os.environ, OWN_BOARDS: named})

    found = asked(str(folder))
    assert found.returncode == 0, found.stderr
    boards = {board["name"]: board for board in json.loads(found.stdout)["boards"]}
    assert set(boards) == {*BOARDS, "mine", "zybo"}
    assert boards["zybo"]["memory"]["sustained"] > 2 * get_board("zynq7020").memory.sustained
    (folder / "mine.py").write_text(_NEW.replace("_KNOWN[0]", "_KNOWN[9]"))
    wrong = asked(str(folder))
    assert (wrong.returncode, wrong.stderr.count("\n")) == (1, 1)
    assert wrong.stderr == f"gen boards: error: {folder}/mine.py, line 4: tuple index out of range [bad-board]\n"
    (folder / "mine.py").write_text(_NEW.replace("BOARDS = (", "BORADS = ("))
    for named in (str(folder), "mine/"):
        assert asked(named).stderr.startswith(f"gen boards: error: {folder}/mine.py: it has no BOARDS")
    with pytest.raises(BoardFileError, match=f"^{OWN_BOARDS}: there is no folder nowhere$"):
        own_folders("nowhere")
    assert not (folder / "__pycache__").exists()    # nor could what is there be of an earlier file
    (folder / "zu3eg.py").touch()
    with pytest.raises(BoardFileError, match="zu3eg.py has the name of a file of npugen's; give it another$"):
        own_folders(str(folder))
    (folder / "zu3eg.py").unlink()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "zybo.py").touch()
    with pytest.raises(BoardFileError, match=f"other/zybo.py has the name of a file in {folder}; give it another$"):
        own_folders(os.pathsep.join([str(folder), str(tmp_path / "other")]))
