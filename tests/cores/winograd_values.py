"""Boxes of pixels that become transformed tiles, and the entries that are made of them."""

from typing import NamedTuple

import numpy as np

from cores.config import NpuConfig
from cores.load.winograd.winograd_lines import TilePixel
from sim.golden import winograd_input

__all__ = ["TileBox", "random_tile_box"]


class TileBox(NamedTuple):
    """A LOAD_ACT's pixels (blocks, rows, cols, lanes), what the transformer is told of it, and what it must make."""

    config: NpuConfig
    pixels: np.ndarray
    load: dict[str, int]

    @property
    def beats(self) -> list[int]:
        blocks, rows, cols, _ = self.pixels.shape
        layout = TilePixel(self.config)
        return [layout.const({
            "data": int.from_bytes(self.pixels[block, row, col].tobytes(), "little"), "row_end": col == cols - 1,
            "block_end": (row, col) == (rows - 1, cols - 1), "end": block == blocks - 1}).as_bits()
            for block, row, col in np.ndindex(blocks, rows, cols)]

    @property
    def entries(self) -> list[tuple[int, int, int, int]]:
        """(bank, address, data, post)."""
        config, load, banks = self.config, self.load, self.config.banks
        blocks, rows, cols, lanes = self.pixels.shape
        shifts = [load["shifts"] >> 2 * position & 3 for position in range(16)] if config.winograd == 1 else None
        mask, found = (1 << config.activation_bits) - 1, []
        for block, row, col in np.ndindex(blocks, rows // 2 - 1, cols // 2 - 1):
            tile = self.pixels[block, 2 * row:2 * row + 4, 2 * col:2 * col + 4].transpose(2, 0, 1)
            number = row * load["tile_cols"] + col
            place = load["buf_base"] + block * load["buf_block_pitch"] + number // banks
            for position, values in enumerate(winograd_input(tile, shifts).reshape(lanes, 16).T):
                data = sum((int(value) & mask) << lane * config.activation_bits for lane, value in enumerate(values))
                found.append((number % banks, place + position * load["position_pitch"], data, 0))
        return [*found[:-1], (*found[-1][:3], load["post_compute"])]


def random_tile_box(config: NpuConfig, rng: np.random.Generator, *, tiles: tuple[int, int] | None = None,
                    blocks: int | None = None, beyond: int | None = None, **load: int) -> TileBox:
    """``beyond``: its last entry is that many past the end of the input buffer."""
    rows, cols = tiles or rng.integers(1, 6, 2)
    blocks = blocks or int(rng.integers(1, 4))
    shape = (blocks, 2 * rows + 2, 2 * cols + 2, config.ic_lanes)
    pixels = rng.integers(-128, 128, shape, dtype=np.int8)
    if rng.integers(2):
        pixels = rng.choice(np.array([-128, 127], np.int8), shape)      # the largest sums
    words = -(-int(rows * cols) // config.banks)
    room = (config.input_depth - words) // (15 + blocks)
    pitches = [int(rng.integers(0, room + 1)) for _ in "pb"]
    spare = config.input_depth - words - 15 * pitches[0] - (blocks - 1) * pitches[1]
    base = int(rng.integers(0, spare + 1)) if beyond is None else spare + beyond
    shifts = sum(int(rng.integers(3)) << 2 * position for position in range(16))
    return TileBox(config, pixels, {
        "buf_base": base, "post_compute": int(rng.integers(2)), "buf_block_pitch": pitches[1], "shifts": shifts,
        "tile_cols": int(cols), "position_pitch": pitches[0], "index": int(rng.integers(1 << 24)), **load})
