"""Output tiles in the making: their COMPUTEs or POOL, and the accumulator banks they are made in."""

from collections.abc import Mapping
from dataclasses import replace

from cores.arch.isa import Opcode, Queue
from cores.arch.numerics import POSITIONS
from cores.config import NpuConfig
from gen.ir.graph import Graph
from gen.lowering.chunks import Chunk, Chunks
from gen.lowering.emitter import Emitter
from gen.lowering.stores import OutputTile, Stores
from gen.lowering.weights import Weights
from gen.mapping.binary import SignSource
from gen.mapping.pack import Pass
from gen.mapping.winograd import WinogradGeometry
from gen.memory.placement import Memory
from gen.tiling.geometry import Geometry, Window

__all__ = ["Tile", "Tiles"]


class Tiles:
    """Makes output tiles: what the layers of all kinds have in common.

    ``signs``: where layers on the binary unit, by name, have their input.
    """

    def __init__(self, graph: Graph, config: NpuConfig, memory: Memory, signs: Mapping[str, SignSource]) -> None:
        self.graph, self.config, self.signs = graph, config, signs
        self.emitter = Emitter()
        self.stores = Stores(graph, memory.tensors, memory.parameter_offsets, self.emitter)
        self.weights = Weights(config, memory.weight_offsets, self.emitter)
        self.chunks = Chunks(graph, config, memory.tensors, signs, self.emitter, self.stores, self.weights)
        #: Of each accumulator bank: whether a tile is in it that is not finished, and the last one that was.
        self._taken = [False, False]
        self._finished = [-1, -1]
        self._last_bank = 1

    @property
    def last_compute(self) -> int:
        """Position of the last COMPUTE or POOL."""
        return self.emitter.count(Queue.COMPUTE) - 1

    def output_blocks(self, layer: int, limit: int) -> list[range]:
        """The channel blocks of a layer's output, ``limit`` to a tile."""
        blocks = -(-self.graph.tensors[self.graph.layers[layer].output].shape[0] // self.config.ic_lanes)
        return [range(first, min(first + limit, blocks)) for first in range(0, blocks, limit)]

    def begin(self, layer: int, geometry: Geometry, window: Window, blocks: range, *, narrow: bool = False,
              local: tuple[int, int] | None = None) -> "Tile":
        """A tile of some channel blocks; ``narrow``: it is computed with ``spread``; ``local``: as in `OutputTile`."""
        return Tile(self, layer, geometry, window, blocks, narrow, local)

    def take_bank(self) -> tuple[int, int]:
        """A bank for a tile, and the tile whose STORE must have read it before.

        Banks take turns, unless a tile keeps its bank while others are made.
        """
        bank = 1 - self._last_bank
        bank = 1 - bank if self._taken[bank] else bank
        self._taken[bank] = True
        return bank, self._finished[bank]

    def finish(self, tile: OutputTile) -> None:
        """Emit the STORE of the tile before; this one's at once if it is pooled."""
        number = self.stores.opened
        self.stores.flush(number - 1)
        self.stores.open(tile)
        if tile.pooled:
            self.stores.flush(number)
        else:
            self._taken[tile.bank], self._finished[tile.bank], self._last_bank = False, number, tile.bank


class Tile:
    """One output tile, from its first COMPUTE to its last."""

    def __init__(self, tiles: Tiles, layer: int, geometry: Geometry, window: Window, blocks: range, narrow: bool,
                 local: tuple[int, int] | None) -> None:
        self._tiles, self._layer, self._geometry, self._window = tiles, layer, geometry, window
        self._blocks, self._narrow, self._local = blocks, narrow, local
        #: Its accumulator bank, once it has begun, and the tile that was there before.
        self._bank = self._before = -1

    @property
    def begun(self) -> bool:
        return self._bank >= 0

    def compute(self, part: Pass, chunk: Chunk, *, row: int = 0, needed: int = -1) -> None:
        """A COMPUTE of input blocks in ``chunk``, and its weights.

        ``row``: of the input rows in the buffer, the first that it reads. ``needed``: the output tile whose STORE
        brings the last of them there.
        """
        tiles, window, first = self._tiles, self._window, not self.begun
        stores, geometry = tiles.stores, self._geometry
        if first:
            self._bank, self._before = tiles.take_bank()
        tiles.emitter.layer = self._layer
        awaited = max(needed, self._before)
        stores.flush(awaited)
        after = {Queue.LOAD: chunk.loaded, Queue.STORE: stores.position(awaited) if awaited >= 0 else -1}
        self._set(part.rows)
        ahead, chunk.ahead = chunk.ahead, 0
        if isinstance(geometry, WinogradGeometry):
            self._compute_positions(geometry, part, chunk, after, first, ahead)
            return
        base = chunk.place.base + (part.block - chunk.blocks.start) * window.entries
        base += (row + (part.rows.start if part.rows else 0)) * window.row_pitch
        self._emit(
            Opcode.COMPUTE, after, buf_base=base, blocks=part.blocks, groups=part.groups, indexed=int(part.indexed),
            first=int(first), bank=self._bank, binary=int(part.binary))
        tiles.weights.load(self._layer, part.offset + ahead, tiles.weights.beats(geometry, part) - ahead)

    def _compute_positions(self, geometry: WinogradGeometry, part: Pass, chunk: Chunk, after: dict[Queue, int],
                           first: bool, ahead: int) -> None:
        """COMPUTEs of transformed tiles: for block, position.

        A block's weights come before them: 16 COMPUTEs fill the queue, behind which what the next block needs would
        wait too long. So would the STORE of the tile before, which therefore comes after the first block.
        """
        tiles, window = self._tiles, self._window
        words = geometry.words(window, tiles.config)
        beats = tiles.weights.beats(geometry, replace(part, blocks=1))
        for number in range(part.blocks):
            tiles.weights.load(self._layer, part.offset + number * beats + ahead, beats - ahead)
            base = chunk.place.base + (part.block + number - chunk.blocks.start) * window.entries
            for position in range(POSITIONS):
                self._emit(
                    Opcode.COMPUTE, after, buf_base=base + position * window.row_pitch, blocks=1, groups=part.groups,
                    indexed=int(part.indexed), first=int(first), bank=self._bank, acc_base=position * words)
            if first:
                tiles.stores.flush(tiles.stores.opened - 1)
            first, ahead = False, 0

    def pool(self, geometry: Geometry, box: Window, chunk: Chunk, *, maximum: bool, first: bool, last: bool) -> None:
        """A POOL of all blocks of ``chunk``, which hold ``box`` of ``geometry``: the tile, or a piece of its window.

        The last one is the tile's end.
        """
        self._tiles.emitter.layer = self._layer
        self._tiles.emitter.set(Opcode.COMPUTE_SET, **geometry.compute_fields(box, self._tiles.config))
        self._emit(Opcode.POOL, {Queue.LOAD: chunk.loaded}, buf_base=chunk.place.base, blocks=len(chunk.blocks),
                   maximum=int(maximum), resume=int(not first), open=int(not last))
        if last:
            self._tiles.finish(self._output(bank=0, pooled=True))

    def end(self) -> None:
        """All COMPUTEs are emitted."""
        self._tiles.finish(self._output(bank=self._bank, pooled=False))

    def _output(self, *, bank: int, pooled: bool) -> OutputTile:
        fields = {} if pooled else self._geometry.store_fields(self._window, self._tiles.config, narrow=self._narrow)
        return OutputTile(self._layer, self._window, self._blocks.start, len(self._blocks), bank, pooled,
                          self._tiles.last_compute, fields, self._local)

    def _set(self, rows: range | None) -> None:
        fields = self._geometry.compute_fields(self._window, self._tiles.config, narrow=self._narrow, rows=rows)
        self._tiles.emitter.set(Opcode.COMPUTE_SET, **fields)

    def _emit(self, opcode: Opcode, after: dict[Queue, int], **fields: int) -> None:
        self._tiles.emitter.emit(opcode, after=after, **fields)
        self._tiles.stores.note_compute()
