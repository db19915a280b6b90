"""Chunks: channel blocks of a layer's input on their way into the input buffer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cores.arch.isa import Opcode, Queue
from cores.arch.numerics import MAP_PIXELS
from cores.config import NpuConfig
from gen.ir.graph import Graph, pad_value
from gen.lowering.emitter import Emitter
from gen.lowering.places import BufferRing, Place
from gen.lowering.stores import Stores
from gen.lowering.weights import Weights
from gen.mapping.binary import SignSource
from gen.mapping.gather import GatherGeometry, load_pieces
from gen.mapping.pack import Pass
from gen.mapping.sign_loads import load_signs
from gen.mapping.winograd import WinogradGeometry
from gen.program.program import Placement
from gen.tiling.geometry import Geometry, Window

__all__ = ["Chunk", "Chunks"]


@dataclass(eq=False)
class Chunk:
    """Channel blocks in the input buffer; ``loaded`` is the position of their LOAD_ACT, -1 if there is none.

    ``ahead``: beats of the weights of its first COMPUTE that are on their way already.
    """

    blocks: range
    place: Place
    loaded: int
    ahead: int = 0


class Chunks:
    """Emits LOAD_ACTs into a ring of places, with what they wait for."""

    def __init__(self, graph: Graph, config: NpuConfig, tensors: Mapping[str, Placement],
                 signs: Mapping[str, SignSource], emitter: Emitter, stores: Stores, weights: Weights) -> None:
        self._graph, self._config, self._tensors, self._signs = graph, config, tensors, signs
        self._emitter, self._stores, self._weights = emitter, stores, weights
        self.ring = BufferRing(config.input_depth)

    def load(self, layer: int, geometry: Geometry, window: Window, blocks: range, work: Sequence[Pass] = (),
             room: tuple[Place, int] | None = None) -> Chunk:
        """Load input blocks of a window for the passes ``work``.

        ``room``: the place and the COMPUTE after which it is free; without it the ring gives both. Where the load waits
        for a STORE, weights are fetched before it.
        """
        emitter, stores = self._emitter, self._stores
        emitter.layer = layer
        place, freed = room or self.ring.take(window.entries * len(blocks))
        writer = self._writer(layer, geometry, window, blocks)
        # What this load waits for must be further up in the program, with all that it needs itself.
        freed = emitter.recent(Queue.COMPUTE, freed) if emitter.waits(Queue.LOAD, Queue.COMPUTE, freed) else -1
        stores.flush(max(writer, stores.next_of_compute(freed) if freed >= 0 else -1))
        after = {Queue.COMPUTE: freed} if freed >= 0 else {}
        ahead = 0
        if writer >= 0:
            after[Queue.STORE] = emitter.recent(Queue.STORE, stores.position(writer))
            if work and emitter.waits(Queue.LOAD, Queue.STORE, after[Queue.STORE]):
                ahead = self._load_ahead(layer, geometry, work[0])
        return Chunk(blocks, place, self._load(layer, geometry, window, blocks, place.base, after), ahead)

    def _writer(self, layer: int, geometry: Geometry, window: Window, blocks: range) -> int:
        """The last output tile that writes what a load reads, or -1."""
        if not window.data_rows:
            return -1
        start, row_pitch = _data(geometry, window)
        end = start + (window.data_rows - 1) * row_pitch + window.data_cols
        low, high = blocks.start, blocks.stop
        signs = self._signs.get(self._graph.layers[layer].name)
        if signs is None:
            return self._stores.last_writer(self._graph.layers[layer].input, (low, high), (start, end))
        # Beats of a map are read as a whole.
        around = MAP_PIXELS if signs.packed else 0
        return self._stores.last_writer(signs.tensor, signs.entry_blocks(low, high), (start - around, end + around))

    def _load_ahead(self, layer: int, geometry: Geometry, part: Pass) -> int:
        """Fetch the first of a COMPUTE's weights; returns how many beats.

        At most a quarter of the ring: with more the program could hang (`gen.lowering`).
        """
        ahead = min(self._weights.beats(geometry, part), self._config.weight_depth // 4)
        if isinstance(geometry, WinogradGeometry):
            ahead = min(ahead, self._weights.beats(geometry, replace(part, blocks=1)))
        self._weights.load(layer, part.offset, ahead)
        return ahead

    def _load(self, layer: int, geometry: Geometry, window: Window, blocks: range, base: int,
              after: dict[Queue, int]) -> int:
        """The LOAD_ACTs alone, to entry ``base`` and following; returns the last one's position."""
        item, emitter = self._graph.layers[layer], self._emitter
        signs, low, high = self._signs.get(item.name), blocks.start, blocks.stop
        padding = pad_value(item, self._graph.tensors[item.input])
        if signs is not None:
            return load_signs(
                emitter, self._config, signs, self._tensors[signs.tensor], geometry, window, (low, high), base,
                padding=padding if any(item.pads) else None, after=after)
        if isinstance(geometry, GatherGeometry):
            return load_pieces(
                emitter, self._config, geometry, window, (low, high), base, offset=self._tensors[item.input].offset,
                padding=padding, after=after)
        start, row_pitch = _data(geometry, window)
        pixels = geometry.input_size[0] * geometry.input_size[1]
        fields = dict(
            cols=window.data_cols, row_pitch=row_pitch, block_pitch=pixels, pad_left=window.pad_left,
            pad_right=window.pad_right, pad_value=padding, stride=geometry.load_stride,
            buf_row_pitch=window.row_pitch, buf_block_pitch=window.entries)
        tiles = geometry.tile_fields(window)
        if tiles is None:
            emitter.set_load(fields)
        else:
            emitter.set_load({**fields, "buf_row_pitch": 0}, Opcode.LOAD_WINOGRAD, dict(tiles))
        return emitter.emit(
            Opcode.LOAD_ACT, after=after, offset=self._tensors[item.input].offset + low * pixels + start,
            buf_base=base + window.buffer_row * window.row_pitch, blocks=high - low, rows=window.data_rows,
            pad_top=window.pad_top, pad_bottom=window.pad_bottom)


def _data(geometry: Geometry, window: Window) -> tuple[int, int]:
    """A window's first pixel with data in its block, and how far apart its rows are."""
    width = geometry.input_size[1]
    return window.row * width + window.col, geometry.row_skip * width if window.data_rows > 1 else 0
