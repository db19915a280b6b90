"""Machines: chosen, described, and written as Verilog with all that goes with it."""

import dataclasses
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from amaranth.hdl import UnusedElaboratable

import cores
from boards.board import Board
from boards.clock import Clock
from boards.presets import default_macs
from boards.registry import get_board
from cores.config import COMPUTING_FEATURES, PURPOSES, NpuConfig, features_together
from gen.deploy.build_files import build_files
from gen.explore.choice import choose_for
from gen.explore.models import read_model_file
from gen.files.write import write_file
from gen.hw.area import Area, area_of
from gen.hw.clock import clock_of
from gen.run.calibration import Calibration

__all__ = ["Machine", "build", "machine", "machine_for"]

#: Modules of the hardware, as warnings name them.
_SOURCES = re.escape(str(Path(cores.__file__).resolve().parents[1]))


@dataclass(frozen=True)
class Machine:
    """A machine, ``config``, and the board that it is for."""

    board: Board
    config: NpuConfig

    def __str__(self) -> str:
        return f"{self.board.name}, {self.config.macs} MACs, features {', '.join(self.config.features) or 'none'}"

    @property
    def clock(self) -> Clock:
        """As place and route or synthesis has found it for this machine, else the board's target; it says which."""
        return clock_of(self.board, self.config)

    @property
    def area(self) -> Area:
        """What it takes of the board's device: as synthesised, else estimated; it says which."""
        return area_of(self.config, self.board.family)


def machine(board: str = "zu3eg", macs: int | None = None, *, features: Sequence[str] | Literal["none", "all"] = "none",
            purpose: str = PURPOSES[0], **fields: int) -> Machine:
    """A machine by its size and its optional units.

    Args:
        board: its name; the command ``boards`` lists them.
        macs: int8 multiply-accumulates a cycle, of a preset; None: as many as ``--macs`` has by default for this
            purpose.
        features: names of optional units, as ``--features`` takes them; ``all``: as there, in a machine of these
            lanes.
        purpose: ``sparse``, ``dense`` or ``tiny``, what the preset's lanes are for.
        fields: of `cores.config.NpuConfig`, in place of the preset's.

    Raises ConfigError for what cannot be built, BoardError for an unknown board.
    """
    where = get_board(board)
    macs = default_macs(purpose) if macs is None else macs

    def made(names: Sequence[str]) -> NpuConfig:
        return where.config(macs, purpose, **{**where.config(macs, purpose).feature_fields(names), **fields})

    if features == "all":
        return Machine(where, made(features_together(made, COMPUTING_FEATURES)[0]))
    return Machine(where, made(() if features == "none" else (features,) if isinstance(features, str) else features))


def machine_for(model: str | Path, board: str = "zu3eg", macs: int = 256, *,
                calibrate: str | Path | None = None) -> Machine:
    """The machine of ``macs`` multiply-accumulates a cycle on which a model is fastest, with the units that pay.

    By the time model and the area model; a minute or more for a large model.

    Args:
        model: an ONNX file, quantised, or float with ``calibrate``.
        board: its name.
        macs: of a preset.
        calibrate: samples to quantise on, as for `quantize`.

    Raises GraphError, FloatModelError, ExploreError, OSError.
    """
    where = get_board(board)
    calibration = None if calibrate is None else Calibration(Path(calibrate))
    file, _ = read_model_file(Path(model), calibration, {})
    chosen = choose_for(file, where, {"macs": macs}).chosen
    return machine(board, macs, features=chosen.features, purpose=chosen.purpose)


def build(machine: Machine, folder: str | Path, *, clock_mhz: float | None = None) -> list[Path]:
    """Write the Verilog, its register map and driver header, and the vendor's project.

    Args:
        machine: what is built.
        folder: where the files go; files of the same names are replaced.
        clock_mhz: of the project, in place of the board's target.

    Returns the files. Raises OSError.
    """
    board = machine.board if clock_mhz is None else dataclasses.replace(machine.board, clock_mhz=clock_mhz)
    # Its ports are read off components that are never elaborated, which Amaranth reports some time later.
    warnings.filterwarnings("ignore", category=UnusedElaboratable, module=_SOURCES)
    paths = []
    for name, content in build_files(board, machine.config).items():
        write_file(Path(folder) / name, content)
        paths.append(Path(folder) / name)
    return paths
