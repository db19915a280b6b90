"""Layers one after the other that hand on whole tensors in the input buffer (docs/datapath.md, Whole tensors).

Small maps take a layer less time than it takes the first of them to be stored, loaded and padded. Where such a tensor
stays in the buffer, the next layer begins when its first output tile has been stored there, and loads weights alone.
A depthwise layer in windows finds rows with padding around them (`WindowRows`), a pointwise layer one long row
(`Strips`), or rows if that is how it hands on its own result.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, combinations, pairwise
from typing import TypeGuard

from cores.arch.isa import Queue
from cores.config import NpuConfig
from gen.lowering.buffer_allocation import BufferAllocation, Chunk
from gen.lowering.mapped import MappedLayer, PlacedLayer
from gen.lowering.placed import in_buffer
from gen.lowering.steps import MappedGraph, Step
from gen.lowering.tiles import Tiles
from gen.lowering.verify import rows_of
from gen.mapping.gather import GatherMapping
from gen.mapping.pack import is_spread
from gen.mapping.plain import ConvMapping, PlainMapping
from gen.mapping.pool import PoolMapping
from gen.mapping.trial import Trial
from gen.mapping.windows import WindowGeometry, WindowMapping, in_windows
from gen.memory.placement import Kept, RowsPlacement, Strips, WindowRows
from gen.memory.region import Lifetime
from gen.tiling.geometry import MAX_BLOCKS, MAX_KERNEL, Geometry, SpatialTile, part_counts, split
from gen.tiling.schedule import Plan

__all__ = ["WholeLayer", "keep_whole"]

#: Layers hand on tensors whole if they take this share of their cycles at most: what is around them can change by the
#: rest.
_GAIN = 0.98


_Layer = ConvMapping | PoolMapping

#: Ways that are tried out.
_CANDIDATES = 4
#: Tiles are tried that take this part of an accumulator bank.
_SHARES = (1, 2, 4)


@dataclass(frozen=True, eq=False)
class WholeLayer(Step):
    """A layer that finds its input in the input buffer, or leaves its result there, or both."""

    mapping: _Layer
    #: The form of its input, if that is there.
    source: Kept | None
    #: The form of its result, if that stays there, and the layer that reads it.
    target: Kept | None
    reader: _Layer | None
    #: The reader and the layer that reads its result, if that stays there, too: its padding is loaded in advance.
    beyond: tuple[_Layer, _Layer] | None = None
    #: How many steps before it the place of its result is free.
    lead: int = 0

    @property
    def layers(self) -> tuple[MappedLayer, ...]:
        return (self.mapping,)

    @property
    def kept(self) -> Mapping[str, Kept]:
        return {} if self.target is None else {self.mapping.layer.output: self.target}

    @property
    def ahead(self) -> Mapping[str, int]:
        return dict.fromkeys(self.kept, self.lead)

    @property
    def follows_loads(self) -> bool:
        return True

    @cached_property
    def plan(self) -> tuple[object, ...]:
        """What its cycles depend on beside its mapping."""
        return self.source, self.target, self.lead, self.beyond is None

    def emit(self, tiles: Tiles, placed: Sequence[PlacedLayer]) -> None:
        rooms, output = tiles.chunks.rooms, self.mapping.layer.output
        if self.target is not None and output not in rooms:
            assert self.reader is not None
            _take(tiles, placed[0], output, self.reader)
        if self.source is None:
            # Its own loads wait for stores, as a rule.
            _prepare(tiles, placed[0], self.beyond)
            self.mapping.emit(tiles, placed[0])
        else:
            self._compute(tiles, placed[0], rooms.pop(self.mapping.input))
            _prepare(tiles, placed[0], self.beyond)

    def _compute(self, tiles: Tiles, placed: PlacedLayer, room: BufferAllocation) -> None:
        mapping, plan, config = self.mapping, self.mapping.plan, tiles.config
        if isinstance(mapping, PoolMapping):
            return _pool(tiles, placed, mapping, room)
        # After all loads so far, so that what it stores comes after them, too (`Step.follows_loads`).
        loaded = tiles.emitter.count(Queue.LOAD) - 1
        windows = isinstance(mapping, WindowMapping)
        sets = list(zip(mapping.output_blocks(1 if windows else config.oc_groups), mapping.tiles, strict=True))
        for spatial in plan.spatial_tiles:
            at = BufferAllocation(room.base + spatial.x // config.banks, room.size)
            chunk = Chunk(range(1 if windows else mapping.input_blocks), at, loaded)
            for number, (blocks, slices) in enumerate(sets):
                tile = tiles.begin(placed, plan.geometry, spatial, blocks,
                                   spread=plan.spread and number == len(sets) - 1)
                # The first one follows what is stored, as it comes.
                parts = chunk.blocks[::config.oc_groups if number == 0 else len(chunk.blocks)]
                for low, high in pairwise((*parts, chunk.blocks.stop)):
                    for reduction in slices if windows else tiles.weights.cut(plan.geometry, slices, range(low, high)):
                        tile.compute(reduction, chunk, row=spatial.y * plan.geometry.stride[0])
                tile.end()
        room.last_reader = tiles.last_compute


def _pool(tiles: Tiles, placed: PlacedLayer, mapping: PoolMapping, room: BufferAllocation) -> None:
    """The values of a map as one long row, in pieces."""
    plan, banks, loaded = mapping.plan, tiles.config.banks, tiles.emitter.count(Queue.LOAD) - 1
    (spatial,) = plan.spatial_tiles
    for blocks in mapping.output_blocks(1):
        tile = tiles.begin(placed, plan.geometry, spatial, blocks)
        for number, piece in enumerate(plan.pieces, start=1):
            form = plan.geometry.piece(0, 0, *piece)
            box = replace(form.spatial_tile(0, 1, 0, 1, tiles.config), row_pitch=spatial.row_pitch)
            at = room.base + blocks.start * spatial.entries + piece[1][0] // banks
            tile.pool(form, box, Chunk(blocks, BufferAllocation(at, spatial.entries), loaded),
                      maximum=mapping.layer.maximum, first=number == 1, last=number == len(plan.pieces))
    room.last_reader = tiles.last_compute


@dataclass(frozen=True, eq=False)
class WholeAfter(Step):
    """Layers that are a step together, and leave the last one's result in the input buffer; as of `WholeLayer`."""

    step: Step
    target: Kept
    reader: _Layer
    beyond: tuple[_Layer, _Layer] | None
    lead: int

    @property
    def layers(self) -> Sequence[MappedLayer]:
        return self.step.layers

    @property
    def kept(self) -> Mapping[str, Kept]:
        return {**self.step.kept, self.layers[-1].layer.output: self.target}

    @property
    def ahead(self) -> Mapping[str, int]:
        return {self.layers[-1].layer.output: self.lead}

    @cached_property
    def plan(self) -> tuple[object, ...]:
        """What its cycles depend on beside its mappings."""
        return getattr(self.step, "plan", None), self.lead, self.beyond is None

    def emit(self, tiles: Tiles, placed: Sequence[PlacedLayer]) -> None:
        _take(tiles, placed[-1], self.layers[-1].layer.output, self.reader)
        _prepare(tiles, placed[-1], self.beyond)
        self.step.emit(tiles, placed)


def _prepare(tiles: Tiles, placed: PlacedLayer, beyond: tuple[_Layer, _Layer] | None) -> None:
    """Take the room of a tensor that the next step writes, if it does, the result of the first of ``beyond``."""
    if beyond is not None:
        layer, reader = beyond
        _take(tiles, placed, layer.layer.output, reader)


def _take(tiles: Tiles, placed: PlacedLayer, name: str, reader: _Layer) -> None:
    """Take the room of a tensor, and load what lies around its rows."""
    at = tiles.tensors[name]
    assert at.space == "buffer"
    form = at.rows if isinstance(at, RowsPlacement) else at.strips
    room, freed = tiles.chunks.ring.take_at(at.offset, form.entries)
    tiles.chunks.rooms[name] = room
    if not isinstance(at, RowsPlacement):
        return
    first, last = reader.plan.spatial_tiles[0], reader.plan.spatial_tiles[-1]
    top, end = first.pad_top, first.pad_top + at.rows.height
    columns = range(at.rows.left + at.rows.width + first.pad_right)
    around = PlacedLayer(placed.number, reader, 0, 0)
    right = columns[at.rows.left + at.rows.width:]
    for rows, part in ((range(top, end), columns[:at.rows.left]), (range(top, end), right), (range(top), columns),
                       (range(end, end + last.pad_bottom), columns)):
        if rows and part:
            tiles.chunks.pad(around, at, rows, part, freed)


# -- which, and how --------------------------------------------------------------------------------------------------


def keep_whole(trial: Trial, mapped: MappedGraph) -> MappedGraph:
    """``mapped`` with tensors that stay in the input buffer as a whole where that is faster, by the time model;
    ``trial``: of each layer by itself.
    """
    apart = trial.mapped
    layers = [step.layers[0] for step in apart.steps]
    stays = [_stays(apart, layers, number) for number in range(len(layers) - 1)]
    steps, number = list(mapped.steps), 0
    while number < len(steps):
        # Steps from this one on between and in which all tensors may stay.
        first = end = sum(len(step.layers) for step in steps[:number])
        last = number
        while last < len(steps) and all(stays[end - (last > number):end + len(steps[last].layers) - 1]):
            end, last = end + len(steps[last].layers), last + 1
        joined = None
        if end - first > 1:
            in_front = number > 0 and first > 0 and stays[first - 1]
            joined = _best_part(trial, layers[first:end], steps, range(number, last), in_front=in_front)
        if joined is None:
            number = max(last, number + 1)
            continue
        places, found = joined
        steps[places.start:places.stop] = found
        number = places.start + len(found)
    return replace(mapped, steps=steps)


def _best_part(trial: Trial, layers: Sequence[MappedLayer], steps: Sequence[Step], places: range, *,
               in_front: bool) -> tuple[range, list[Step]] | None:
    """Of the ``steps`` at ``places``, which have these ``layers``, those that had better hand on their tensors whole,
    and what they become; ``in_front``: what the step before them writes may stay, too.
    """
    config = trial.mapped.config
    before, behind = _around(steps, places)
    bounds = list(accumulate((len(step.layers) for step in steps[places.start:places.stop]), initial=0))
    now = _ends(trial, before, steps[places.start:places.stop], behind)
    ways = dict[tuple[int, int], tuple[float, int]]()
    for share in _SHARES:
        words = config.acc_depth // share
        whole = whole_steps(config, layers, words, early=False)
        if whole is not None and _fits(trial.mapped, [*before, *whole, *behind]):
            ends = _ends(trial, before, whole, behind)
            if now is None or ends is None:
                continue
            gains = [now[n] - ends[bound] for n, bound in enumerate(bounds)]
            for low, high in combinations(range(len(bounds)), 2):
                if bounds[high] - bounds[low] > 1:
                    ways[low, high] = max(ways.get((low, high), (-math.inf, 0)), (gains[high] - gains[low], words))
    best, found = 0.0, None
    for (low, high), (_, words) in sorted(ways.items(), key=lambda way: way[1], reverse=True)[:_CANDIDATES]:
        part = layers[bounds[low]:bounds[high]]
        for after in (None, *([steps[places.start + low - 1]] if low or in_front else [])):
            start, stop = places.start + low - (after is not None), places.start + high
            these = [*(after.layers[-1:] if after else ()), *part]
            forms = (whole_steps(config, these, words, early=early, after=after) for early in (True, False))
            joined = next((form for form in forms if form and _fits(
                trial.mapped, [*steps[:start], *form, *steps[stop:]])), None)
            if joined is None:
                continue
            before, behind = _around(steps, range(start, stop))
            least = max(best, (1 - _GAIN) * trial.cycles(steps[start + (after is not None):stop]))
            apart = trial.cycles([*before, *steps[start:stop], *behind])
            together = trial.cycles([*before, *joined, *behind], apart - least)
            if together < apart - least:
                best, found = apart - together, (range(start, stop), joined)
    return found


def _ends(trial: Trial, before: Sequence[Step], steps: Sequence[Step], behind: Sequence[Step]) -> list[int] | None:
    """When what is ``before`` is done, and when each of the ``steps`` is, as `Trial.ends`."""
    ends = trial.ends([*before, *steps, *behind])
    return None if ends is None else [0, *ends][len(before):]


def _around(steps: Sequence[Step], places: range) -> tuple[Sequence[Step], Sequence[Step]]:
    """The steps before and after those at ``places``; of those before as many as find their input in the input buffer,
    and one that loads it.
    """
    first = max(0, places.start - 1)
    while first and steps[first].layers[0].input in steps[first - 1].kept:
        first -= 1
    return steps[first:places.start], steps[places.stop:places.stop + 1]


def _fits(mapped: MappedGraph, steps: Sequence[Step]) -> bool:
    """Whether there is room for all that stays in the input buffer beside what is loaded meanwhile."""
    whole = replace(mapped, steps=steps)
    buffer, kept = in_buffer(whole), whole.kept
    return all(buffer.room(Lifetime(number, number)) >= max(
        (0, *(_needs(layer, mapped.config) for layer in step.layers if layer.input not in kept)))
        for number, step in enumerate(steps))


def _needs(layer: MappedLayer, config: NpuConfig) -> int:
    """Entries of a layer's input that must be there at the same time; all of the buffer if that is not known."""
    if not isinstance(layer, ConvMapping):
        return config.input_depth
    plan = layer.plan
    return max(tile.entries for tile in plan.spatial_tiles) * (layer.input_blocks if plan.held else plan.chunk)


def _stays(mapped: MappedGraph, layers: Sequence[MappedLayer], number: int) -> bool:
    """Whether the layer after ``number`` alone reads its result, and both can do without memory for it."""
    one, other = layers[number:number + 2]
    name, layer = one.layer.output, other.layer
    if not (isinstance(one, PlainMapping | GatherMapping | WindowMapping | PoolMapping)
            and isinstance(other, ConvMapping | PoolMapping)):
        return False
    if layer.input != name or layer.operands != (name,) or name in (*layer.others, *mapped.packed):
        return False
    if one.layer.repeats != (1, 1) or one.layer.windows != (1, 1) or name in mapped.shared:
        return False
    if mapped.readers[name] != 1 or layer.repeats != (1, 1) or layer.windows != (1, 1):
        return False
    # Three of them are there at the same time.
    found = _laid(mapped.config, other, None, mapped.config.acc_depth, kept=True)
    return found is not None and found[1] is not None and found[1].entries <= mapped.config.input_depth // 3


def whole_steps(config: NpuConfig, layers: Sequence[MappedLayer], words: int, *,
                early: bool = True, after: Step | None = None) -> list[Step] | None:
    """Layers one after the other, each of which finds the result of the one before in the input buffer; None where that
    cannot be. ``words``: those of an accumulator bank that a tile takes at most; ``early``: the places of the first two
    tensors are free before the first step, so that its loads do not wait behind those of padding; ``after``: the step
    that the first layer is the last one of.
    """
    made = list[tuple[_Layer, Kept | None]]()      # from the last on, and the form of the input
    form: Kept | None = None
    for number in reversed(range(len(layers))):
        found = (_laid(config, layers[number], form, words, kept=number > 0) if number or after is None
                 else _last(config, layers[0], form))
        if found is None:
            return None
        made.append(found)
        form = found[1]
    made.reverse()
    steps = list[Step]()
    for number, (mapping, source) in enumerate(made):
        target, reader = (made[number + 1][1], made[number + 1][0]) if number + 1 < len(made) else (None, None)
        beyond = None
        if number + 2 < len(made) and isinstance(made[number + 2][1], WindowRows):
            beyond = made[number + 1][0], made[number + 2][0]
        lead = min(number, 1) + (early and number < 2)
        if after is None or number:
            steps.append(WholeLayer(mapping, source, target, reader, beyond, lead))
        else:
            assert target is not None and reader is not None
            steps.append(WholeAfter(after, target, reader, beyond, lead))
    return steps


def _laid(config: NpuConfig, layer: MappedLayer, target: Kept | None, words: int, *,
          kept: bool) -> tuple[_Layer, Kept | None] | None:
    """A layer whose result has the form ``target``, and the form of its input, None unless that is ``kept``."""
    if isinstance(layer, PoolMapping):
        return _pooling(config, layer, target) if kept else None
    if not isinstance(layer, ConvMapping):
        return None
    conv = layer.layer
    if not kept:
        return _loading(config, layer, target, words)
    if conv.depthwise:
        windows = in_windows(layer)
        return None if windows is None else _in_rows(config, windows, target, words)
    if not (_is_pointwise(layer) and layer.takes_kept and layer.input_blocks <= MAX_BLOCKS):
        return None
    mapping = _pointwise(config, layer, words, in_rows=isinstance(target, WindowRows))
    if mapping is None:
        return None
    (_, height, width), blocks = layer.source.shape, layer.input_blocks
    if isinstance(target, WindowRows):
        pitch = mapping.plan.spatial_tiles[0].row_pitch
        return _relaid(mapping, pitch, height), WindowRows(
            blocks, height, width, 0, pitch, height, ((0, height, 0),), config.banks)
    strips = Strips(blocks, (0,), height * width, 1, config.banks)
    return _relaid(mapping, strips.pitches[0], 1), strips


def _is_pointwise(layer: ConvMapping) -> TypeGuard[PlainMapping]:
    """Whether a layer reads a pixel at a time, with all channels, and its map is one long row."""
    geometry = layer.plan.geometry
    return (isinstance(layer, PlainMapping) and not layer.layer.depthwise and geometry.output_size[0] == 1
            and (geometry.kernel, geometry.stride) == ((1, 1), (1, 1)) and not any(layer.layer.pads))


def _suit(config: NpuConfig, layer: MappedLayer, tiles: Sequence[SpatialTile], target: Kept | None) -> bool:
    """Whether results of these spatial tiles can be stored in the form ``target``."""
    width = layer.target.shape[2]
    if isinstance(target, WindowRows):
        return all(rows_of(layer, tile) is not None for tile in tiles)
    return target is None or all(
        (tile.rows == 1 or tile.cols == width) and (tile.y * width + tile.x) % config.banks == 0 for tile in tiles)


def _last(config: NpuConfig, layer: MappedLayer, target: Kept | None) -> tuple[ConvMapping, None] | None:
    """The last layer of a step as it is, if its result can be stored in the form ``target``."""
    assert target is not None
    if not isinstance(layer, ConvMapping):
        return None
    return (layer, None) if _suit(config, layer, layer.spatial_tiles, target) else None


def _pooling(config: NpuConfig, layer: PoolMapping, target: Kept | None) -> tuple[PoolMapping, Strips] | None:
    """A layer with one window, all of its map, as a long row."""
    pool, (_, height, width) = layer.layer, layer.source.shape
    if pool.kernel != (height, width) or any(pool.pads) or layer.target.shape[1:] != (1, 1):
        return None
    pixels, most = height * width, MAX_KERNEL // config.banks * config.banks
    # The neighbours of a window are read as well, beyond the last block: that is the second place.
    strips = Strips(-(-layer.source.shape[0] // config.ic_lanes), (0,), pixels, 2, config.banks)
    geometry = Geometry((1, pixels), (1, 1), (0, 0, 0, 0), (1, pixels), (1, 1))
    spatial = replace(geometry.spatial_tile(0, 1, 0, 1, config), row_pitch=strips.pitches[0])
    pieces = tuple(((0, 1), (first, min(most, pixels - first))) for first in range(0, pixels, most))
    if not _suit(config, layer, [spatial], target):
        return None
    return replace(layer, plan=Plan(geometry, (spatial,), 1, False, False, 0, 0, pieces)), strips


def _relaid(mapping: ConvMapping, pitch: int, rows: int) -> ConvMapping:
    tiles = tuple(replace(tile, row_pitch=pitch, buffer_rows=rows) for tile in mapping.plan.spatial_tiles)
    return replace(mapping, plan=replace(mapping.plan, spatial_tiles=tiles))


def _pointwise(config: NpuConfig, layer: PlainMapping, words: int, *, in_rows: bool) -> PlainMapping | None:
    """A pointwise layer in few spatial tiles: rows of the map, or parts of one long row."""
    geometry, (_, height, width) = layer.plan.geometry, layer.source.shape
    if in_rows:
        geometry = replace(geometry, input_size=(height, width), output_size=(height, width))
    units, columns = geometry.output_size
    spread = is_spread(layer.layer, len(layer.tiles) - 1, config) and columns > config.pixel_lanes
    alone = spread and len(layer.tiles) == 1
    for count in part_counts(units if in_rows else -(-columns // config.banks)):
        tiles = tuple(geometry.spatial_tile(start, size, 0, columns, config) if in_rows
                      else geometry.spatial_tile(0, 1, start, size, config)
                      for start, size in split(units if in_rows else columns, count, 1 if in_rows else config.banks))
        if all(geometry.fits(tile, config) and geometry.words(tile, config, spread=alone) <= words
               for tile in tiles):
            return replace(layer, plan=Plan(geometry, tiles, layer.input_blocks, True, spread, 0, 0))
    return None


def _in_rows(config: NpuConfig, windows: WindowMapping, target: Kept | None,
             words: int) -> tuple[WindowMapping, WindowRows] | None:
    """A depthwise layer that reads whole rows in the input buffer, and their form."""
    (_, height, width), (_, out_height, out_width) = windows.source.shape, windows.target.shape
    # With a kernel of 1x1 it has the map as one long row.
    geometry = replace(_unbanded(config, windows), input_size=(height, width), output_size=(out_height, out_width))
    left = geometry.pads[1]
    for count in part_counts(-(-out_height // geometry.word_rows)):
        tiles = [geometry.spatial_tile(y, rows, 0, out_width, config)
                 for y, rows in split(out_height, count, geometry.word_rows)]
        if tiles[-1].row + tiles[-1].data_rows < height or any(not tile.data_rows for tile in tiles):
            return None
        depth = max(tiles[0].pad_top + height + tiles[-1].pad_bottom,
                    *(tile.y * geometry.stride[0] + tile.buffer_rows for tile in tiles))
        pitch = max(tiles[0].row_pitch, -(-(left + width) // config.banks))
        laid = tuple(replace(tile, row_pitch=pitch, buffer_rows=depth) for tile in tiles)
        if all(geometry.fits(tile, config) and geometry.words(tile, config) <= words
               for tile in laid) and _suit(config, windows, laid, target):
            rows = WindowRows(len(windows.tiles), height, width, left, pitch, depth,
                              ((0, height, tiles[0].pad_top),), config.banks)
            plan = Plan(geometry, laid, len(windows.tiles), False, False, 0, 0)
            return replace(windows, plan=plan), rows
    return None


def _loading(config: NpuConfig, layer: ConvMapping, target: Kept | None, words: int) -> tuple[ConvMapping, None] | None:
    """A layer that loads its input, in tiles that suit the form of its result."""
    plan = layer.plan
    if _suit(config, layer, layer.spatial_tiles, target):
        return layer, None
    if isinstance(layer, WindowMapping):
        return _loading_windows(config, layer, target, words)
    if not _is_pointwise(layer):
        return None
    mapping = _pointwise(config, layer, words, in_rows=isinstance(target, WindowRows))
    if mapping is None:
        return None
    chunk = min(layer.input_blocks, plan.chunk)
    entries = max(tile.entries for tile in mapping.plan.spatial_tiles) * layer.input_blocks
    held = len(layer.tiles) > 1 and 2 * entries <= config.input_depth
    return replace(mapping, plan=replace(mapping.plan, chunk=chunk, held=held)), None


def _loading_windows(config: NpuConfig, layer: WindowMapping, target: Kept | None,
                     words: int) -> tuple[ConvMapping, None] | None:
    """Of whole rows, a few blocks at a time."""
    geometry, most = _unbanded(config, layer), config.input_depth // 3
    height, width = geometry.output_size
    for count in part_counts(-(-height // geometry.word_rows)):
        tiles = tuple(geometry.spatial_tile(y, rows, 0, width, config)
                      for y, rows in split(height, count, geometry.word_rows))
        if all(geometry.fits(tile, config) and geometry.words(tile, config) <= words and tile.entries <= most
               for tile in tiles) and _suit(config, layer, tiles, target):
            chunk = max(1, min(layer.plan.chunk, most // max(tile.entries for tile in tiles)))
            plan = replace(layer.plan, geometry=geometry, spatial_tiles=tiles, chunk=chunk)
            return replace(layer, plan=plan), None
    return None


def _unbanded(config: NpuConfig, layer: WindowMapping) -> WindowGeometry:
    """Its geometry, of which each spatial tile is stored as a whole."""
    geometry = layer.plan.geometry
    assert isinstance(geometry, WindowGeometry)
    return replace(geometry, band_words=config.acc_depth)
