"""Board descriptions, against amaranth-boards where it knows the board."""

import pytest

from boards.registry import BOARDS, BoardError, get_board
from cores.config import PRESET_MACS, ConfigError
from gen.hw.families import FAMILIES

KNOWN_TO_AMARANTH = [board for board in BOARDS.values() if board.amaranth_platform]


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_every_preset_is_a_configuration(board):
    for macs in PRESET_MACS:
        config = board.config(macs)
        assert config.macs == macs
        assert (config.multiplier_width, config.address_width) == (board.multiplier_width, board.address_width)


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_resources_have_the_names_of_the_report(board):
    assert tuple(board.resources) == FAMILIES[board.family].resources


@pytest.mark.parametrize("board", KNOWN_TO_AMARANTH, ids=lambda board: board.name)
def test_device_is_that_of_amaranth_boards(board):
    platform = board.platform()
    assert board.part.lower().startswith(platform.device.lower())
    assert platform.speed.lower() in board.part.lower()


def test_config_takes_overrides_and_checks_them():
    assert get_board("zu3eg").config(256, acc_depth=1024).acc_depth == 1024
    with pytest.raises(ConfigError, match="acc_depth must be a power of two in 64..4096, not 3"):
        get_board("zu3eg").config(256, acc_depth=3)


def test_unknown_board_lists_the_known():
    with pytest.raises(BoardError, match=r"^unknown board 'de1'; known: zu3eg, zynq7020, cyclonev, ecp5$"):
        get_board("de1")
