"""Pool layers: a POOL and a STORE for each chunk of each window."""

from gen.ir import Pool
from gen.lowering.tiles import Tiles
from gen.schedule import Plan

__all__ = ["pooling"]


def pooling(tiles: Tiles, index: int, plan: Plan) -> None:
    """Emit layer ``index``."""
    layer, geometry = tiles.graph.layers[index], plan.geometry
    assert isinstance(layer, Pool)
    for window in plan.windows:
        for blocks in tiles.output_blocks(index, plan.chunk):
            chunk = tiles.chunks.load(index, geometry, window, blocks)
            tiles.begin(index, geometry, window, blocks).pool(chunk, maximum=bool(layer.maximum))
            chunk.place.last_reader = tiles.last_compute
