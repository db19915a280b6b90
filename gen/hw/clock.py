"""The clock that reports reckon with: what has been measured of this very machine, else the board's target."""

import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from boards.board import Board
from boards.clock import Clock
from cores.config import NpuConfig
from gen.files.write import write_file

from .remembered import entry_of

__all__ = ["clock_of", "remember_clock"]


def _entry(board: Board, config: NpuConfig) -> Path:
    return entry_of(board, config, "clock")


def remember_clock(board: Board, config: NpuConfig, clock: Clock) -> None:
    """For `clock_of`. One that is placed and routed is not replaced by an estimate."""
    if clock.basis == "estimated" and clock_of(board, config).basis == "placed and routed":
        return
    with suppress(OSError):     # reports go on with the board's target
        write_file(_entry(board, config), json.dumps(asdict(clock)))


def clock_of(board: Board, config: NpuConfig) -> Clock:
    """Of ``config`` on ``board``: as ``build`` has measured it, if it has, else the board's target."""
    with suppress(OSError, ValueError, TypeError):
        return Clock(**json.loads(_entry(board, config).read_text()))
    return Clock(board.clock_mhz, "target")
