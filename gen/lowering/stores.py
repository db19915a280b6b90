"""Output tiles that are computed: their STOREs and side data (`gen.lowering` says when)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cores.arch.isa import Opcode, Queue
from cores.arch.numerics import MAP_PIXELS
from gen.lowering.emitter import Emitter
from gen.lowering.mapped import PlacedLayer, Region
from gen.lowering.places import TensorWrites
from gen.memory.placement import Placement
from gen.tiling.geometry import Window, largest_field
from gen.tiling.weights import PARAMETER_BEATS

__all__ = ["OutputTile", "Stores"]

#: Channel blocks whose parameters one LOAD_SIDE fetches at most.
_PARAMETER_BLOCKS = largest_field(Opcode.LOAD_SIDE, "cols") // PARAMETER_BEATS


@dataclass(frozen=True)
class OutputTile:
    """What one STORE writes: channel ``blocks`` of a window of a layer's output.

    ``computed`` is the position of the COMPUTE or POOL that makes it.
    """

    layer: PlacedLayer
    window: Window
    blocks: range
    bank: int
    pooled: bool
    computed: int
    #: Fields of STORE_SET that say how its words lie.
    words: Mapping[str, int] = field(default_factory=dict)
    #: It goes to the input buffer instead: entries of a block, and the first entry of block 0.
    local: tuple[int, int] | None = None


class Stores:
    """Numbers the output tiles and emits their STOREs, in order, when told to."""

    def __init__(self, tensors: Mapping[str, Placement], emitter: Emitter) -> None:
        self._tensors, self._emitter = tensors, emitter
        #: Of tensors that are part of no other.
        self._writes = {name: TensorWrites() for name, place in tensors.items() if place.whole is None}
        self._tiles: list[OutputTile] = []
        #: Of each COMPUTE and POOL.
        self._next_of_compute: list[int] = []
        #: Position of the STORE of each tile, as far as they are emitted.
        self._positions: list[int] = []

    @property
    def opened(self) -> int:
        """Output tiles so far; also the number of the next."""
        return len(self._tiles)

    def note_compute(self) -> None:
        """Note that a COMPUTE or POOL was emitted."""
        self._next_of_compute.append(self.opened)

    def next_of_compute(self, position: int) -> int:
        """The first tile that was not open yet when a COMPUTE or POOL was emitted: as a rule the one it is for."""
        return self._next_of_compute[position]

    def open(self, tile: OutputTile) -> None:
        """Note a tile whose STORE can follow from now on."""
        if tile.local is None:
            blocks = tile.blocks.start, tile.blocks.stop
            whole = self._in_whole(Region(tile.layer.mapped.layer.output, blocks, _pixels(tile)))
            self._writes[whole.tensor].add(self.opened, whole.blocks, whole.pixels)
        self._tiles.append(tile)

    def flush(self, through: int) -> None:
        """Emit STORE and side data of all tiles up to number ``through``, as far as they are open."""
        while len(self._positions) <= min(through, self.opened - 1):
            self._store(self._tiles[len(self._positions)])

    def position(self, tile: int) -> int:
        """Position of a tile's STORE, which must have been emitted."""
        return self._positions[tile]

    def last_writer(self, region: Region) -> int:
        """The last tile that writes into a region, or -1."""
        whole = self._in_whole(region)
        return self._writes[whole.tensor].last(whole.blocks, whole.pixels)

    def _in_whole(self, region: Region) -> Region:
        """A region as one of the tensor in whose place its own lies."""
        place = self._tensors[region.tensor]
        if place.whole is None:
            return region
        _, height, width = place.shape
        skipped = (place.offset - self._tensors[place.whole].offset) // (height * width)
        first, end = region.blocks
        return Region(place.whole, (first + skipped, end + skipped), region.pixels)

    def _places(self, tile: OutputTile) -> tuple[int, int, int]:
        """A STORE's row pitch, block pitch and offset."""
        if tile.local is not None:
            # One row behind the other.
            block_pitch, start = tile.local
            return 0, block_pitch, start + tile.blocks.start * block_pitch
        place = self._tensors[tile.layer.mapped.layer.output]
        _, height, width = place.shape
        row, col = divmod(_pixels(tile)[0], width)
        start = (tile.blocks.start * height + row) * place.row_beats + (col // MAP_PIXELS if place.signs else col)
        return place.row_beats if tile.window.rows > 1 else 0, height * place.row_beats, place.offset + start

    def _store(self, tile: OutputTile) -> None:
        emitter, mapped = self._emitter, tile.layer.mapped
        outer, emitter.layer = emitter.layer, tile.layer.number
        window, first, second = tile.window, mapped.requantize, mapped.layer.residual
        row_pitch, block_pitch, offset = self._places(tile)
        signs = tile.local is None and self._tensors[mapped.layer.output].signs
        emitter.set(
            Opcode.STORE_SET, rows=window.rows, cols=window.cols, row_pitch=row_pitch, block_pitch=block_pitch,
            zero_point=first.zero_point, low=first.low, high=first.high, add=int(second is not None),
            binary=int(signs), local=int(tile.local is not None), **tile.words)
        if second:
            emitter.set(
                Opcode.STORE_ADD, multiplier_a=second.multiplier_a, multiplier_b=second.multiplier_b,
                constant=second.constant, shift=second.shift, zero_point=second.zero_point, low=second.low,
                high=second.high)
        # A pooled STORE runs beside its POOL; any other begins when its sums are final.
        self._positions.append(emitter.emit(
            Opcode.STORE, after={} if tile.pooled else {Queue.COMPUTE: tile.computed}, offset=offset,
            blocks=len(tile.blocks), bank=tile.bank, pooled=int(tile.pooled)))
        if second is None:
            for block in tile.blocks[::_PARAMETER_BLOCKS]:
                self._load_parameters(tile, block, min(_PARAMETER_BLOCKS, tile.blocks.stop - block))
        else:
            for block in tile.blocks:
                self._load_parameters(tile, block, 1)
                self._load_residual(tile, second.other, block)
        emitter.layer = outer

    def _load_parameters(self, tile: OutputTile, block: int, count: int) -> None:
        self._emitter.emit(Opcode.LOAD_SIDE, offset=tile.layer.parameters + block * PARAMETER_BEATS,
                           cols=count * PARAMETER_BEATS, rows=1, row_pitch=0)

    def _load_residual(self, tile: OutputTile, tensor: str, block: int) -> None:
        start, end = _pixels(tile)
        place = self._tensors[tensor]
        _, height, width = place.shape
        writer = self.last_writer(Region(tensor, (block, block + 1), (start, end)))
        after = {} if writer < 0 else {Queue.STORE: self._emitter.recent(Queue.STORE, self.position(writer))}
        self._emitter.emit(
            Opcode.LOAD_SIDE, after=after, offset=place.offset + block * height * width + start,
            cols=tile.window.cols, rows=tile.window.rows, row_pitch=width if tile.window.rows > 1 else 0)


def _pixels(tile: OutputTile) -> tuple[int, int]:
    """First pixel of a tile and the one behind its last."""
    width = tile.layer.mapped.target.shape[2]
    start = tile.window.y * width + tile.window.x
    return start, start + (tile.window.rows - 1) * width + tile.window.cols
