"""Pointwise and depthwise layers as one pass: the tensors between them stay in the input buffer (docs/datapath.md,
Chains).

A chain has a layer tap by tap, the depthwise layer after it in windows, and perhaps the pointwise layer after that. It
is cut into *bands*, whole rows of the depthwise layer's output with all channels. The first layer's rows lie in the
buffer with padding around them, as windows read them (`WindowRows`), and bands take turns in the same places. Rows that
two bands need are made once; where the next band begins again at the first place, they are stored a second time.

A turn makes the first layer's rows of the next band, then the last layer's part of this band, then the windows of the
next one. So what an accumulator bank holds is stored while the array works on something else, and windows of a band
come before the rows that take its place.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, groupby, product

from cores.config import NpuConfig
from gen.ir.graph import Conv, Graph
from gen.ir.queries import count_readers
from gen.lowering.buffer_allocation import BufferAllocation, Chunk
from gen.lowering.mapped import MappedLayer, PlacedLayer
from gen.lowering.placed import in_buffer
from gen.lowering.steps import MappedGraph, Step
from gen.lowering.tiles import Tiles
from gen.mapping.fused import fusable
from gen.mapping.gather import GatherMapping
from gen.mapping.pack import is_spread
from gen.mapping.plain import ConvMapping, PlainMapping
from gen.mapping.trial import Trial
from gen.mapping.windows import WindowGeometry, WindowMapping, WindowWeights
from gen.memory.placement import Kept, RowsPlacement, Strips, WindowRows
from gen.memory.region import Lifetime
from gen.options import CompileOptions
from gen.tiling.geometry import Geometry, SpatialTile, split
from gen.tiling.schedule import COMPUTE_OVERHEAD, LATENCY, WINDOW_OVERHEAD, Plan, step_pace, store_cycles
from gen.tiling.weights import PARAMETER_BEATS, ReductionSlice

__all__ = ["ChainPlan", "ChainedLayers", "chain"]

#: Cycles of the store engine from a STORE to the next: an estimate.
_STORE_GAP = 26
#: Layers are put in a chain if they take this share of the cycles at most: what is around them can change by the rest.
_GAIN = 0.98
#: Only what is reckoned to take less than this share of the layers' own reckoning, which is high, is tried.
_PROMISING = 0.98
#: Tilings that are tried out.
_CANDIDATES = 3
#: Cycles from the last beat of a local STORE until what waits for it has begun: an estimate.
_TOKEN = 30


@dataclass(frozen=True)
class Band:
    """Rows of the depthwise layer's output, and what they take."""

    spatial: SpatialTile
    #: First row of the room that its windows read, and how many they may read.
    place: int
    span: int
    #: The first layer's tiles that bring what the bands before it have not.
    made: tuple[SpatialTile, ...]


@dataclass(frozen=True)
class ChainPlan:
    """The tiling of the layers of a chain."""

    first: Plan
    depthwise: Plan
    #: The bands as the last layer's tiles.
    last: Plan | None
    rows: WindowRows
    #: The last layer's input.
    strips: Strips | None
    bands: tuple[Band, ...]
    #: Windows of a band are made between the steps of the last layer's tiles, which suits a last layer that takes the
    #: array long; not after them.
    between: bool = False
    cycles: float = 0.0

    @property
    def right(self) -> int:
        """Columns of padding after each row."""
        tile = self.bands[0].spatial
        return tile.pad_right

    @property
    def bottom(self) -> range:
        """Rows of the room that are padding below the last band."""
        band = self.bands[-1]
        first = band.place + band.spatial.pad_top + band.spatial.data_rows
        return range(first, first + band.spatial.pad_bottom)


@dataclass(frozen=True, eq=False)
class ChainedLayers(Step):
    """Two or three layers, each of which reads what the one before makes from the input buffer."""

    first: ConvMapping
    depthwise: WindowMapping
    last: PlainMapping | None
    plan: ChainPlan

    @property
    def layers(self) -> tuple[MappedLayer, ...]:
        return (self.first, self.depthwise, *([] if self.last is None else [self.last]))

    @property
    def kept(self) -> Mapping[str, Kept]:
        found: dict[str, Kept] = {self.first.layer.output: self.plan.rows}
        if self.plan.strips is not None:
            found[self.depthwise.layer.output] = self.plan.strips
        return found

    def emit(self, tiles: Tiles, placed: Sequence[PlacedLayer]) -> None:
        plan, bands, chunks = self.plan, self.plan.bands, tiles.chunks
        at = tiles.tensors[self.first.layer.output]
        assert isinstance(at, RowsPlacement)
        room, freed = chunks.ring.take_at(at.offset, at.rows.entries)
        padded = self._pad(tiles, placed[1], at, freed)
        self._make(tiles, placed[0], bands[0])
        #: Of each band the last COMPUTE that reads its windows.
        readers = [_all(tiles, self._windows(tiles, placed[1], bands[0], room, padded))]
        for number in range(len(bands)):
            following = bands[number + 1] if number + 1 < len(bands) else None
            if following is bands[-1] and (late := self._late()) >= 0:
                padded = chunks.pad(placed[1], at, plan.bottom, self._columns(at), readers[late])
            if following is not None:
                self._make(tiles, placed[0], following)
            coming = None if following is None else self._windows(tiles, placed[1], following, room, padded)
            if self.last is not None:
                self._finish(tiles, placed[2], number, coming if plan.between else None)
            if coming is not None:
                readers.append(_all(tiles, coming))
        room.last_reader = readers[-1]

    def _columns(self, at: RowsPlacement) -> range:
        return range(at.rows.left + at.rows.width + self.plan.right)

    def _late(self) -> int:
        """The last band whose rows lie where padding is below the last band; -1 for none."""
        bottom = self.plan.bottom
        return max((number for number, band in enumerate(self.plan.bands[:-1]) if bottom and band.place < bottom.stop
                    and bottom.start < band.place + band.span), default=-1)

    def _pad(self, tiles: Tiles, depthwise: PlacedLayer, at: RowsPlacement, freed: int) -> int:
        """Load what lies around the rows, as far as it stays; returns the last LOAD_ACT's index."""
        form, plan, index = at.rows, self.plan, -1
        columns, top = self._columns(at), plan.bands[0]
        above = range(top.place, top.place + top.spatial.pad_top)
        for rows, part in ((range(form.depth), columns[:form.left]),
                           (range(form.depth), columns[form.left + form.width:]),
                           (above, columns), (plan.bottom if self._late() < 0 else range(0), columns)):
            if rows and part:
                index = tiles.chunks.pad(depthwise, at, rows, part, freed)
        return index

    def _make(self, tiles: Tiles, placed: PlacedLayer, band: Band) -> None:
        """The first layer's rows of a band."""
        first, plan = self.first, self.plan.first
        blocks = range(plan.chunk)
        for spatial in band.made:
            chunk = tiles.chunks.load(placed, plan.geometry, spatial, blocks,
                                      tiles.weights.cut(plan.geometry, first.tiles[0], blocks))
            _compute(tiles, placed, first, plan, spatial, chunk)

    def _windows(self, tiles: Tiles, placed: PlacedLayer, band: Band, room: BufferAllocation,
                 padded: int) -> Iterator[None]:
        """Emit the depthwise layer's part of a band, one output tile each time."""
        plan, chunk = self.plan.depthwise, Chunk(range(self.plan.rows.blocks), room, padded)
        for block, slices in enumerate(self.depthwise.tiles):
            tile = tiles.begin(placed, plan.geometry, band.spatial, range(block, block + 1))
            for reduction in slices:
                tile.compute(reduction, chunk, row=band.place)
            tile.end()
            yield

    def _finish(self, tiles: Tiles, placed: PlacedLayer, number: int, coming: Iterator[None] | None) -> None:
        """The last layer's part of a band, with ``coming`` output tiles shared out evenly between its steps."""
        last, plan = self.last, self.plan.last
        assert last is not None and plan is not None
        spatial = plan.spatial_tiles[number]
        chunk = tiles.chunks.load(placed, plan.geometry, spatial, range(plan.chunk))
        _compute(tiles, placed, last, plan, spatial, chunk, coming, self.plan.rows.blocks if coming else 0)


def _all(tiles: Tiles, coming: Iterator[None]) -> int:
    """Emit all output tiles that are left; returns the last COMPUTE's index."""
    for _ in coming:
        pass
    return tiles.last_compute


def _compute(tiles: Tiles, placed: PlacedLayer, mapping: ConvMapping, plan: Plan, spatial: SpatialTile, chunk: Chunk,
             coming: Iterator[None] | None = None, count: int = 0) -> None:
    """All output tiles of a spatial tile whose input is there, with ``count`` others between their steps."""
    total = len(mapping.tiles)
    for number, (blocks, slices) in enumerate(
            zip(mapping.output_blocks(tiles.config.oc_groups), mapping.tiles, strict=True)):
        tile = tiles.begin(placed, plan.geometry, spatial, blocks, spread=plan.spread and number == total - 1)
        # The tile keeps its bank, others pass through the other one.
        others, low = count * (number + 1) // total - count * number // total, chunk.blocks.start
        for made in range(others + 1):
            high = chunk.blocks.start + len(chunk.blocks) * (made + 1) // (others + 1)
            for reduction in tiles.weights.cut(plan.geometry, slices, range(low, high)):
                tile.compute(reduction, chunk)
            low = high
            if made < others and coming is not None:
                next(coming)
        tile.end()
    chunk.place.last_reader = tiles.last_compute


# -- which, and how --------------------------------------------------------------------------------------------------


def _chainable(graph: Graph, first: MappedLayer, second: MappedLayer) -> bool:
    """Whether the depthwise layer ``second`` alone reads what ``first`` makes, and can read it in the buffer."""
    one, other = first.layer, second.layer
    if not (isinstance(first, PlainMapping | GatherMapping) and isinstance(second, ConvMapping)):
        return False
    assert isinstance(one, Conv) and isinstance(other, Conv)
    if one.depthwise or not other.depthwise or other.input != one.output or other.operands != (one.output,):
        return False
    if any(op.cycles != 1 for op in (*one.epilogue, *other.epilogue)) or one.others or other.others:
        return False
    if not one.repeats == one.windows == other.repeats == other.windows == (1, 1):
        return False
    if other.weights.shape[2:] == (1, 1) or graph.tensors[one.output].part is not None:
        return False
    outputs = {tensor for tensor, _ in graph.outputs.values()}
    return count_readers(graph)[one.output] == 1 and one.output not in outputs


def chain(apart: MappedGraph, mapped: MappedGraph, options: CompileOptions) -> MappedGraph:
    """``mapped`` with layers in chains where that is faster, by the time model; ``apart``: each layer by itself."""
    if not mapped.config.local_store or (options.depthwise, options.fusion) != ("auto", "auto"):
        return mapped
    trial, buffer = Trial(apart), in_buffer(apart)
    ends = list(accumulate((len(step.layers) for step in mapped.steps), initial=0))
    gains = list[tuple[range, float, Sequence[Step]]]()     # of steps, what they become
    for number in range(len(apart.steps) - 1):
        life = Lifetime(number, number)
        for count, group in groupby(chains(apart, number, partial(buffer.room, life)), lambda way: len(way.layers)):
            first, last = bisect_right(ends, number) - 1, bisect_left(ends, number + count)
            before, behind = mapped.steps[max(0, first - 1):first], mapped.steps[last:last + 1]
            left, right = apart.steps[ends[first]:number], apart.steps[number + count:ends[last]]
            now = [step for step in mapped.steps[first:last]]
            # By themselves, to see whether any is good; then with their neighbours, whose waiting they decide.
            limit = _GAIN * trial.cycles(now)
            ways = [way for way in group if trial.cycles([*left, way, *right], limit) < limit]
            if not ways:
                continue
            whole = trial.cycles([*before, *now, *behind])
            for way in ways:
                steps = [*left, way, *right]
                cycles = trial.cycles([*before, *steps, *behind], _GAIN * whole)
                if cycles < _GAIN * whole:
                    gains.append((range(first, last), whole - cycles, steps))
    return replace(mapped, steps=_with_gains(mapped.steps, gains))


def _with_gains(steps: Sequence[Step], gains: Sequence[tuple[range, float, Sequence[Step]]]) -> list[Step]:
    """``steps``, some replaced: those changes that together gain most."""
    best: list[tuple[float, list[Step]]] = [(0.0, [])]      # of so many steps
    for end in range(1, len(steps) + 1):
        gain, found = best[-1]
        ways = [(gain, [*found, steps[end - 1]])]
        ways += [(best[places.start][0] + gain, [*best[places.start][1], *changed])
                 for places, gain, changed in gains if places.stop == end]
        best.append(max(ways, key=lambda way: way[0]))
    return best[-1][1]


def chains(mapped: MappedGraph, number: int, known: Callable[..., int]) -> Iterator[ChainedLayers]:
    """Ways that are worth a trial to make a chain of the layers from ``number`` on, those of two layers first;
    ``known``: room beside what is kept meanwhile.
    """
    layers = [step.layers[0] for step in mapped.steps[number:number + 3]]
    if len(layers) < 2:
        return
    first, second = layers[:2]
    if not _chainable(mapped.graph, first, second):
        return
    assert isinstance(first, ConvMapping) and isinstance(second, ConvMapping)
    config = mapped.config
    geometry = WindowGeometry.fitting(second.layer, second.source, second.target, config)
    if geometry is None or geometry.phases > 1:
        return
    taps = WindowWeights(second.layer, geometry, config)
    windows = WindowMapping(
        layer=second.layer, source=second.source, target=second.target, config=config, requantize=second.requantize,
        plan=second.plan, tiles=taps.tiles, taps=taps)
    third = layers[2] if len(layers) > 2 else None
    lasts: list[PlainMapping | None] = [None]
    if isinstance(third, PlainMapping) and fusable(mapped.graph, second.layer, third.layer):
        lasts.append(third)
    for last in lasts:
        written = {layer.layer.output for layer in (first, second, last) if layer is not None}
        if written & mapped.packed:
            continue
        limit = _PROMISING * sum(layer.plan.cycles for layer in (first, second, last) if layer is not None)
        yield from (way for way in _ways(first, windows, geometry, last, config, known) if way.plan.cycles < limit)


# -- plans -----------------------------------------------------------------------------------------------------------


def _ways(first: ConvMapping, windows: WindowMapping, geometry: WindowGeometry, last: PlainMapping | None,
          config: NpuConfig, known: Callable[..., int]) -> list[ChainedLayers]:
    """The best tilings, by the cycles reckoned."""
    found = list[ChainedLayers]()
    plain = first.plan.geometry
    if plain.output_size != geometry.input_size:    # one long row
        plain = replace(plain, input_size=geometry.input_size, output_size=geometry.input_size)
    spread = is_spread(first.layer, len(first.tiles) - 1, config) and geometry.input_size[1] > config.pixel_lanes
    pointwise = None if last is None else Geometry.of(last.layer, last.source, last.target)
    height = geometry.output_size[0]
    seen = set()
    for count in range(1, -(-height // geometry.word_rows) + 1):
        parts = split(height, count, geometry.word_rows)
        if parts[0][1] in seen:
            continue
        seen.add(parts[0][1])
        ways = [turns for turns in (2, 3) if turns < len(parts)] + [len(parts)]
        for turns, between in product(ways, (False,) if last is None else (False, True)):
            plan = _plan(first, windows, last, config, plain, geometry, pointwise, parts, turns, spread, between)
            if plan is None:
                continue
            room = known(plan.rows, *([] if plan.strips is None else [plan.strips]))
            inputs = max(tile.entries for tile in plan.first.spatial_tiles) * plan.first.chunk
            if inputs > room:
                continue
            step = ChainedLayers(
                replace(first, plan=plan.first), replace(windows, plan=plan.depthwise),
                None if last is None or plan.last is None else replace(last, plan=plan.last), plan)
            cycles = _Reckoning(step, config, double=2 * inputs <= room).cycles()
            found.append(replace(step, plan=replace(plan, cycles=cycles)))
    found.sort(key=lambda step: step.plan.cycles)
    return found[:_CANDIDATES]


def _plan(first: ConvMapping, windows: WindowMapping, last: PlainMapping | None, config: NpuConfig, plain: Geometry,
          geometry: WindowGeometry, pointwise: Geometry | None, parts: Sequence[tuple[int, int]], turns: int,
          spread: bool, between: bool) -> ChainPlan | None:
    """A tiling in bands of these rows, with room for ``turns`` of them; None where it does not fit the instructions."""
    (height, width), (_, out_width) = geometry.input_size, geometry.output_size
    tiles = [geometry.spatial_tile(y, rows, 0, out_width, config) for y, rows in parts]
    starts = [y * geometry.stride[0] - geometry.pads[0] for y, _ in parts]
    ends = [tile.row + tile.data_rows for tile in tiles]
    if ends[-1] < height or any(tile.data_rows == 0 for tile in tiles):
        return None
    spans = [tile.buffer_rows for tile in tiles]
    depth = (turns - 1) * parts[0][1] * geometry.stride[0] + max(spans)
    places, bands = [0], list[Band]()
    runs, made = [], list[list[tuple[int, int]]]()
    for number, start in enumerate(starts):
        new = ends[number - 1] if number else 0
        if number:
            place = places[-1] + start - starts[number - 1]
            if place + spans[number] > depth:
                # From the first row again: rows that both bands need are stored twice.
                place, again = 0, new - start
                if start < 0 or again < 0 or places[-1] < again or start < made[-1][0][0]:
                    return None
                if again:
                    runs.append((start, again, place))
                    begin = made[-1][0][0]
                    made[-1] = [part for part in ((begin, start - begin), (start, again)) if part[1]]
            places.append(place)
        if new >= ends[number]:
            return None
        runs.append((new, ends[number] - new, places[-1] + new - start))
        made.append([(new, ends[number] - new)])
    left = geometry.pads[1]
    pitch = max(tiles[0].row_pitch, -(-(left + width) // config.banks))
    rows = WindowRows(len(windows.tiles), height, width, left, pitch, depth, tuple(runs), config.banks)
    all_spread = spread and len(first.tiles) == 1
    most = config.acc_depth // plain.words(plain.spatial_tile(0, 1, 0, width, config), config, spread=all_spread)
    if not most:
        return None
    groups = [tuple(plain.spatial_tile(y + at, rows, 0, width, config)
                    for y, count in band for at, rows in split(count, -(-count // most), 1)) for band in made]
    laid = [replace(tile, row_pitch=pitch, buffer_rows=depth) for tile in tiles]
    bands = [Band(*band) for band in zip(laid, places, spans, groups, strict=True)]
    flat = [tile for group in groups for tile in group]
    fits = (all(geometry.fits(tile, config) and geometry.words(tile, config) <= config.acc_depth for tile in laid)
            and all(plain.fits(tile, config) for tile in flat))
    last_plan = strips = None
    if last is not None and pointwise is not None:
        ones = [pointwise.spatial_tile(0, 1, y * out_width, count * out_width, config) for y, count in parts]
        last_spread = (is_spread(last.layer, len(last.tiles) - 1, config)
                       and pointwise.output_size[1] > config.pixel_lanes)
        fits = fits and all(
            pointwise.fits(tile, config)
            and pointwise.words(tile, config, spread=last_spread and len(last.tiles) == 1) <= config.acc_depth
            for tile in ones)
        strips = Strips(len(windows.tiles), tuple(tile.x for tile in ones), pointwise.output_size[1],
                        min(1 + between, len(ones)), config.banks)
        last_plan = Plan(pointwise, tuple(ones), len(windows.tiles), True, last_spread, 0, 0)
    if not fits:
        return None
    form = replace(geometry, band_words=config.acc_depth)
    blocks = plain.input_blocks(first.source.shape[0], config)
    return ChainPlan(Plan(plain, tuple(flat), blocks, True, spread, 0, 0),
                     Plan(form, tuple(laid), len(windows.tiles), False, False, 0, 0), last_plan, rows, strips,
                     tuple(bands), between)


class _Clock:
    """Output tiles one after the other, in two accumulator banks."""

    def __init__(self) -> None:
        self.array = self.store = 0.0
        #: When each bank has been stored.
        self._free, self._last = [0.0, 0.0], 1
        self._taken = [False, False]

    def begin(self) -> int:
        """A bank for a tile, once it is free."""
        bank = 1 - self._last
        bank = 1 - bank if self._taken[bank] else bank
        self._taken[bank] = True
        self.array = max(self.array, self._free[bank])
        return bank

    def end(self, bank: int, store: float) -> float:
        """A tile's sums are final; returns when it has been stored."""
        self.store = self._free[bank] = max(self.store, self.array) + store + _STORE_GAP
        self._taken[bank], self._last = False, bank
        return self.store


class _Reckoning:
    """Cycles of a chain. ``double``: there is room for the next part of its input."""

    def __init__(self, step: ChainedLayers, config: NpuConfig, *, double: bool) -> None:
        self.step, self.plan, self.config, self.double = step, step.plan, config, double
        self.clock, self.load = _Clock(), 2.0 * LATENCY
        #: Of the first layer's output tiles of a band, when each can be read.
        self.made: list[float] = []

    def cycles(self) -> float:
        plan, form, last = self.plan, self.plan.rows, self.step.last
        columns, after = form.left + form.width, (form.left + form.width) % self.config.banks + 1
        self.load += form.blocks * (form.depth * (form.left + (after if plan.right else 0))
                                    + plan.bands[0].spatial.pad_top * (columns + plan.right))
        self._make(plan.bands[0])
        for _ in self._windows(plan.bands[0]):
            pass
        for number in range(len(plan.bands)):
            following = plan.bands[number + 1] if number + 1 < len(plan.bands) else None
            ready = self.clock.store + _TOKEN
            if following is not None:
                self._make(following)
            coming = None if following is None else self._windows(following)
            if last is not None and plan.last is not None:
                self._tiles(last, plan.last, plan.last.spatial_tiles[number], 1, ready,
                            coming if plan.between else None)
            for _ in coming or ():
                pass
        return max(self.clock.store, self.load) + LATENCY

    def _make(self, band: Band) -> None:
        plan, first = self.plan.first, self.step.first
        self.made = []
        for tile in band.made:
            self.load = max(self.load, 0.0 if self.double else self.clock.array)
            self.load += plan.geometry.load_cycles(tile, plan.chunk, self.config)
            times = sum(low <= tile.y < low + count for low, count, _ in self.plan.rows.runs)
            self.made = self._tiles(first, plan, tile, times, self.load)

    def _tiles(self, mapping: ConvMapping, plan: Plan, tile: SpatialTile, times: int, ready: float,
               coming: Iterator[None] | None = None) -> list[float]:
        clock, config, stored = self.clock, self.config, []
        others, pace = len(mapping.others), store_cycles(mapping.layer, config)
        total = len(mapping.tiles)
        for number, (blocks, slices) in enumerate(
                zip(mapping.output_blocks(config.oc_groups), mapping.tiles, strict=True)):
            words = plan.geometry.step_cycles(tile, config, spread=plan.spread and number == total - 1)
            compute = sum(item.blocks * item.groups * plan.geometry.steps(config) * step_pace(
                words, item.step_beats(config), config) + COMPUTE_OVERHEAD for item in slices)
            beats, count = len(blocks) * tile.rows * tile.cols, 0
            bank = clock.begin()
            clock.array = max(clock.array, ready)
            if coming is not None:
                form = self.plan.rows.blocks
                count = form * (number + 1) // total - form * number // total
            for made in range(count + 1):
                clock.array += compute / (count + 1)
                if made < count and coming is not None:
                    next(coming)
            stored.append(clock.end(bank, times * beats * pace) + _TOKEN)
            self.load += _weights(plan.geometry, slices, config) + others * beats
            self.load += len(blocks) * PARAMETER_BEATS * times
        return stored

    def _windows(self, band: Band) -> Iterator[None]:
        geometry, clock, config, made = self.plan.depthwise.geometry, self.clock, self.config, self.made
        pace = step_pace(geometry.step_cycles(band.spatial, config), config.weight_beats, config)
        for block, slices in enumerate(self.step.depthwise.tiles):
            bank = clock.begin()
            clock.array = max(clock.array, made[min(block // config.oc_groups, len(made) - 1)])
            clock.array += sum(geometry.steps(config, item.rows) for item in slices) * pace
            clock.array += len(slices) * WINDOW_OVERHEAD
            clock.end(bank, band.spatial.rows * band.spatial.cols)
            self.load += _weights(geometry, slices, config) + PARAMETER_BEATS
            yield


def _weights(geometry: Geometry, slices: Sequence[ReductionSlice], config: NpuConfig) -> float:
    """Beats of the weights of an output tile."""
    return sum(item.blocks * geometry.steps(config, item.rows) * item.groups * item.step_beats(config)
               for item in slices)
