"""Pool layers: a POOL and a STORE for each chunk of each window, or a POOL for each piece of one large window."""

from gen.ir.graph import Pool
from gen.lowering.tiles import Tiles
from gen.tiling.schedule import Plan

__all__ = ["pooling"]


def pooling(tiles: Tiles, index: int, plan: Plan) -> None:
    """Emit layer ``index``."""
    layer, geometry = tiles.graph.layers[index], plan.geometry
    assert isinstance(layer, Pool)
    for window in plan.windows:
        forms = [geometry.piece(window.y, window.x, *piece) for piece in plan.pieces]
        parts = [(form, form.window(0, 1, 0, 1, tiles.config)) for form in forms] or [(geometry, window)]
        for blocks in tiles.output_blocks(index, plan.chunk):
            tile = tiles.begin(index, geometry, window, blocks)
            for number, (form, box) in enumerate(parts, start=1):
                chunk = tiles.chunks.load(index, form, box, blocks)
                tile.pool(form, box, chunk, maximum=layer.maximum, first=number == 1, last=number == len(parts))
                chunk.place.last_reader = tiles.last_compute
