"""Output tiles in the making: their COMPUTEs or POOL, and the accumulator banks they are made in."""

from collections.abc import Mapping, Sequence

from cores.arch.isa import Opcode, Queue
from cores.arch.rows import RowPass
from cores.config import NpuConfig
from gen.lowering.buffer_allocation import Chunk
from gen.lowering.chunks import Chunks
from gen.lowering.emitter import Emitter
from gen.lowering.mapped import PlacedLayer, TensorSlice
from gen.lowering.stores import OutputTile, Stores
from gen.lowering.weights import Weights
from gen.memory.placement import Place, Placement
from gen.tiling.geometry import Geometry, SpatialTile
from gen.tiling.weights import ReductionSlice
from sim.rows import Rows

__all__ = ["Tile", "Tiles"]


class Tiles:
    """Makes output tiles: what the layers of all kinds have in common."""

    def __init__(self, config: NpuConfig, tensors: Mapping[str, Place]) -> None:
        self.config, self.tensors = config, tensors
        self.emitter = Emitter()
        self.stores = Stores(tensors, self.emitter)
        self.weights = Weights(config, self.emitter)
        self.chunks = Chunks(config, tensors, self.emitter, self.stores, self.weights)
        #: Of each accumulator bank: whether a tile is in it that is not finished, and the last one that was.
        self._taken = [False, False]
        self._finished = [-1, -1]
        self._last_bank = 1

    @property
    def last_compute(self) -> int:
        """Index of the last COMPUTE or POOL."""
        return self.emitter.count(Queue.COMPUTE) - 1

    def begin(self, layer: PlacedLayer, geometry: Geometry, spatial: SpatialTile, blocks: range, *,
              spread: bool = False, repetitions: range | None = None) -> "Tile":
        """A tile of some channel blocks; ``spread``: its words are SPREAD.

        ``repetitions``: of each row, all unless given; as in `OutputTile`.
        """
        repetitions = range(layer.mapped.layer.repeats[0]) if repetitions is None else repetitions
        return Tile(self, layer, geometry, spatial, blocks, spread, repetitions)

    def take_bank(self) -> tuple[int, int]:
        """A bank for a tile, and the tile whose STORE must have read it before.

        Banks take turns, unless a tile keeps its bank while others are made.
        """
        bank = 1 - self._last_bank
        bank = 1 - bank if self._taken[bank] else bank
        self._taken[bank] = True
        return bank, self._finished[bank]

    def finish(self, tile: OutputTile) -> None:
        """Emit the STORE of the tile before; this one's at once if it is pooled, or goes to the input buffer: its
        parameters are few, and should not queue after the next blocks' pixels.
        """
        number = self.stores.opened
        self.stores.flush(number - 1)
        self.stores.open(tile)
        if not tile.pooled:
            self._taken[tile.bank], self._finished[tile.bank], self._last_bank = False, number, tile.bank
        if tile.pooled or self.tensors[tile.layer.mapped.layer.output].space == "buffer":
            self.stores.flush(number)


class Tile:
    """One output tile, from its first COMPUTE to its last."""

    def __init__(self, tiles: Tiles, layer: PlacedLayer, geometry: Geometry, spatial: SpatialTile, blocks: range,
                 spread: bool, repetitions: range) -> None:
        self._tiles, self._layer, self.geometry, self.spatial = tiles, layer, geometry, spatial
        self._blocks, self._spread, self._repetitions = blocks, spread, repetitions
        #: Its accumulator bank, once it has begun, and the tile that was there before.
        self._bank = self._before = -1

    @property
    def begun(self) -> bool:
        return self._bank >= 0

    def compute(self, reduction: ReductionSlice, chunk: Chunk, *, row: int = 0) -> None:
        """A COMPUTE of input blocks in ``chunk``, and its weights.

        ``row``: of the input rows in the buffer, the first that it reads.
        """
        tiles, first = self._tiles, not self.begun
        if first:
            self._bank, self._before = tiles.take_bank()
        tiles.emitter.layer = self._layer.number
        stored = self._stored(range(reduction.block, reduction.block + reduction.blocks))
        tiles.stores.flush(self._before)
        freed = tiles.stores.store_index(self._before) if self._before >= 0 else -1
        after = {Queue.LOAD: chunk.loaded, Queue.STORE: max(stored, freed)}
        fields = self.geometry.compute_fields(self.spatial, tiles.config, spread=self._spread, rows=reduction.rows)
        tiles.emitter.set(Opcode.COMPUTE_SET, **fields)
        ahead, chunk.ahead = chunk.ahead, 0
        self._layer.mapped.compute(self, reduction, chunk, after, first=first, ahead=ahead, row=row)

    def _stored(self, blocks: range) -> int:
        """Of an input that stays in the input buffer, the STORE to wait for that brings the last of ``blocks`` there;
        -1 of one that is loaded.
        """
        tiles, mapped = self._tiles, self._layer.mapped
        if tiles.tensors[mapped.input].space == "memory":
            return -1
        writer = tiles.stores.last_writer(mapped.loaded_slice(self.geometry, self.spatial, blocks))
        if writer < 0:
            return -1
        tiles.stores.flush(writer)
        # Pooled blocks have a STORE each, and no COMPUTE takes their tokens before the reader's.
        return tiles.emitter.recent(Queue.STORE, tiles.stores.store_index(writer), taker=Queue.COMPUTE)

    def emit(self, opcode: Opcode, after: dict[Queue, int], **fields: int) -> None:
        """A COMPUTE into the tile's bank."""
        self._emit(opcode, after, bank=self._bank, **fields)

    def load_weights(self, reduction: ReductionSlice, ahead: int) -> None:
        """A COMPUTE's weights, but for the ``ahead`` beats that are on their way."""
        weights = self._tiles.weights
        weights.load(self._layer, reduction.offset + ahead, weights.beats(self.geometry, reduction) - ahead)

    def load_stored_weights(self, part: TensorSlice, first: int, beats: int) -> None:
        """Weights that lie in a tensor in memory: ``beats`` from beat ``first`` of it on, which are ``part`` of it."""
        after, offset = self._stored_in_memory(part)
        self._tiles.emitter.emit(Opcode.LOAD_WGT, after=after, offset=offset + first, beats=beats)

    def load_turned(self, part: TensorSlice, first: int, blocks: int, rows: int, geometry: Mapping[str, int],
                    turn: Mapping[str, int]) -> None:
        """Weights by the corner turn, of a tensor in memory: of ``blocks`` of ``rows`` from beat ``first`` of it on,
        which are ``part`` of it, with these fields of LOAD_SET and LOAD_TURN. Their sums are kept as the tile's.
        """
        after, offset = self._stored_in_memory(part)
        self._tiles.emitter.set_load(
            {"pad_left": 0, "pad_right": 0, "pad_value": 0, "stride": 1, "buf_row_pitch": 0, "buf_block_pitch": 0,
             **geometry}, Opcode.LOAD_TURN, {**turn, "bank": self._bank})
        self._tiles.emitter.emit(Opcode.LOAD_ACT, after=after, offset=offset + first, buf_base=0, blocks=blocks,
                                 rows=rows, pad_top=0, pad_bottom=0)

    def _stored_in_memory(self, part: TensorSlice) -> tuple[dict[Queue, int], int]:
        """After what a load of a part of a tensor comes, and the tensor's first beat."""
        stores, emitter, place = self._tiles.stores, self._tiles.emitter, self._tiles.tensors[part.tensor]
        assert isinstance(place, Placement), f"tensor {part.tensor} stays in the input buffer"
        writer = stores.last_writer(part)
        stores.flush(writer)
        after = {} if writer < 0 else {Queue.STORE: emitter.recent(Queue.STORE, stores.store_index(writer))}
        return after, place.offset

    def load_constant_weights(self, offset: int, beats: int) -> None:
        """Of the layer's packed constants, ``beats`` from ``offset`` on."""
        self._tiles.weights.load(self._layer, offset, beats)

    def flush_stores(self) -> None:
        """The STOREs of all tiles before this one now."""
        self._tiles.stores.flush(self._tiles.stores.opened - 1)

    def pool(self, geometry: Geometry, box: SpatialTile, chunk: Chunk, *, maximum: bool, first: bool,
             last: bool) -> None:
        """A POOL of all blocks of ``chunk``, which hold ``box`` of ``geometry``: the tile, or a piece of its window.

        The last one is the tile's end.
        """
        self._tiles.emitter.layer = self._layer.number
        self._tiles.emitter.set(Opcode.COMPUTE_SET, **geometry.compute_fields(box, self._tiles.config))
        after = {Queue.LOAD: chunk.loaded, Queue.STORE: self._stored(chunk.blocks)}
        self._emit(Opcode.POOL, after, buf_base=chunk.place.base, blocks=len(chunk.blocks),
                   maximum=int(maximum), resume=int(not first), open=int(not last))
        if last:
            self._tiles.finish(self._output(bank=0, pooled=True))

    def rows(self, geometry: Geometry, box: SpatialTile, chunk: Chunk, rows: Rows, passes: Sequence[RowPass]) -> None:
        """Passes of the row unit over all blocks of ``chunk``, which hold ``box`` of ``geometry``: the tile."""
        emitter = self._tiles.emitter
        emitter.layer = self._layer.number
        emitter.set_rows(dict(pixels=box.rows * box.cols, **rows.fields), [] if rows.moments else rows.table.tolist())
        emitter.set(Opcode.COMPUTE_SET, **geometry.compute_fields(box, self._tiles.config))
        after = {Queue.LOAD: chunk.loaded, Queue.STORE: self._stored(chunk.blocks)}
        for row_pass in passes:
            self._emit(Opcode.POOL, after, buf_base=chunk.place.base, blocks=len(chunk.blocks), row_pass=row_pass)
        self._tiles.finish(self._output(bank=0, pooled=True))

    def end(self) -> None:
        """All COMPUTEs are emitted."""
        self._tiles.finish(self._output(bank=self._bank, pooled=False))

    def _output(self, *, bank: int, pooled: bool) -> OutputTile:
        fields = {} if pooled else self.geometry.store_fields(self.spatial, self._tiles.config, spread=self._spread)
        row_words = 0 if pooled else self.geometry.row_words(self.spatial, self._tiles.config, spread=self._spread)
        return OutputTile(self._layer, self.spatial, self._blocks, self._repetitions, bank, pooled,
                          self._tiles.last_compute, fields, row_words)

    def _emit(self, opcode: Opcode, after: dict[Queue, int], **fields: int) -> None:
        self._tiles.emitter.emit(opcode, after=after, **fields)
        self._tiles.stores.note_compute()
