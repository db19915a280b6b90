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
from itertools import accumulate, groupby

from cores.config import NpuConfig
from gen.ir.graph import Conv
from gen.lowering.buffer_allocation import BufferAllocation, Chunk
from gen.lowering.mapped import MappedLayer, PlacedLayer
from gen.lowering.placed import in_buffer
from gen.lowering.steps import MappedGraph, Step
from gen.lowering.tiles import Tiles
from gen.mapping.chain_plans import Band, ChainPlan, tilings_of_chain
from gen.mapping.chain_reckoning import Reckoning
from gen.mapping.fused import fusable
from gen.mapping.gather import GatherMapping
from gen.mapping.plain import ConvMapping, PlainMapping
from gen.mapping.trial import Trial
from gen.mapping.windows import WindowGeometry, WindowMapping, in_windows
from gen.memory.placement import Kept, RowsPlacement
from gen.memory.region import Lifetime
from gen.tiling.geometry import SpatialTile
from gen.tiling.schedule import Plan

__all__ = ["ChainedLayers", "chain"]

#: Layers are put in a chain if they take this share of the cycles at most: what is around them can change by the rest.
_GAIN = 0.98
#: Only what is reckoned to take less than this share of the layers' own reckoning, which is high, is tried.
_PROMISING = 0.98
#: Tilings that are tried out.
_CANDIDATES = 3


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


def _chainable(mapped: MappedGraph, first: MappedLayer, second: MappedLayer) -> bool:
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
    if other.weights.shape[2:] == (1, 1) or one.output in mapped.shared:
        return False
    return mapped.readers[one.output] == 1


def chain(trial: Trial, mapped: MappedGraph) -> MappedGraph:
    """``mapped`` with layers in chains where that is faster, by the time model; ``trial``: of each layer by itself."""
    apart, buffer = trial.mapped, in_buffer(trial.mapped)
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
    if not _chainable(mapped, first, second):
        return
    assert isinstance(first, ConvMapping) and isinstance(second, ConvMapping)
    config = mapped.config
    windows = in_windows(second)
    if windows is None:
        return
    geometry = windows.plan.geometry
    assert isinstance(geometry, WindowGeometry)
    third = layers[2] if len(layers) > 2 else None
    lasts: list[PlainMapping | None] = [None]
    if (isinstance(third, PlainMapping) and third.takes_kept and second.layer.output not in mapped.shared
            and fusable(mapped.readers, second.layer, third.layer)):
        lasts.append(third)
    for last in lasts:
        written = {layer.layer.output for layer in (first, second, last) if layer is not None}
        if written & mapped.packed:
            continue
        limit = _PROMISING * sum(layer.plan.cycles for layer in (first, second, last) if layer is not None)
        yield from (way for way in _ways(first, windows, geometry, last, config, known) if way.plan.cycles < limit)


def _ways(first: ConvMapping, windows: WindowMapping, geometry: WindowGeometry, last: PlainMapping | None,
          config: NpuConfig, known: Callable[..., int]) -> list[ChainedLayers]:
    """The best tilings, by the cycles reckoned."""
    found = list[tuple[float, ChainPlan]]()
    for plan in tilings_of_chain(first, windows, geometry, last, config):
        room = known(plan.rows, *([] if plan.strips is None else [plan.strips]))
        inputs = max(tile.entries for tile in plan.first.spatial_tiles) * plan.first.chunk
        if inputs <= room:
            cycles = Reckoning(first, windows, last, plan, config, double=2 * inputs <= room).cycles()
            found.append((cycles, plan))
    found.sort(key=lambda way: way[0])
    return [
        ChainedLayers(replace(first, plan=plan.first), replace(windows, plan=plan.depthwise),
                      None if last is None or plan.last is None else replace(last, plan=plan.last),
                      replace(plan, cycles=cycles)) for cycles, plan in found[:_CANDIDATES]]
