"""Depthwise layers in windows: each channel block is an output tile."""

from collections.abc import Iterator, Sequence

from gen.lowering.tiles import Tiles
from gen.mapping.depthwise import WindowGeometry
from gen.mapping.pack import PackedWeights
from gen.tiling.schedule import Plan

__all__ = ["window_tiles", "windows"]


def windows(tiles: Tiles, index: int, plan: Plan, packed: PackedWeights) -> None:
    """Emit layer ``index``."""
    for _ in window_tiles(tiles, index, plan, packed):
        pass


def window_tiles(tiles: Tiles, index: int, plan: Plan, packed: PackedWeights,
                 local: Sequence[tuple[int, int]] | None = None) -> Iterator[int]:
    """Emit a layer's output tiles, one each time, and give their numbers.

    ``local``: for each part of the windows, where in the input buffer it goes, as in `OutputTile`.
    """
    geometry = plan.geometry
    assert isinstance(geometry, WindowGeometry)
    first_part = 0
    for window in plan.windows:
        parts = geometry.parts(window, tiles.config)
        for blocks in tiles.output_blocks(index, plan.chunk):
            room = tiles.chunks.ring.take(window.entries * len(blocks))
            for number, rows in enumerate(parts, start=first_part):
                chunk = tiles.chunks.load(index, geometry, rows, blocks, packed.tiles[blocks.start], room)
                for block in blocks:
                    tile = tiles.begin(index, geometry, rows, range(block, block + 1),
                                       local=None if local is None else local[number])
                    for part in packed.tiles[block]:
                        tile.compute(part, chunk, row=geometry.first_row(window, rows))
                    # The last of them remains.
                    chunk.place.last_reader = tiles.last_compute
                    tile.end()
                    if local is not None:
                        # Its parameters are few, and should not queue behind the next blocks' pixels.
                        tiles.stores.flush(tiles.stores.opened - 1)
                    yield tiles.stores.opened - 1
        first_part += len(parts)
