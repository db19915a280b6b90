"""Placed graph -> instructions."""

from cores.arch.instruction import Instruction
from gen.lowering.placed import PlacedGraph
from gen.lowering.tiles import Tiles
from gen.memory.region import Lifetime

__all__ = ["lower"]


def lower(placed: PlacedGraph) -> tuple[list[Instruction], list[int]]:
    """The program, and the number of the layer of each instruction, -1 for none.

    Raises ValueError when a field does not fit its bits.
    """
    tiles = Tiles(placed.mapped.config, placed.places)
    for number, (step, layers) in enumerate(zip(placed.mapped.steps, placed.steps, strict=True)):
        tiles.chunks.ring.limit = placed.buffer.room(Lifetime(number, number))
        step.emit(tiles, layers)
    tiles.stores.flush(tiles.stores.opened)
    return tiles.emitter.finish()
