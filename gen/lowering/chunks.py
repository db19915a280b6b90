"""Channel blocks of a layer's input on their way into the input buffer."""

from collections.abc import Mapping, Sequence

from cores.arch.isa import Queue
from cores.config import NpuConfig
from gen.lowering.buffer_allocation import BufferAllocation, BufferRing, Chunk
from gen.lowering.emitter import Emitter
from gen.lowering.mapped import PlacedLayer, data_of
from gen.lowering.stores import Stores
from gen.lowering.weights import Weights
from gen.memory.placement import BufferPlacement, Placement
from gen.tiling.geometry import Geometry, SpatialTile
from gen.tiling.weights import ReductionSlice

__all__ = ["Chunks"]


class Chunks:
    """Emits LOAD_ACTs into a ring of places, with what they wait for; what stays in the input buffer needs none."""

    def __init__(self, config: NpuConfig, tensors: Mapping[str, Placement | BufferPlacement], emitter: Emitter,
                 stores: Stores, weights: Weights) -> None:
        self._config, self._tensors = config, tensors
        self._emitter, self._stores, self._weights = emitter, stores, weights
        self.ring = BufferRing(config.input_depth)

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
        place, freed = room or self.ring.take(spatial.entries * len(blocks))
        # The last output tile that writes what is loaded.
        writer = stores.last_writer(mapped.loaded_slice(geometry, spatial, blocks)) if spatial.data_rows else -1
        # What this load waits for must be further up in the program, with all that it needs itself.
        freed = emitter.recent(Queue.COMPUTE, freed) if emitter.waits(Queue.LOAD, Queue.COMPUTE, freed) else -1
        stores.flush(max(writer, stores.next_of_compute(freed) if freed >= 0 else -1))
        after = {Queue.COMPUTE: freed} if freed >= 0 else {}
        ahead = 0
        if writer >= 0:
            after[Queue.STORE] = emitter.recent(Queue.STORE, stores.store_index(writer))
            if work and emitter.waits(Queue.LOAD, Queue.STORE, after[Queue.STORE]):
                ahead = self._load_ahead(layer, geometry, work[0])
        loaded = mapped.load(emitter, source, geometry, spatial, blocks, place.base, after)
        return Chunk(blocks, place, loaded, ahead)

    def _load_ahead(self, layer: PlacedLayer, geometry: Geometry, reduction: ReductionSlice) -> int:
        """Fetch the first of a COMPUTE's weights; returns how many beats.

        At most a quarter of the ring: with more the program could hang (`gen.lowering`).
        """
        beats = layer.mapped.beats_ahead(self._weights.beats(geometry, reduction), reduction)
        ahead = min(beats, self._config.weight_depth // 4)
        self._weights.load(layer, reduction.offset, ahead)
        return ahead
