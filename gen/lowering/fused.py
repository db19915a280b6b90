"""Depthwise layers in windows and the pointwise ones behind them, which read the result from the input buffer."""

from gen.lowering.chunks import Chunk
from gen.lowering.tiles import Tiles
from gen.lowering.windows import window_tiles
from gen.mapping.fusion import FusedPlan
from gen.mapping.pack import PackedWeights

__all__ = ["fused"]


def fused(tiles: Tiles, index: int, plan: FusedPlan, windows: PackedWeights, packed: PackedWeights) -> None:
    """Emit layers ``index`` and ``index + 1``, whose weights are ``windows`` and ``packed``."""
    config, pointwise, blocks, ring = tiles.config, plan.pointwise, len(windows.tiles), tiles.chunks.ring
    out_blocks = tiles.output_blocks(index + 1, config.oc_groups)
    ring.limit = config.input_depth - plan.places * plan.place_entries
    bases = [ring.limit + unit % plan.places * plan.place_entries for unit in range(len(pointwise.windows))]
    local = [(window.entries, base) for window, base in zip(pointwise.windows, bases, strict=True)]
    coming = window_tiles(tiles, index, plan.depthwise, windows, local)
    made: list[int] = []    # numbers of the depthwise output tiles so far
    for unit, (window, base) in enumerate(zip(pointwise.windows, bases, strict=True)):
        place, _ = ring.take_at(base, plan.place_entries)
        chunk = Chunk(range(blocks), place, -1)
        for number, passes in enumerate(packed.tiles):
            tile = tiles.begin(index + 1, pointwise.geometry, window, out_blocks[number],
                               narrow=pointwise.narrow and number == len(packed.tiles) - 1)
            low = 0
            for count, high in plan.pieces(unit, number):
                # Between parts of this tile, which keeps its bank, others pass through the other one.
                while len(made) < count:
                    made.append(next(coming))
                for part in tiles.weights.cut(pointwise.geometry, passes, range(low, high)):
                    tile.compute(part, chunk, needed=made[unit * blocks + part.block + part.blocks - 1])
                low = high
            tile.end()
        place.last_reader = tiles.last_compute
    ring.limit = config.input_depth
