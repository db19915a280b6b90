"""Output tiles that are computed: their STOREs and side data (`gen.lowering` says when)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from cores.arch.isa import Opcode, Queue, largest_field
from gen.ir.graph import rescaled
from gen.ir.tensor import broadcasts
from gen.lowering.buffer_allocation import TensorWrites
from gen.lowering.emitter import Emitter
from gen.lowering.mapped import MappedLayer, PlacedLayer, TensorSlice
from gen.memory.placement import Destination, Place, Placement, RowsPlacement
from gen.tiling.geometry import SpatialTile
from gen.tiling.weights import PARAMETER_BEATS

__all__ = ["OutputTile", "Stores"]

#: Channel blocks whose parameters one LOAD_SIDE fetches at most.
_PARAMETER_BLOCKS = largest_field(Opcode.LOAD_SIDE, "cols") // PARAMETER_BEATS


@dataclass(frozen=True)
class OutputTile:
    """What is stored of one accumulator bank, or one POOL: channel ``blocks`` of a spatial tile of a layer's output.

    ``computed`` is the index of the COMPUTE or POOL that makes it. There is a STORE for each of ``repetitions``:
    where the layer repeats rows, every row has as many as the factor says.
    """

    layer: PlacedLayer
    spatial: SpatialTile
    blocks: range
    repetitions: range
    bank: int
    pooled: bool
    computed: int
    #: Fields of STORE_SET that say how its words lie.
    words: Mapping[str, int] = field(default_factory=dict)
    #: Words from a row to the next.
    row_words: int = 0


class Stores:
    """Numbers the output tiles and emits their STOREs, in order, when told to.

    A tile has the index of its last STORE.
    """

    def __init__(self, tensors: Mapping[str, Place], emitter: Emitter) -> None:
        self._tensors, self._emitter = tensors, emitter
        #: Of tensors that are part of no other.
        self._writes = {name: TensorWrites() for name, place in tensors.items() if place.whole is None}
        self._tiles: list[OutputTile] = []
        #: Of each COMPUTE and POOL.
        self._next_of_compute: list[int] = []
        #: Index in its queue of the last STORE of each tile, as far as they are emitted.
        self._store_indices: list[int] = []
        #: The constants that operations of the store engine have, by their places in memory.
        self._loaded: dict[Opcode, range] = {}

    @property
    def opened(self) -> int:
        """Output tiles so far; also the number of the next."""
        return len(self._tiles)

    def note_compute(self) -> None:
        """Note that a COMPUTE or POOL was emitted."""
        self._next_of_compute.append(self.opened)

    def next_of_compute(self, index: int) -> int:
        """The first tile that was not open yet when a COMPUTE or POOL was emitted: as a rule the one it is for."""
        return self._next_of_compute[index]

    def open(self, tile: OutputTile) -> None:
        """Note a tile whose STORE can follow from now on."""
        blocks = tile.blocks.start, tile.blocks.stop
        whole = self._in_whole(TensorSlice(tile.layer.mapped.layer.output, blocks, _pixels(tile, tile.repetitions)))
        self._writes[whole.tensor].add(self.opened, whole.blocks, whole.pixels)
        self._tiles.append(tile)

    def flush(self, through: int) -> None:
        """Emit STORE and side data of all tiles up to number ``through``, as far as they are open."""
        while len(self._store_indices) <= min(through, self.opened - 1):
            self._store(self._tiles[len(self._store_indices)])

    def store_index(self, tile: int) -> int:
        """Index of a tile's last STORE, which must have been emitted."""
        return self._store_indices[tile]

    def last_writer(self, written: TensorSlice) -> int:
        """The last tile that writes into a slice of a tensor, or -1."""
        whole = self._in_whole(written)
        return self._writes[whole.tensor].last(whole.blocks, whole.pixels)

    def _in_whole(self, part: TensorSlice) -> TensorSlice:
        """The same slice, of the tensor that its own is part of."""
        place = self._tensors[part.tensor]
        if place.whole is None:
            return part
        _, height, width = place.shape
        skipped = (place.offset - self._in_memory(place.whole).offset) // (height * width)
        first, end = part.blocks
        return TensorSlice(place.whole, (first + skipped, end + skipped), part.pixels)

    def _in_memory(self, name: str) -> Placement:
        """The place of a tensor that must have one there."""
        place = self._tensors[name]
        assert isinstance(place, Placement), f"tensor {name} stays in the input buffer"
        return place

    def _store(self, tile: OutputTile) -> None:
        emitter = self._emitter
        outer, emitter.layer = emitter.layer, tile.layer.number
        mapped = tile.layer.mapped
        for repetition in tile.repetitions:
            for to in self._tensors[mapped.layer.output].destinations(
                    tile.blocks.start, _pixels(tile, range(repetition, repetition + 1))[0],
                    row_step=mapped.layer.repeats[0], rows_apart=mapped.rows_apart(tile.spatial)):
                index = self._store_repetition(tile, repetition, to)
        self._store_indices.append(index)
        emitter.layer = outer

    def _store_repetition(self, tile: OutputTile, repetition: int, to: Destination) -> int:
        """Emit the STORE of a repetition to one of its places, and its side data; returns its index."""
        emitter, mapped = self._emitter, tile.layer.mapped
        spatial, others, windows = tile.spatial, mapped.layer.others, mapped.layer.windows
        # Values of a column that come one after the other: a repeated one, or those of a window's rows.
        turns = mapped.layer.repeats[1] * windows[0]
        place = self._tensors[mapped.layer.output]
        rows, cols = spatial.rows // windows[0], spatial.cols * turns
        if isinstance(place, RowsPlacement):    # a tile that is one long row is whole rows, too
            rows, cols = rows * cols // place.rows.width, place.rows.width
        emitter.set(
            Opcode.STORE_SET, rows=rows, cols=cols, row_pitch=to.row_pitch if rows > 1 else 0,
            block_pitch=to.block_pitch,
            local=int(place.space == "buffer"), bank=to.bank, **tile.words)
        self._set_chain(tile)
        # A pooled STORE runs beside its POOL; any other begins when its sums are final.
        index = emitter.emit(
            Opcode.STORE, after={} if tile.pooled else {Queue.COMPUTE: tile.computed}, offset=to.offset,
            blocks=len(tile.blocks), bank=tile.bank, pooled=int(tile.pooled), repeats=turns - 1)
        if not others:
            for block in tile.blocks[::_PARAMETER_BLOCKS]:
                self._load_parameters(tile, block, min(_PARAMETER_BLOCKS, tile.blocks.stop - block))
        else:
            for block in tile.blocks:
                self._load_parameters(tile, block, 1)
                for name in others:
                    self._load_other(tile, name, block, None if self._is_broadcast(mapped, name) else repetition)
        return index

    def _is_broadcast(self, mapped: MappedLayer, name: str) -> bool:
        """Whether a tensor that is read beside the input has one number for all pixels of a channel."""
        result = mapped.target.shape[0], *rescaled(mapped.layer, mapped.target.shape[1:])
        return broadcasts(self._in_memory(name).shape, result)

    def _set_chain(self, tile: OutputTile) -> None:
        """Have done to results what a tile's layer wants, and load the constants that this takes."""
        mapped = tile.layer.mapped
        chain = _chain(mapped, {name for name in mapped.layer.others if self._is_broadcast(mapped, name)})
        if self._tensors[mapped.layer.output].signs:
            chain[Opcode.STORE_SIGNS] = {}
        chain = {opcode: {name: tile.row_words if name == "row_words" else value for name, value in fields.items()}
                 for opcode, fields in chain.items()}
        due = {opcode: beats for opcode, beats in tile.layer.constants.items() if self._loaded.get(opcode) != beats}
        self._loaded |= due
        self._emitter.set_chain({opcode: {**fields, "load": 1} if opcode in due else fields
                                 for opcode, fields in chain.items()})
        for beats in due.values():
            self._emitter.emit(Opcode.LOAD_SIDE, offset=beats.start, rows=1, row_pitch=0, cols=len(beats))

    def _load_parameters(self, tile: OutputTile, block: int, count: int) -> None:
        more = tile.layer.mapped.parameter_fields(tile.bank, block - tile.blocks.start)
        self._emitter.emit(Opcode.LOAD_SIDE, after={}, offset=tile.layer.parameters + block * PARAMETER_BEATS,
                           cols=count * PARAMETER_BEATS, rows=1, row_pitch=0, **more)

    def _load_other(self, tile: OutputTile, tensor: str, block: int, repetition: int | None) -> None:
        """The beats of another tensor that a repetition of a tile reads; without it there is one for all pixels."""
        start, end = (0, 1) if repetition is None else _pixels(tile, range(repetition, repetition + 1))
        rows, cols = (1, 1) if repetition is None else (tile.spatial.rows, tile.spatial.cols)
        down, across = tile.layer.mapped.layer.repeats
        place = self._in_memory(tensor)
        _, height, width = place.shape
        apart = tile.layer.mapped.rows_apart(tile.spatial) or width
        writer = self.last_writer(TensorSlice(tensor, (block, block + 1), (start, end)))
        after = {} if writer < 0 else {Queue.STORE: self._emitter.recent(Queue.STORE, self.store_index(writer))}
        self._emitter.emit(
            Opcode.LOAD_SIDE, after=after, offset=place.offset + block * height * width + start,
            cols=1 if repetition is None else cols * across, rows=rows, row_pitch=apart * down if rows > 1 else 0)


def _chain(mapped: MappedLayer, broadcast: Collection[str]) -> dict[Opcode, dict[str, int]]:
    """The operations that a layer's arithmetic takes, and their fields; ``broadcast``: tensors of which it reads one
    number for all pixels of a channel.
    """
    first, epilogue = mapped.requantize, mapped.layer.epilogue
    # What the first stage makes counts from its zero point where an operation wants it so.
    origin = first.zero_point if any(op.centred for op in epilogue) else 0
    chain = {Opcode.STORE_REQUANT: {"zero_point": first.zero_point - origin, "low": first.low - origin,
                                    "high": first.high - origin}}
    for op in epilogue:
        if op.opcode is not None:
            chain[op.opcode] = op.encode(broadcast=any(name in broadcast for name in op.others))
    return chain


def _pixels(tile: OutputTile, repetitions: range) -> tuple[int, int]:
    """First pixel of repetitions of a tile and the one after their last."""
    mapped, spatial = tile.layer.mapped, tile.spatial
    (down, across), (rows, cols) = mapped.layer.repeats, mapped.layer.windows
    width, left, length = (columns * across // cols for columns in (
        mapped.rows_apart(spatial) or mapped.target.shape[2], spatial.x, spatial.cols))
    first = spatial.y * down // rows + repetitions[0]
    last = (spatial.y + spatial.rows - 1) * down // rows + repetitions[-1]
    return first * width + left, last * width + left + length
