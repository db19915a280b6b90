"""What synthesis has found of a machine, for reports that cannot wait for it."""

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from boards.board import Board
from cores.config import NpuConfig
from gen.files.results import read_entry, write_entry
from sim.folders import cache_folder

from .hardware import delay_model_digest, hardware_digest

if TYPE_CHECKING:
    from .synth import Report
    from .timing import TimingReport

__all__ = ["Synthesis", "entry_of", "remember_synthesis", "synthesis_of"]


@dataclass(frozen=True, kw_only=True)
class Synthesis:
    """``totals``: resource -> count, as `gen.hw.synth.Report` has them; ``levels`` and ``estimated_mhz``: as
    `gen.hw.timing.TimingReport` has them.
    """

    totals: dict[str, float]
    levels: int
    estimated_mhz: float


def entry_of(board: Board, config: NpuConfig, ending: str) -> Path:
    """The file (`gen.files.results`) of what is remembered of a machine on a board, with the hardware as it is."""
    what = "\0".join([board.family, board.part, config.to_json(), hardware_digest(board.family)])
    return cache_folder() / "synth" / f"{hashlib.sha256(what.encode()).hexdigest()[:32]}.{ending}.kept"


def remember_synthesis(board: Board, config: NpuConfig, area: "Report", timing: "TimingReport") -> None:
    """For `synthesis_of`, and for `gen.hw.clock.clock_of`."""
    found = Synthesis(totals=area.totals, levels=timing.levels, estimated_mhz=timing.estimated_mhz)
    with suppress(OSError):     # reports go on with estimates
        write_entry(_entry(board, config), json.dumps(asdict(found)))


def synthesis_of(board: Board, config: NpuConfig) -> Synthesis | None:
    """As ``build --synth`` has found it; None where it has not been run."""
    with suppress(OSError, ValueError, TypeError):
        return Synthesis(**json.loads(read_entry(_entry(board, config))))
    return None


def _entry(board: Board, config: NpuConfig) -> Path:
    return entry_of(board, config, f"{delay_model_digest(board.family)[:16]}.machine")
