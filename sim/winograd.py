"""Winograd tiles (docs/architecture.md, "Winograd tiles") in the functional simulator: loading and storing them."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from cores.arch.error_codes import ErrorCode
from cores.arch.instruction import Instruction
from cores.arch.isa import MAX_TILE_COLS
from cores.arch.numerics import POSITIONS

from . import golden
from .errors import MachineError
from .machine import Machine

__all__ = ["check_tiles", "tile_places", "write_tiles"]


def check_tiles(machine: Machine, index: int, geometry: Instruction, tiles: Instruction, instruction: Instruction,
                rows: int, cols: int) -> None:
    """Raise BUFFER unless a padded box of ``rows`` x ``cols`` pixels makes tiles, and the buffer has their entries."""
    if rows < 4 or rows % 2 or cols != 2 * tiles["tile_cols"] + 2 or tiles["tile_cols"] > MAX_TILE_COLS:
        raise MachineError(ErrorCode.BUFFER, index,
                           f"a box of {rows}x{cols} pixels does not make rows of {tiles['tile_cols']} tiles")
    last = (rows // 2 - 1) * tiles["tile_cols"] - 1
    machine.check_entries(index, instruction["buf_base"] + (instruction["blocks"] - 1) * geometry["buf_block_pitch"]
                          + (POSITIONS - 1) * tiles["position_pitch"] + last // machine.config.banks)


def write_tiles(machine: Machine, index: int, geometry: Instruction, tiles: Instruction, instruction: Instruction,
                box: np.ndarray) -> None:
    """LOAD_ACT after LOAD_WINOGRAD: the tiles of a padded box (blocks, rows, cols, tn), transformed, to the buffer.

    `check_tiles` has to have passed.
    """
    config = machine.config
    shifts = None
    if config.winograd == 1:
        shifts = [tiles["shifts"] >> 2 * position & 3 for position in range(POSITIONS)]
        machine.require(max(shifts) < 3, index, "a shift of 3")
    views = sliding_window_view(box, (4, 4), axis=(1, 2))[:, ::2, ::2]
    blocks, count = len(views), views.shape[1] * views.shape[2]
    # (blocks, tiles, tn, 4, 4) -> (blocks, positions, tiles, tn)
    values = golden.winograd_input(views, shifts)
    values = values.reshape(blocks, count, config.ic_lanes, POSITIONS).transpose(0, 3, 1, 2)
    tile = np.arange(count)
    entries = (instruction["buf_base"] + np.arange(blocks)[:, None, None] * geometry["buf_block_pitch"]
               + np.arange(POSITIONS)[:, None] * tiles["position_pitch"] + tile // config.banks)
    places = entries + tile % config.banks * config.input_depth
    if machine.strict:
        machine.hazards.load_writes(index, places)
    machine.put(index, places, values)


def tile_places(machine: Machine, index: int, geometry: Instruction, rows: int,
                cols: int) -> tuple[np.ndarray, np.ndarray]:
    """Of every output pixel the places of the nine sums that it is made of, (pixels, groups, 9), and their signs.

    ``rows``, ``cols``: of output pixels.
    """
    config = machine.config
    across, lanes = -(-cols // 2), config.pixel_lanes
    machine.check_words(index, -(-rows // 2) * across // lanes)     # of one position: before all take memory
    y, x = np.divmod(np.arange(rows * cols), cols)
    tile = y // 2 * across + x // 2
    nth = np.arange(3)
    # Rows k and l of A^T: three neighbouring positions from k on, the last two negative if k = 1.
    position = 4 * (y % 2 + nth[:, None])[:, None] + (x % 2 + nth[:, None])[None]
    signs = np.where(nth[:, None] * (y % 2), -1, 1)[:, None] * np.where(nth[:, None] * (x % 2), -1, 1)[None]
    word = position * geometry["position_words"] + tile // lanes
    machine.check_words(index, int(word.max()) + 1)
    pixel = word * lanes + tile % lanes
    places = pixel.reshape(-1, rows * cols).T[:, None, :] * config.oc_groups + np.arange(config.oc_groups)[:, None]
    return places, signs.reshape(-1, rows * cols).T
