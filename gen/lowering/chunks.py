"""Channel blocks of a layer's input on their way into the input buffer."""

from collections.abc import Mapping, Sequence

from cores.arch.isa import Opcode, Queue
from cores.config import NpuConfig
from gen.lowering.buffer_allocation import BufferAllocation, BufferRing, Chunk
from gen.lowering.emitter import Emitter
from gen.lowering.mapped import PlacedLayer, data_of
from gen.lowering.stores import Stores
from gen.lowering.weights import Weights
from gen.memory.placement import BufferPlacement, Place, RowsPlacement
from gen.tiling.geometry import MAX_PAD_ROWS, Geometry, SpatialTile
from gen.tiling.weights import ReductionSlice

__all__ = ["Chunks"]


class Chunks:
    """Emits LOAD_ACTs into a ring of places, with what they wait for; what stays in the input buffer needs none."""

    def __init__(self, config: NpuConfig, tensors: Mapping[str, Place], emitter: Emitter,
                 stores: Stores, weights: Weights) -> None:
        self._config, self._tensors = config, tensors
        self._emitter, self._stores, self._weights = emitter, stores, weights
        self.ring = BufferRing(config.input_depth)
        #: Of tensors that stay in the buffer as a whole, from one step to another.
        self.rooms: dict[str, BufferAllocation] = {}

    def load(self, layer: PlacedLayer, geometry: Geometry, spatial: SpatialTile, blocks: range,
             work: Sequence[ReductionSlice] = (), room: tuple[BufferAllocation, int] | None = None) -> Chunk:
        """Load input blocks of a spatial tile for the reduction slices ``work``.

        ``room``: the place and the COMPUTE after which it is free; without it the ring gives both. Where the load waits
        for a STORE, weights are fetched before it.
        """
        emitter, stores, mapped = self._emitter, self._stores, layer.mapped
        emitter.layer = layer.number
        source = self._tensors[mapped.loaded_tensor(spatial)]
        if isinstance(source, BufferPlacement):
            # Nobody waits for it to be free: what is stored there comes after a COMPUTE that does.
            return Chunk(blocks, self.ring.take_at(*source.part(data_of(geometry, spatial)[0], blocks))[0], -1)
        assert not isinstance(source, RowsPlacement)
        place, freed = room or self.ring.take(spatial.entries * len(blocks))
        # The last output tile that writes what is loaded.
        writer = stores.last_writer(mapped.loaded_slice(geometry, spatial, blocks)) if spatial.data_rows else -1
        after = self._once_free(freed, writer)
        ahead = 0
        if writer >= 0:
            after[Queue.STORE] = emitter.recent(Queue.STORE, stores.store_index(writer))
            if work and emitter.waits(Queue.LOAD, Queue.STORE, after[Queue.STORE]):
                ahead = self._load_ahead(layer, geometry, work[0])
        loaded = mapped.load(emitter, source, geometry, spatial, blocks, place.base, after)
        return Chunk(blocks, place, loaded, ahead)

    def pad(self, layer: PlacedLayer, at: RowsPlacement, rows: range, columns: range, freed: int) -> int:
        """Load padding to some ``columns`` and ``rows`` of the room of a layer's input, in all blocks, from the first
        column's entry on, once the COMPUTE ``freed`` is done. Returns the last LOAD_ACT's index.
        """
        form, index = at.rows, -1
        self._emitter.layer = layer.number
        after = self._once_free(freed)
        entry, skipped = divmod(columns.start, form.banks)
        self._emitter.set_load(dict(
            cols=len(columns) + skipped, row_pitch=0, block_pitch=0, pad_left=0, pad_right=0,
            pad_value=layer.mapped.padding, stride=1, buf_row_pitch=form.row_pitch, buf_block_pitch=form.block_pitch))
        for first in rows[::MAX_PAD_ROWS]:
            index = self._emitter.emit(
                Opcode.LOAD_ACT, after=after, offset=0, buf_base=at.offset + first * form.row_pitch + entry,
                blocks=form.blocks, rows=0, pad_top=min(MAX_PAD_ROWS, rows.stop - first), pad_bottom=0)
        return index

    def _once_free(self, freed: int, writer: int = -1) -> dict[Queue, int]:
        """Wait for a COMPUTE, -1 for none. What a load waits for must be further up in the program, with all that it
        needs itself, as must what the output tile ``writer`` stores.
        """
        emitter, stores = self._emitter, self._stores
        freed = emitter.recent(Queue.COMPUTE, freed) if emitter.waits(Queue.LOAD, Queue.COMPUTE, freed) else -1
        stores.flush(max(writer, stores.next_of_compute(freed) if freed >= 0 else -1))
        return {Queue.COMPUTE: freed} if freed >= 0 else {}

    def _load_ahead(self, layer: PlacedLayer, geometry: Geometry, reduction: ReductionSlice) -> int:
        """Fetch the first of a COMPUTE's weights; returns how many beats.

        At most a quarter of the ring: with more the program could hang (`gen.lowering`).
        """
        beats = layer.mapped.beats_ahead(self._weights.beats(geometry, reduction), reduction)
        ahead = min(beats, self._config.weight_depth // 4)
        self._weights.load(layer, reduction.offset, ahead)
        return ahead
