"""Presets of machines: how large one is unless something else is asked for, and which of them a machine is."""

from boards.board import Board
from cores.config import ALL_PRESET_MACS, PURPOSES, ConfigError, NpuConfig

__all__ = ["USUAL_MACS", "default_macs", "preset_of"]

#: Multiply-accumulates a cycle of a machine of which nothing is said.
USUAL_MACS = 256


def default_macs(purpose: str, usual: int = USUAL_MACS) -> int:
    """``usual``, or the most of a preset for ``purpose`` (of `PURPOSES`) where there is none of so many."""
    able = [macs for macs in ALL_PRESET_MACS if _is_there(macs, purpose)]
    return usual if usual in able or not able else max(able)


def preset_of(board: Board, config: NpuConfig) -> str | None:
    """What the preset is for that, with units at their usual settings, is this machine; None where there is none."""
    return next((purpose for purpose in PURPOSES if _is_preset(board, config, purpose)), None)


def _is_there(macs: int, purpose: str) -> bool:
    try:
        NpuConfig.preset(macs, purpose)
    except ConfigError:
        return False
    return True


def _is_preset(board: Board, config: NpuConfig, purpose: str) -> bool:
    try:
        fields = board.config(config.macs, purpose).feature_fields(config.features)
        return board.config(config.macs, purpose, **fields) == config
    except ConfigError:
        return False
