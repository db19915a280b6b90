"""From planned layers to instructions.

Order of the program. Each output tile (one STORE) is emitted as

    for each chunk:  LOAD_ACT, COMPUTE, LOAD_WGT        (COMPUTEs; one POOL for a pooled tile)
    then, for the tile before it:  STORE, LOAD_SIDE

so that the load queue fetches a tile ahead, and the side data of a STORE never delays what the array needs next.

Why it cannot hang. The order is one in which the instructions could run one after the other, rings aside: every token
is posted by an instruction further up (the emitter asserts it), and the dispatcher goes through the program in this
order, so the first unfinished instruction is always at the head of its queue with its tokens there. Rings:

* LOAD_WGT may stand still while the weight ring is full. The ring then holds weights of COMPUTEs that are further up or
  its own, all of which have their activations: a COMPUTE's weights follow its activations. Where weights are fetched
  ahead of activations (those wait for a STORE), they are at most a quarter of the ring, and so fit once those COMPUTEs
  are done.
* LOAD_SIDE may stand still while the side ring is full. Its STORE is further up, and all that the STORE's tile needs is
  issued: side data follow all activations and weights of their tile.
* A LOAD that waits for a COMPUTE or STORE of an earlier tile is preceded by that tile's STORE and side data, and a
  POOL's STORE and side data follow it at once: the pool unit stands still without them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cores.config import NpuConfig
from cores.isa import Instruction, Opcode, Queue
from gen.binary import SignSource
from gen.depthwise import WindowGeometry
from gen.emitter import Emitter
from gen.fusion import FusedPlan
from gen.gather import GatherGeometry, load_pieces
from gen.geometry import MAP_PIXELS, MAX_BLOCKS, Window, largest_field
from gen.ir import Conv, Graph, Pool, pad_value
from gen.memory import Memory
from gen.pack import PackedWeights, Pass
from gen.places import BufferRing, Place
from gen.schedule import Plan
from gen.sign_loads import load_signs
from gen.stores import OutputTile, Stores
from gen.winograd import POSITIONS, WinogradGeometry

__all__ = ["Lowering"]

_MAX_WEIGHT_BEATS = largest_field(Opcode.LOAD_WGT, "beats")


@dataclass(frozen=True, eq=False)
class _Chunk:
    """Channel blocks ``first..end`` in the input buffer; ``loaded`` is the position of their LOAD_ACT."""

    first: int
    end: int
    place: Place
    loaded: int


class Lowering:
    """Emits the layers of a graph, in order; ``signs``: where those on the binary unit, by name, have their input."""

    def __init__(self, graph: Graph, config: NpuConfig, memory: Memory, signs: Mapping[str, SignSource]) -> None:
        self._graph, self._config, self._memory, self._signs = graph, config, memory, signs
        self._emitter = Emitter()
        self._stores = Stores(graph, memory.tensors, memory.parameter_offsets, self._emitter)
        self._ring = BufferRing(config.input_depth)
        #: Output tile of each COMPUTE and POOL.
        self._tile_of_compute: list[int] = []
        #: The accumulator bank of the next tile, and the last tile in each.
        self._bank = 0
        self._bank_tile = [-1, -1]
        #: The output tile in hand is made with ``spread``.
        self._narrow = False

    def layers(self, plans: Sequence[Plan], packed: Sequence[PackedWeights | None],
               fused: Mapping[int, FusedPlan]) -> None:
        """Emit all layers. ``packed``: the weights of convolutions; ``fused``: layers that are with the one behind."""
        for index, (plan, weights) in enumerate(zip(plans, packed, strict=True)):
            if index in fused and weights and (behind := packed[index + 1]):
                self.fused(index, fused[index], weights, behind)
            elif index - 1 in fused:
                continue
            elif weights is None:
                self.pooling(index, plan)
            elif isinstance(plan.geometry, WindowGeometry):
                self.windows(index, plan, weights)
            else:
                self.convolution(index, plan, weights)

    def convolution(self, index: int, plan: Plan, packed: PackedWeights) -> None:
        """Emit layer ``index``, a Conv."""
        layer, config = self._graph.layers[index], self._config
        assert isinstance(layer, Conv)
        self._emitter.layer = index
        in_blocks = plan.geometry.input_blocks(self._graph.tensors[layer.input].shape[0], config)
        if layer.name in self._signs:
            in_blocks = self._signs[layer.name].blocks
        out_blocks = -(-self._graph.tensors[layer.output].shape[0] // config.ic_lanes)
        last = len(packed.tiles) - 1
        for number, window in enumerate(plan.windows):
            if plan.held:
                self._begin_held(window.entries, in_blocks, plan.chunk)
            chunks: list[_Chunk] = []
            for tile, passes in enumerate(packed.tiles):
                first = tile * config.oc_groups
                self._narrow = plan.narrow and tile == last
                needed = (first, min(first + config.oc_groups, in_blocks)) if layer.depthwise else (0, in_blocks)
                if tile == 0 or not plan.held:
                    chunks = self._load_and_compute(index, plan, window, passes, needed)
                else:
                    # By chunks where their places are wanted for the next window's input.
                    leaving = tile == last and number + 1 < len(plan.windows)
                    self._compute_held(index, plan, window, passes, chunks, by_chunk=leaving)
                if tile == last or not plan.held:
                    self._release(chunks)
                self._end_tile(OutputTile(
                    index, window, first, min(config.oc_groups, out_blocks - first), self._bank, False,
                    self._last_compute, plan.geometry.store_fields(window, config, narrow=self._narrow)))

    def windows(self, index: int, plan: Plan, packed: PackedWeights) -> None:
        """Emit layer ``index``, a depthwise Conv in windows: each channel block is an output tile."""
        self._emitter.layer = index
        self._narrow = False
        geometry, blocks = plan.geometry, len(packed.tiles)
        assert isinstance(geometry, WindowGeometry)
        for window in plan.windows:
            for low in range(0, blocks, plan.chunk):
                high = min(low + plan.chunk, blocks)
                place, freed = self._ring.take(window.entries * (high - low))
                for rows in geometry.parts(window, self._config):
                    chunk, ahead = self._load_chunk(index, plan, rows, low, high, packed.tiles[low], place, freed)
                    for block in range(low, high):
                        for number, part in enumerate(packed.tiles[block]):
                            self._compute(index, plan, rows, part, chunk, chunk.loaded, number == 0, ahead,
                                          geometry.first_row(window, rows))
                            ahead = 0
                        self._end_tile(OutputTile(index, rows, block, 1, self._bank, False, self._last_compute,
                                                  geometry.store_fields(rows, self._config)))
                place.last_reader = self._last_compute

    def fused(self, index: int, plan: FusedPlan, windows: PackedWeights, packed: PackedWeights) -> None:
        """Emit layers ``index``, depthwise in windows, and ``index + 1``, which reads it from the input buffer."""
        config, pointwise, blocks = self._config, plan.pointwise, len(windows.tiles)
        out_blocks = -(-self._graph.tensors[self._graph.layers[index + 1].output].shape[0] // config.ic_lanes)
        first_entry = config.input_depth - plan.places * plan.place_entries
        self._ring.limit = first_entry
        bases = [first_entry + unit % plan.places * plan.place_entries for unit in range(len(pointwise.windows))]
        tiles = self._local_tiles(index, plan, windows, bases)
        made: list[int] = []    # numbers of the depthwise output tiles so far
        for unit, (window, base) in enumerate(zip(pointwise.windows, bases, strict=True)):
            place, _ = self._ring.take_at(base, plan.place_entries)
            chunk = _Chunk(0, blocks, place, -1)
            for tile, passes in enumerate(packed.tiles):
                self._narrow = pointwise.narrow and tile == len(packed.tiles) - 1
                low, first, bank = 0, True, -1
                for count, high in plan.pieces(unit, tile):
                    # Between parts of this tile, which keeps its bank, others pass through the other one.
                    while len(made) < count:
                        if bank >= 0:
                            self._bank = 1 - bank
                        made.append(next(tiles))
                    self._emitter.layer = index + 1
                    for part in self._cut(pointwise, passes, low, high):
                        bank = self._bank if bank < 0 else bank
                        self._bank = bank
                        needed = made[unit * blocks + part.block + part.blocks - 1]
                        self._compute(index + 1, pointwise, window, part, chunk, -1, first, 0, needed=needed)
                        first = False
                    low = high
                first_block = tile * config.oc_groups
                self._end_tile(OutputTile(
                    index + 1, window, first_block, min(config.oc_groups, out_blocks - first_block), bank, False,
                    self._last_compute, pointwise.geometry.store_fields(window, config, narrow=self._narrow)))
            place.last_reader = self._last_compute
        self._ring.limit = config.input_depth

    def _local_tiles(self, index: int, plan: FusedPlan, packed: PackedWeights, bases: Sequence[int]) -> Iterator[int]:
        """Emit a depthwise layer's output tiles, one each time, and give their numbers.

        Unit ``n`` goes to the input buffer at ``bases[n]``.
        """
        geometry, blocks, chunks = plan.depthwise.geometry, len(packed.tiles), plan.depthwise.chunk
        assert isinstance(geometry, WindowGeometry)
        unit = 0
        for window in plan.depthwise.windows:
            parts = geometry.parts(window, self._config)
            for number, rows in enumerate(parts):
                entries = plan.pointwise.windows[unit].entries
                for low in range(0, blocks, chunks):
                    high = min(low + chunks, blocks)
                    self._emitter.layer = index
                    if number == 0:
                        place, freed = self._ring.take(window.entries * (high - low))
                    chunk, ahead = self._load_chunk(index, plan.depthwise, rows, low, high, packed.tiles[low], place,
                                                    freed)
                    for block in range(low, high):
                        self._emitter.layer = index
                        for count, part in enumerate(packed.tiles[block]):
                            self._compute(index, plan.depthwise, rows, part, chunk, chunk.loaded, count == 0, ahead,
                                          geometry.first_row(window, rows))
                            ahead = 0
                        if block == high - 1 and number == len(parts) - 1:
                            place.last_reader = self._last_compute
                        self._end_tile(OutputTile(index, rows, block, 1, self._bank, False, self._last_compute,
                                                  geometry.store_fields(rows, self._config), (entries, bases[unit])))
                        # Its parameters are few, and should not queue behind the next blocks' pixels.
                        self._stores.flush(self._stores.opened - 1)
                        yield self._stores.opened - 1
                unit += 1

    def pooling(self, index: int, plan: Plan) -> None:
        """Emit layer ``index``, a Pool."""
        layer = self._graph.layers[index]
        assert isinstance(layer, Pool)
        self._emitter.layer = index
        self._narrow = False
        blocks = -(-self._graph.tensors[layer.input].shape[0] // self._config.ic_lanes)
        for window in plan.windows:
            for low in range(0, blocks, plan.chunk):
                high = min(low + plan.chunk, blocks)
                chunk, _ = self._load_chunk(index, plan, window, low, high)
                self._compute_set(plan, window)
                self._emit_compute(Opcode.POOL, {Queue.LOAD: chunk.loaded}, buf_base=chunk.place.base,
                                   blocks=high - low, maximum=int(layer.maximum))
                chunk.place.last_reader = self._last_compute
                self._end_tile(OutputTile(index, window, low, high - low, 0, True, self._last_compute))

    def finish(self) -> tuple[list[Instruction], list[int]]:
        """The program and the layer of each instruction. Raises ValueError when a field does not fit its bits."""
        self._stores.flush(self._stores.opened)
        return self._emitter.finish()

    # -- tiles ---------------------------------------------------------------------------------------------------

    @property
    def _last_compute(self) -> int:
        return self._emitter.count(Queue.COMPUTE) - 1

    def _end_tile(self, tile: OutputTile) -> None:
        """Note an output tile and emit the STORE of the one before it; its own at once if it is pooled."""
        number = self._stores.opened
        self._stores.flush(number - 1)
        self._stores.open(tile)
        if tile.pooled:
            self._stores.flush(number)
        else:
            self._bank_tile[tile.bank] = number
            self._bank = 1 - tile.bank

    def _begin_held(self, entries: int, blocks: int, chunk: int) -> None:
        """Go back to the buffer's beginning where a held tile would otherwise be cut or find too little room."""
        depth, at, waste = self._config.input_depth, self._ring.position, 0
        if entries * blocks <= depth // 2:
            # In one piece, so that one COMPUTE can cover it.
            if not self._ring.room_ahead(entries * blocks):
                self._ring.restart()
            return
        for start in range(0, blocks, chunk):
            size = entries * min(chunk, blocks - start)
            if at + size > depth:
                waste, at = depth - at, 0
            at += size
        if entries * blocks + waste > depth:
            self._ring.restart()

    def _release(self, chunks: Sequence[_Chunk]) -> None:
        """Free places that no further tile reads, unless their last reader is known to be earlier."""
        for chunk in chunks:
            if chunk.place.last_reader < 0:
                chunk.place.last_reader = self._last_compute

    # -- compute -------------------------------------------------------------------------------------------------

    def _load_and_compute(self, index: int, plan: Plan, window: Window, passes: Sequence[Pass],
                          needed: tuple[int, int]) -> list[_Chunk]:
        """The first (or only) output tile of a window: load input blocks ``needed`` chunk by chunk and compute."""
        chunks: list[_Chunk] = []
        first = True
        for low in range(*needed, plan.chunk):
            high = min(low + plan.chunk, needed[1])
            work = self._cut(plan, passes, low, high)
            if not work and not plan.held:
                continue
            chunk, ahead = self._load_chunk(index, plan, window, low, high, work)
            chunks.append(chunk)
            for part in work:
                self._compute(index, plan, window, part, chunk, chunk.loaded, first, ahead)
                first, ahead = False, 0
            if not plan.held:
                chunk.place.last_reader = self._last_compute
        return chunks

    def _compute_held(self, index: int, plan: Plan, window: Window, passes: Sequence[Pass], chunks: Sequence[_Chunk], *,
                      by_chunk: bool) -> None:
        """A further output tile of a window whose input is held in ``chunks``; frees each when done if ``by_chunk``."""
        first = True
        for group in [[chunk] for chunk in chunks] if by_chunk else _neighbours(chunks):
            for part in self._cut(plan, passes, group[0].first, group[-1].end):
                self._compute(index, plan, window, part, group[0], group[-1].loaded, first, 0)
                first = False
            # Before the tile's first COMPUTE there is none of its own to wait for: leave it to the tile's end.
            if by_chunk and not first:
                group[0].place.last_reader = self._last_compute

    def _compute(self, index: int, plan: Plan, window: Window, part: Pass, chunk: _Chunk, loaded: int, first: bool,
                 ahead: int, row: int = 0, needed: int = -1) -> None:
        """A COMPUTE and its weights, the first ``ahead`` beats of which are on their way already.

        ``row``: of the input rows in the buffer, the first that it reads. ``needed``: the output tile whose STORE
        brings the last of them there.
        """
        awaited = max(needed, self._bank_tile[self._bank])
        self._stores.flush(awaited)
        after = {Queue.LOAD: loaded, Queue.STORE: self._stores.position(awaited) if awaited >= 0 else -1}
        self._compute_set(plan, window, part.rows)
        if isinstance(plan.geometry, WinogradGeometry):
            self._compute_tiles(index, plan, window, part, chunk, after, first, ahead)
            return
        base = chunk.place.base + (part.block - chunk.first) * window.entries
        base += (row + (part.rows.start if part.rows else 0)) * window.row_pitch
        self._emit_compute(
            Opcode.COMPUTE, after, buf_base=base, blocks=part.blocks, groups=part.groups, indexed=int(part.indexed),
            first=int(first), bank=self._bank, binary=int(part.binary))
        self._load_weights(index, part.offset + ahead, self._pass_beats(plan, part) - ahead)

    def _compute_tiles(self, index: int, plan: Plan, window: Window, part: Pass, chunk: _Chunk, after: dict[Queue, int],
                       first: bool, ahead: int) -> None:
        """COMPUTEs of transformed tiles: for block, position.

        A block's weights come before them: 16 COMPUTEs fill the queue, behind which what the next block needs would
        wait too long. So would the STORE of the tile before, which therefore comes after the first block.
        """
        words = plan.geometry.words(window, self._config)
        beats = self._pass_beats(plan, replace(part, blocks=1))
        for number in range(part.blocks):
            self._load_weights(index, part.offset + number * beats + ahead, beats - ahead)
            base = chunk.place.base + (part.block + number - chunk.first) * window.entries
            for position in range(POSITIONS):
                self._emit_compute(
                    Opcode.COMPUTE, after, buf_base=base + position * window.row_pitch, blocks=1, groups=part.groups,
                    indexed=int(part.indexed), first=int(first), bank=self._bank, acc_base=position * words)
            if first:
                self._stores.flush(self._stores.opened - 1)
            first, ahead = False, 0

    def _compute_set(self, plan: Plan, window: Window, rows: range | None = None) -> None:
        fields = plan.geometry.compute_fields(window, self._config, narrow=self._narrow, rows=rows)
        self._emitter.set(Opcode.COMPUTE_SET, **fields)

    def _emit_compute(self, opcode: Opcode, after: dict[Queue, int], **fields: int) -> None:
        self._emitter.emit(opcode, after=after, **fields)
        self._tile_of_compute.append(self._stores.opened)

    def _cut(self, plan: Plan, passes: Sequence[Pass], low: int, high: int) -> list[Pass]:
        """The parts of passes within input blocks ``low..high``."""
        parts = []
        for item in passes:
            start, end = max(item.block, low), min(item.block + item.blocks, high)
            if start < end:
                skipped = self._pass_beats(plan, replace(item, blocks=start - item.block))
                parts.append(replace(item, block=start, blocks=end - start, offset=item.offset + skipped))
        return parts

    def _pass_beats(self, plan: Plan, part: Pass) -> int:
        steps = part.blocks * plan.geometry.steps(self._config, part.rows) * part.groups
        return steps * part.step_beats(self._config)

    # -- loads ---------------------------------------------------------------------------------------------------

    def _load_chunk(self, index: int, plan: Plan, window: Window, low: int, high: int,
                    work: Sequence[Pass] = (), place: Place | None = None, freed: int = -1) -> tuple[_Chunk, int]:
        """LOAD_ACT of input blocks ``low..high`` for the passes ``work``, to ``place`` (free after COMPUTE ``freed``).

        Where it waits for a STORE, weights are fetched before it; the second result is how many beats.
        """
        layer, emitter, stores = self._graph.layers[index], self._emitter, self._stores
        signs = self._signs.get(layer.name)
        height, width = plan.geometry.input_size
        if place is None:
            place, freed = self._ring.take(window.entries * (high - low))
        start = window.row * width + window.col
        row_pitch = plan.geometry.row_skip * width if window.data_rows > 1 else 0
        writer = -1
        if window.data_rows:
            end = start + (window.data_rows - 1) * row_pitch + window.data_cols
            if signs is None:
                writer = stores.last_writer(layer.input, (low, high), (start, end))
            else:
                # Beats of a map are read as a whole.
                around = MAP_PIXELS if signs.packed else 0
                writer = stores.last_writer(signs.tensor, signs.entry_blocks(low, high), (start - around, end + around))
        # What this load waits for must be further up in the program, with all that it needs itself.
        freed = emitter.recent(Queue.COMPUTE, freed)
        stores.flush(max(writer, self._tile_of_compute[freed] if freed >= 0 else -1))
        after = {Queue.COMPUTE: freed} if freed >= 0 else {}
        ahead = 0
        if writer >= 0:
            after[Queue.STORE] = emitter.recent(Queue.STORE, stores.position(writer))
            if work and emitter.waits(Queue.LOAD, Queue.STORE, after[Queue.STORE]):
                block_beats = self._pass_beats(plan, replace(work[0], blocks=1))
                ahead = min(self._pass_beats(plan, work[0]), self._config.weight_depth // 4)
                if isinstance(plan.geometry, WinogradGeometry):
                    ahead = min(ahead, block_beats)
                self._load_weights(index, work[0].offset, ahead)
        padding = pad_value(layer, self._graph.tensors[layer.input])
        if signs is not None:
            loaded = load_signs(
                emitter, self._config, signs, self._memory.tensors[signs.tensor], plan.geometry, window, (low, high),
                place.base, padding=padding if any(layer.pads) else None, after=after)
            return _Chunk(low, high, place, loaded), ahead
        if isinstance(plan.geometry, GatherGeometry):
            loaded = load_pieces(
                emitter, self._config, plan.geometry, window, (low, high), place.base,
                offset=self._memory.tensors[layer.input].offset, padding=padding, after=after)
            return _Chunk(low, high, place, loaded), ahead
        fields = dict(
            cols=window.data_cols, row_pitch=row_pitch, block_pitch=height * width, pad_left=window.pad_left,
            pad_right=window.pad_right, pad_value=padding, stride=plan.geometry.load_stride,
            buf_row_pitch=window.row_pitch, buf_block_pitch=window.entries)
        tiles = plan.geometry.tile_fields(window)
        if tiles is None:
            emitter.set_load(fields)
        else:
            emitter.set_load({**fields, "buf_row_pitch": 0}, Opcode.LOAD_WINOGRAD, dict(tiles))
        offset = self._memory.tensors[layer.input].offset + low * height * width + start
        loaded = emitter.emit(
            Opcode.LOAD_ACT, after=after, offset=offset,
            buf_base=place.base + window.buffer_row * window.row_pitch, blocks=high - low, rows=window.data_rows,
            pad_top=window.pad_top, pad_bottom=window.pad_bottom)
        return _Chunk(low, high, place, loaded), ahead

    def _load_weights(self, index: int, offset: int, beats: int) -> None:
        start = self._memory.weight_offsets[index] + offset
        for at in range(start, start + beats, _MAX_WEIGHT_BEATS):
            self._emitter.emit(Opcode.LOAD_WGT, offset=at, beats=min(_MAX_WEIGHT_BEATS, start + beats - at))


def _neighbours(chunks: Sequence[_Chunk]) -> list[list[_Chunk]]:
    """Chunks that lie one behind the other in the buffer, together: one COMPUTE can cover them."""
    groups: list[list[_Chunk]] = []
    for chunk in chunks:
        before = groups[-1][-1].place if groups else None
        if before and before.base + before.size == chunk.place.base and chunk.end - groups[-1][0].first <= MAX_BLOCKS:
            groups[-1].append(chunk)
        else:
            groups.append([chunk])
    return groups
