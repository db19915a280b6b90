"""The clock that reports reckon with: what has been measured of this very machine, else the board's target."""

import json
from contextlib import suppress

from boards.board import Board
from boards.clock import Clock
from cores.config import NpuConfig
from gen.files.results import read_entry, write_entry

from .remembered import entry_of, synthesis_of

__all__ = ["clock_of", "remember_route"]

#: Ending of the entry with what a place-and-route has reached.
_ROUTED = "routed"


def remember_route(board: Board, config: NpuConfig, mhz: float) -> None:
    """A clock that was placed and routed, for `clock_of`."""
    with suppress(OSError):     # reports go on with what else is known
        write_entry(entry_of(board, config, _ROUTED), json.dumps(mhz))


def clock_of(board: Board, config: NpuConfig) -> Clock:
    """Of ``config`` on ``board``: placed and routed, if it has been; else as synthesis estimates; else the target."""
    with suppress(OSError, ValueError, TypeError):
        return Clock(float(json.loads(read_entry(entry_of(board, config, _ROUTED)))), "placed and routed")
    found = synthesis_of(board, config)
    return Clock(found.estimated_mhz, "estimated") if found else Clock(board.clock_mhz, "target")
