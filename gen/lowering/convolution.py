"""Convolutions but those in windows: output tiles of ``oc_groups`` channel blocks, each over all that it reads.

Where the plan holds a window's input in the buffer, its first output tile loads it and the others find it there.
"""

from collections.abc import Sequence

from gen.ir.graph import Conv
from gen.lowering.chunks import Chunk
from gen.lowering.places import BufferRing
from gen.lowering.tiles import Tile, Tiles
from gen.mapping.pack import PackedWeights, Pass
from gen.tiling.geometry import MAX_BLOCKS, Window
from gen.tiling.schedule import Plan

__all__ = ["convolution"]


def convolution(tiles: Tiles, index: int, plan: Plan, packed: PackedWeights) -> None:
    """Emit layer ``index``."""
    layer, config = tiles.graph.layers[index], tiles.config
    assert isinstance(layer, Conv)
    in_blocks = plan.geometry.input_blocks(tiles.graph.tensors[layer.input].shape[0], config)
    if layer.name in tiles.signs:
        in_blocks = tiles.signs[layer.name].blocks
    sets = list(zip(tiles.output_blocks(index, config.oc_groups), packed.tiles, strict=True))
    for window in plan.windows:
        if plan.held:
            _begin_held(tiles.chunks.ring, config.input_depth, window.entries, in_blocks, plan.chunk)
        chunks: list[Chunk] = []
        for number, (blocks, passes) in enumerate(sets):
            last = number == len(sets) - 1
            tile = tiles.begin(index, plan.geometry, window, blocks, narrow=plan.narrow and last)
            if number == 0 or not plan.held:
                needed = blocks if layer.depthwise else range(in_blocks)
                chunks = _load_and_compute(tiles, tile, index, plan, window, passes, needed)
            else:
                # By chunks where their places are wanted for the next window's input.
                leaving = last and window is not plan.windows[-1]
                _compute_held(tiles, tile, plan, passes, chunks, by_chunk=leaving)
            if last or not plan.held:
                _release(chunks, tiles.last_compute)
            tile.end()


def _load_and_compute(tiles: Tiles, tile: Tile, index: int, plan: Plan, window: Window, passes: Sequence[Pass],
                      needed: range) -> list[Chunk]:
    """The first (or only) output tile of a window: load input blocks ``needed`` chunk by chunk and compute."""
    chunks: list[Chunk] = []
    for low in needed[::plan.chunk]:
        blocks = range(low, min(low + plan.chunk, needed.stop))
        work = tiles.weights.cut(plan.geometry, passes, blocks)
        if not work and not plan.held:
            continue
        chunk = tiles.chunks.load(index, plan.geometry, window, blocks, work)
        chunks.append(chunk)
        for part in work:
            tile.compute(part, chunk)
        if not plan.held:
            chunk.place.last_reader = tiles.last_compute
    return chunks


def _compute_held(tiles: Tiles, tile: Tile, plan: Plan, passes: Sequence[Pass], chunks: Sequence[Chunk], *,
                  by_chunk: bool) -> None:
    """A further output tile of a window whose input is held in ``chunks``; frees each when done if ``by_chunk``."""
    for chunk in chunks if by_chunk else _joined(chunks):
        for part in tiles.weights.cut(plan.geometry, passes, chunk.blocks):
            tile.compute(part, chunk)
        # Before the tile's first COMPUTE there is none of its own to wait for: leave it to the tile's end.
        if by_chunk and tile.begun:
            chunk.place.last_reader = tiles.last_compute


def _joined(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Chunks that lie one behind the other in the buffer as one: one COMPUTE can cover them."""
    joined: list[Chunk] = []
    end = -1    # of the last one's places
    for chunk in chunks:
        before = joined[-1] if joined else None
        if before and end == chunk.place.base and chunk.blocks.stop - before.blocks.start <= MAX_BLOCKS:
            joined[-1] = Chunk(range(before.blocks.start, chunk.blocks.stop), before.place, chunk.loaded)
        else:
            joined.append(chunk)
        end = chunk.place.base + chunk.place.size
    return joined


def _begin_held(ring: BufferRing, depth: int, entries: int, blocks: int, chunk: int) -> None:
    """Go back to the buffer's beginning where a held tile would otherwise be cut or find too little room."""
    if entries * blocks <= depth // 2:
        # In one piece, so that one COMPUTE can cover it.
        if not ring.room_ahead(entries * blocks):
            ring.restart()
        return
    at, waste = ring.position, 0
    for start in range(0, blocks, chunk):
        size = entries * min(chunk, blocks - start)
        if at + size > depth:
            waste, at = depth - at, 0
        at += size
    if entries * blocks + waste > depth:
        ring.restart()


def _release(chunks: Sequence[Chunk], reader: int) -> None:
    """Free places that no further tile reads, unless their last reader is known to be earlier."""
    for chunk in chunks:
        if chunk.place.last_reader < 0:
            chunk.place.last_reader = reader
