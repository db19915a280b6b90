"""From planned layers to instructions.

Order of the program. Each output tile (one STORE) is emitted as

    for each chunk:  LOAD_ACT, COMPUTE, LOAD_WGT        (COMPUTEs; one POOL for a pooled tile)
    then, for the tile before it:  STORE, LOAD_SIDE

so that the load queue fetches a tile ahead, and the side data of a STORE never delays what the array needs next.

Why it cannot hang. The order is one in which the instructions could run one after the other, rings aside: every token is
posted by an instruction further up (the emitter asserts it), and the dispatcher goes through the program in this order,
so the first unfinished instruction is always at the head of its queue with its tokens there. Rings:

* LOAD_WGT may stand still while the weight ring is full. The ring then holds weights of COMPUTEs that are further up or
  its own, all of which have their activations: a COMPUTE's weights follow its activations. Where weights are fetched
  ahead of activations (those wait for a STORE), they are at most a quarter of the ring, and so fit once those COMPUTEs are done.
* LOAD_SIDE may stand still while the side ring is full. Its STORE is further up, and all that the STORE's tile needs is
  issued: side data follow all activations and weights of their tile.
* A LOAD that waits for a COMPUTE or STORE of an earlier tile is preceded by that tile's STORE and side data, and a POOL's
  STORE and side data follow it at once: the pool unit stands still without them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cores.config import NpuConfig
from cores.isa import Opcode, Queue
from gen.emitter import BufferRing, Emitter, TensorWrites
from gen.ir import Conv, Graph, Layer, Pool
from gen.pack import PARAMETER_BEATS, PackedWeights, Pass, step_beats
from gen.program import Placement
from gen.schedule import Plan, Window

__all__ = ["Lowering"]

# Limits of the instruction fields (cores/isa.py).
_MAX_WEIGHT_BEATS = (1 << 24) - 1
_MAX_BLOCKS = 1023


@dataclass(eq=False)
class _Tile:
    """An output tile whose STORE is still to be emitted."""

    number: int
    layer: int
    window: Window
    first_block: int
    blocks: int
    bank: int
    pooled: bool
    computed: int


@dataclass(eq=False)
class _Chunk:
    """Channel blocks ``first..end`` in the input buffer."""

    first: int
    end: int
    place: list[int]
    loaded: int


@dataclass(eq=False)
class Lowering:
    """Emits the layers of a graph, in order; ``weights`` and ``parameters`` are beat offsets of the layers' constants."""

    graph: Graph
    config: NpuConfig
    tensors: dict[str, Placement]
    packed: Sequence[PackedWeights | None]
    weight_offsets: Sequence[int]
    parameter_offsets: Sequence[int]
    emitter: Emitter = field(default_factory=Emitter)

    def __post_init__(self) -> None:
        self._ring = BufferRing(self.config.input_depth)
        self._writes = {name: TensorWrites() for name in self.tensors}
        self._tiles = 0
        self._pending: list[_Tile] = []
        #: Tile of each COMPUTE or POOL, STORE of each tile, last STORE of each accumulator bank.
        self._tile_of_compute: list[int] = []
        self._store_of_tile: dict[int, int] = {}
        self._bank_tile = [-1, -1]
        self._bank = 0

    # -- layers --------------------------------------------------------------------------------------------------

    def layer(self, index: int, plan: Plan) -> None:
        """Emit one layer."""
        layer = self.graph.layers[index]
        self.emitter.layer = index
        if isinstance(layer, Conv):
            packed = self.packed[index]
            assert packed is not None
            self._conv(index, layer, plan, packed)
        else:
            self._pool(index, layer, plan)

    def finish(self) -> None:
        """Emit what is still open."""
        self._flush(self._tiles)

    def _conv(self, index: int, layer: Conv, plan: Plan, packed: PackedWeights) -> None:
        config = self.config
        in_blocks = -(-self.graph.tensors[layer.input].shape[0] // config.ic_lanes)
        out_blocks = -(-self.graph.tensors[layer.output].shape[0] // config.ic_lanes)
        last = len(packed.tiles) - 1
        for number, window in enumerate(plan.windows):
            chunks: list[_Chunk] = []
            if plan.held and window.entries * in_blocks <= config.input_depth // 2 and not self._ring.room_ahead(window.entries * in_blocks):
                self._ring.restart()  # in one piece, so that one COMPUTE can cover it
            elif plan.held and window.entries * in_blocks > config.input_depth // 2:
                self._make_room(window, in_blocks, plan.chunk)
            for tile, passes in enumerate(packed.tiles):
                first = tile * config.oc_groups
                needed = (first, min(first + config.oc_groups, in_blocks)) if layer.depthwise else (0, in_blocks)
                loading = tile == 0 or not plan.held
                # Chunk by chunk while loading, and when the places are wanted for the next tile's input.
                by_chunk = loading or (tile == last and number + 1 < len(plan.windows))
                self._conv_tile(index, layer, plan, window, passes, needed, chunks, loading=loading, by_chunk=by_chunk,
                                release=tile == last or not plan.held)
                if not plan.held:
                    chunks = []
                done = self.emitter.count(Queue.COMPUTE) - 1
                self._close_tile(index, window, first, min(config.oc_groups, out_blocks - first), pooled=False, computed=done)

    def _make_room(self, window: Window, blocks: int, chunk: int) -> None:
        """Begin at the buffer's start if the turn-around would leave too little for a held tile."""
        size, at, waste = self.config.input_depth, self._ring.position, 0
        for start in range(0, blocks, chunk):
            entries = window.entries * min(chunk, blocks - start)
            if at + entries > size:
                waste, at = size - at, 0
            at += entries
        if window.entries * blocks + waste > size:
            self._ring.restart()

    def _conv_tile(self, index: int, layer: Conv, plan: Plan, window: Window, passes: Sequence[Pass], needed: tuple[int, int],
                   chunks: list[_Chunk], *, loading: bool, by_chunk: bool, release: bool) -> None:
        """One output tile: its loads and COMPUTEs. Fills ``chunks`` when loading."""
        number = self._tiles
        bank = self._bank
        free = {Queue.STORE: self._store_of_tile[self._bank_tile[bank]]} if self._bank_tile[bank] >= 0 else {}
        first = 1
        if loading:
            starts = range(needed[0], needed[1], plan.chunk)
            segments: list[tuple[int, int]] = [(start, min(start + plan.chunk, needed[1])) for start in starts]
        elif by_chunk:
            segments = [(chunk.first, chunk.end) for chunk in chunks]
        else:
            segments = _joined(chunks, window.entries)
        for low, high in segments:
            work = [part for item in passes for part in [self._cut(plan, item, low, high)] if part]
            if not work and not plan.held:
                continue
            ahead = 0
            if loading:
                chunk, ahead = self._load_chunk(index, layer.input, plan, window, low, high, pad_value=self.graph.tensors[layer.input].zero_point,
                                                weights=work)
                chunks.append(chunk)
            chunk = next(c for c in chunks if c.first <= low < c.end)
            loaded = max(c.loaded for c in chunks if c.first < high)
            for part in work:
                self._compute_set(plan, window)
                self.emitter.emit(
                    Opcode.COMPUTE, after={Queue.LOAD: loaded, **free},
                    buf_base=chunk.place[0] + (part.block - chunk.first) * window.entries, blocks=part.blocks, groups=part.groups,
                    indexed=int(part.indexed), first=first, bank=bank)
                self._tile_of_compute.append(number)
                first = 0
                beats = self._pass_beats(plan, part)
                self._load_weights(index, part.offset + ahead, beats - ahead)
                ahead = 0
            if release:
                for c in chunks:
                    if low <= c.first < high:
                        c.place[2] = self.emitter.count(Queue.COMPUTE) - 1

    def _pool(self, index: int, layer: Pool, plan: Plan) -> None:
        blocks = -(-self.graph.tensors[layer.input].shape[0] // self.config.ic_lanes)
        for window in plan.windows:
            for low in range(0, blocks, plan.chunk):
                high = min(low + plan.chunk, blocks)
                chunk, _ = self._load_chunk(index, layer.input, plan, window, low, high, pad_value=layer.pad_value, weights=())
                self._compute_set(plan, window)
                done = self.emitter.emit(Opcode.POOL, after={Queue.LOAD: chunk.loaded}, buf_base=chunk.place[0], blocks=high - low,
                                         maximum=int(layer.maximum))
                self._tile_of_compute.append(self._tiles)
                chunk.place[2] = done
                self._close_tile(index, window, low, high - low, pooled=True, computed=done)

    # -- loads ---------------------------------------------------------------------------------------------------

    def _load_chunk(self, index: int, tensor: str, plan: Plan, window: Window, low: int, high: int, *, pad_value: int,
                    weights: Sequence[Pass]) -> tuple[_Chunk, int]:
        """LOAD_ACT of blocks ``low..high``. Where it waits for a STORE the first weights go ahead; returns their beats too."""
        height, width = plan.geometry.input_size
        place, freed = self._ring.take(window.entries * (high - low))
        start = window.row * width + window.col
        row_pitch = plan.geometry.row_skip * width if window.data_rows > 1 else 0
        tile = -1
        if window.data_rows:
            end = start + (window.data_rows - 1) * row_pitch + window.data_cols
            tile = self._writes[tensor].last((low, high), (start, end))
        # What this load waits for must be further up in the program, with all that it needs itself.
        freed = self.emitter.recent(Queue.COMPUTE, freed)
        waits = max(tile, min(self._tile_of_compute[freed], self._tiles - 1) if freed >= 0 else -1)
        self._flush(waits)
        after = {}
        ahead = 0
        if freed >= 0:
            after[Queue.COMPUTE] = freed
        if tile >= 0:
            after[Queue.STORE] = self.emitter.recent(Queue.STORE, self._store_of_tile[tile])
            if weights and self.emitter.waits(Queue.LOAD, Queue.STORE, after[Queue.STORE]):
                ahead = min(self._pass_beats(plan, weights[0]), self.config.weight_depth // 4)
                self._load_weights(index, weights[0].offset, ahead)
        self.emitter.set(
            Opcode.LOAD_SET, cols=window.data_cols, row_pitch=row_pitch, block_pitch=height * width, pad_left=window.pad_left,
            pad_right=window.pad_right, pad_value=pad_value, stride=plan.geometry.stride[1], buf_row_pitch=window.row_pitch,
            buf_block_pitch=window.entries)
        loaded = self.emitter.emit(
            Opcode.LOAD_ACT, after=after, offset=self.tensors[tensor].offset + low * height * width + start, buf_base=place[0],
            blocks=high - low, rows=window.data_rows, pad_top=window.pad_top, pad_bottom=window.pad_bottom)
        return _Chunk(low, high, place, loaded), ahead

    def _cut(self, plan: Plan, item: Pass, low: int, high: int) -> Pass | None:
        """The part of a pass within input blocks ``low..high``."""
        start, end = max(item.block, low), min(item.block + item.blocks, high)
        if start >= end:
            return None
        before = replace(item, blocks=start - item.block)
        return replace(item, block=start, blocks=end - start, offset=item.offset + self._pass_beats(plan, before))

    def _pass_beats(self, plan: Plan, part: Pass) -> int:
        taps = plan.geometry.kernel[0] * plan.geometry.kernel[1]
        return part.blocks * taps * part.groups * step_beats(self.config, part.indexed)

    def _load_weights(self, index: int, offset: int, beats: int) -> None:
        while beats > 0:
            count = min(beats, _MAX_WEIGHT_BEATS)
            self.emitter.emit(Opcode.LOAD_WGT, offset=self.weight_offsets[index] + offset, beats=count)
            offset, beats = offset + count, beats - count

    def _compute_set(self, plan: Plan, window: Window) -> None:
        self.emitter.set(
            Opcode.COMPUTE_SET, kernel_h=plan.geometry.kernel[0], kernel_w=plan.geometry.kernel[1], stride=plan.geometry.stride[1],
            rows=window.rows, cols=window.cols, buf_row_pitch=window.row_pitch, buf_row_step=plan.geometry.buffer_row_step(window),
            buf_block_pitch=window.entries)

    # -- stores --------------------------------------------------------------------------------------------------

    def _close_tile(self, index: int, window: Window, first_block: int, blocks: int, *, pooled: bool, computed: int) -> None:
        """End an output tile: emit the STORE of the one before it, and its own at once if it is pooled."""
        tile = _Tile(self._tiles, index, window, first_block, blocks, 0 if pooled else self._bank, pooled, computed)
        self._flush(tile.number - 1)
        self._pending.append(tile)
        if not pooled:
            self._bank_tile[self._bank] = tile.number
            self._bank ^= 1
        width = self.graph.tensors[self.graph.layers[index].output].shape[2]
        start = window.y * width + window.x
        end = start + (window.rows - 1) * width + window.cols
        self._writes[self.graph.layers[index].output].add(tile.number, (first_block, first_block + blocks), (start, end))
        self._tiles += 1
        if pooled:
            self._flush(tile.number)

    def _flush(self, through: int) -> None:
        """Emit STORE and side data of all open tiles up to number ``through``."""
        while self._pending and self._pending[0].number <= through:
            self._store(self._pending.pop(0))

    def _store(self, tile: _Tile) -> None:
        layer: Layer = self.graph.layers[tile.layer]
        outer, self.emitter.layer = self.emitter.layer, tile.layer
        _, height, width = self.graph.tensors[layer.output].shape
        window, requantize, residual = tile.window, layer.requantize, layer.residual
        pixels, start = height * width, window.y * width + window.x
        self.emitter.set(
            Opcode.STORE_SET, rows=window.rows, cols=window.cols, row_pitch=width, block_pitch=pixels,
            zero_point=requantize.zero_point, low=requantize.low, high=requantize.high, add=int(residual is not None))
        if residual:
            self.emitter.set(
                Opcode.STORE_ADD, multiplier_a=residual.multiplier_a, multiplier_b=residual.multiplier_b, constant=residual.constant,
                shift=residual.shift, zero_point=residual.zero_point, low=residual.low, high=residual.high)
        offset = self.tensors[layer.output].offset + tile.first_block * pixels + start
        # A pooled STORE runs beside its POOL; any other begins when its sums are final.
        self._store_of_tile[tile.number] = self.emitter.emit(
            Opcode.STORE, after={} if tile.pooled else {Queue.COMPUTE: tile.computed}, offset=offset, blocks=tile.blocks,
            bank=tile.bank, pooled=int(tile.pooled))
        parameters = self.parameter_offsets[tile.layer] + tile.first_block * PARAMETER_BEATS
        if not residual:
            for low in range(0, tile.blocks, 256):
                count = min(256, tile.blocks - low) * PARAMETER_BEATS
                self.emitter.emit(Opcode.LOAD_SIDE, offset=parameters + low * PARAMETER_BEATS, cols=count, rows=1, row_pitch=0)
        else:
            end = start + (window.rows - 1) * width + window.cols
            for block in range(tile.blocks):
                self.emitter.emit(Opcode.LOAD_SIDE, offset=parameters + block * PARAMETER_BEATS, cols=PARAMETER_BEATS, rows=1, row_pitch=0)
                channel_block = tile.first_block + block
                wrote = self._writes[residual.other].last((channel_block, channel_block + 1), (start, end))
                self.emitter.emit(
                    Opcode.LOAD_SIDE, after={Queue.STORE: self.emitter.recent(Queue.STORE, self._store_of_tile[wrote])} if wrote >= 0 else {},
                    offset=self.tensors[residual.other].offset + channel_block * pixels + start, cols=window.cols, rows=window.rows,
                    row_pitch=width)
        self.emitter.layer = outer


def _joined(chunks: Sequence[_Chunk], entries: int) -> list[tuple[int, int]]:
    """Block ranges of chunks that follow one another in the buffer."""
    segments: list[list[int]] = []
    behind = -1
    for chunk in chunks:
        if segments and chunk.place[0] == behind and chunk.end - segments[-1][0] <= _MAX_BLOCKS:
            segments[-1][1] = chunk.end
        else:
            segments.append([chunk.first, chunk.end])
        behind = chunk.place[0] + (chunk.end - chunk.first) * entries
    return [(low, high) for low, high in segments]
