"""Placed graph -> instructions."""

from cores.arch.instruction import Instruction
from gen.lowering.placed import PlacedGraph
from gen.lowering.tiles import Tiles

__all__ = ["lower"]


def lower(placed: PlacedGraph) -> tuple[list[Instruction], list[int]]:
    """The program, and the number of the layer of each instruction, -1 for none.

    Raises ValueError when a field does not fit its bits.
    """
    tiles = Tiles(placed.mapped.config, placed.tensors)
    for step, layers in zip(placed.mapped.steps, placed.steps, strict=True):
        step.emit(tiles, layers)
    tiles.stores.flush(tiles.stores.opened)
    return tiles.emitter.finish()
