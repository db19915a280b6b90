"""Depthwise layers whose result goes to a pointwise layer through the input buffer (docs/datapath.md, Fusion).

The two are cut into *bands*, whole rows of the depthwise layer's output with all channels. A band is computed by the
window mapping and stored to the input buffer as one long row a block, which is what the pointwise layer computes on.
Meanwhile the next band's blocks are made one by one between its COMPUTEs, so that their stores run beside it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from cores.config import NpuConfig
from gen.ir.graph import Conv
from gen.lowering.mapped import MappedLayer, PlacedLayer
from gen.lowering.placed import in_buffer
from gen.lowering.steps import MappedGraph, Step
from gen.lowering.tiles import Tiles
from gen.mapping.pack import is_spread
from gen.mapping.plain import ConvMapping, PlainMapping
from gen.mapping.trial import Trial
from gen.mapping.windows import WindowGeometry, WindowMapping, WindowWeights
from gen.memory.placement import Strips
from gen.memory.region import Lifetime
from gen.tiling.geometry import Geometry, SpatialTile, part_counts, split
from gen.tiling.schedule import (
    BEAT_WEIGHT,
    CHUNK_CYCLES,
    COMPUTE_OVERHEAD,
    LATENCY,
    WINDOW_OVERHEAD,
    Plan,
    step_pace,
    store_cycles,
)
from gen.tiling.weights import PARAMETER_BEATS

__all__ = ["FusedLayers", "FusedPlan", "fusable", "fuse"]

_SpatialTiles = list[SpatialTile]

#: Fused layers take this share of the cycles at most: what is around them can change by the rest.
_GAIN = 0.98
#: Cycles of the store engine from a STORE to the next, without another STORE_SET between them or with one: estimates
#: that suit the tilings that were measured, made of several depths and of tokens' ways.
_STORE_GAP, _STORE_SET_GAP = 11, 26
#: Only what is reckoned to take less than this share of the layers' own reckoning is tried: a trial has always found
#: more than was reckoned, by 3 to 25 %.
_PROMISING = 0.95
#: Tilings that are tried out.
_CANDIDATES = 2
#: Bands that a depthwise tile may have.
_TILE_BANDS = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class FusedPlan:
    """The tiling of two layers. ``pointwise.spatial_tiles`` are the bands, each part of one of
    ``depthwise.spatial_tiles`` and one of the ``strips`` in the input buffer.
    """

    depthwise: Plan
    pointwise: Plan
    strips: Strips
    #: Output tiles of the pointwise layer.
    tiles: int
    #: The first band's blocks are made between the steps of its first pointwise tile, not before it.
    early: bool
    cycles: float
    beats: float

    @property
    def cost(self) -> float:
        return self.cycles + BEAT_WEIGHT * self.beats

    def interleaving(self, band: int, tile: int) -> list[tuple[int, int]]:
        """How a pointwise tile is computed: (depthwise blocks made before it, its last input block + 1).

        The next band's blocks are shared out evenly between the tiles and within each.
        """
        blocks, early = self.strips.blocks, self.early and band == 0
        if early and tile == 0:
            return [(min(blocks, block + 2), block + 1) for block in range(blocks)]
        tile, tiles = tile - early, self.tiles - early
        coming = blocks if band + 1 < len(self.pointwise.spatial_tiles) else 0
        first, last = coming * tile // tiles, coming * (tile + 1) // tiles
        ends = [blocks * (number + 1) // (last - first + 1) for number in range(last - first)]
        made = (band + 1) * blocks + first
        return [(made + number, end) for number, end in enumerate((*ends, blocks))]


def fusable(readers: Mapping[str, int], first: Conv, second: Conv) -> bool:
    """Whether ``second`` is a pointwise layer that alone reads what the depthwise one before it makes; ``readers``: of
    each tensor, `count_readers`.
    """
    if not (first.depthwise and all(op.cycles == 1 for op in first.epilogue)):
        return False
    if not first.repeats == second.repeats == first.windows == second.windows == (1, 1):
        return False
    if first.weights.shape[2:] == (1, 1):
        return False
    if second.depthwise or second.input != first.output:
        return False
    if second.weights.shape[2:] != (1, 1) or tuple(second.stride) != (1, 1) or any(second.pads):
        return False
    return readers[first.output] == 1


@dataclass(frozen=True, eq=False)
class FusedLayers(Step):
    """Two layers, of which the second reads what the first makes from the input buffer."""

    first: WindowMapping
    second: PlainMapping
    plan: FusedPlan

    @property
    def layers(self) -> tuple[MappedLayer, ...]:
        return self.first, self.second

    @property
    def kept(self) -> Mapping[str, Strips]:
        return {self.first.layer.output: self.plan.strips}

    def emit(self, tiles: Tiles, placed: Sequence[PlacedLayer]) -> None:
        (depthwise, pointwise), second, plan = placed, self.second, self.plan.pointwise
        blocks, out_blocks = range(self.plan.strips.blocks), second.output_blocks(tiles.config.oc_groups)
        coming, made = self.first.output_tiles(tiles, depthwise), 0
        for band, spatial in enumerate(plan.spatial_tiles):
            chunk = tiles.chunks.load(pointwise, plan.geometry, spatial, blocks)
            for number, slices in enumerate(second.tiles):
                tile = tiles.begin(pointwise, plan.geometry, spatial, out_blocks[number],
                                   spread=plan.spread and number == len(second.tiles) - 1)
                low = 0
                for count, high in self.plan.interleaving(band, number):
                    # Between these steps of the tile, which keeps its bank, others pass through the other one.
                    while made < count:
                        next(coming)
                        made += 1
                    for reduction in tiles.weights.cut(plan.geometry, slices, range(low, high)):
                        tile.compute(reduction, chunk)
                    low = high
                tile.end()
            chunk.place.last_reader = tiles.last_compute


def fuse(trial: Trial) -> MappedGraph:
    """The graph of a trial, of each layer by itself, with neighbouring layers fused where they are faster together, by
    the time model.
    """
    mapped, buffer = trial.mapped, in_buffer(trial.mapped)
    steps: list[Step] = list(mapped.steps)
    for number, (first, second) in enumerate(pairwise(mapped.steps)):
        room = partial(buffer.room, Lifetime(number, number + 1))
        ways = _ways(first.layers[0], second.layers[0], mapped, room)
        if not ways:
            continue
        # By themselves, to see whether any is good; then with their neighbours, whose waiting they decide.
        limit = _GAIN * trial.cycles([first, second])
        if not any(trial.cycles([fused], limit) < limit for fused in ways):
            continue
        at = steps.index(first)
        before, behind = steps[max(0, at - 1):at], steps[at + 2:at + 3]
        limit = _GAIN * trial.cycles([*before, first, second, *behind])
        best: FusedLayers | None = None
        for fused in ways:
            cycles = trial.cycles([*before, fused, *behind], limit)
            if cycles < limit:
                limit, best = cycles, fused
        if best is not None:
            steps[at:at + 2] = [best]
    return replace(mapped, steps=steps)


def _ways(first: MappedLayer, second: MappedLayer, mapped: MappedGraph,
          room: Callable[[Strips], int]) -> list[FusedLayers]:
    """With ``room`` beside strips for what is loaded, the ways to fuse two layers that are worth a trial."""
    if not (isinstance(first, ConvMapping) and isinstance(second, PlainMapping)
            and second.takes_kept and fusable(mapped.readers, first.layer, second.layer)):
        return []
    if {first.layer.output, second.layer.output} & mapped.packed or first.layer.output in mapped.shared:
        return []
    layer, config = first.layer, first.config
    geometry = WindowGeometry.fitting(layer, first.source, first.target, config)
    if geometry is None:
        return []
    weights = WindowWeights(layer, geometry, config)
    pointwise = Geometry.of(second.layer, second.source, second.target)
    limit = _PROMISING * (first.plan.cost + second.plan.cost)
    return [
        FusedLayers(WindowMapping(
            layer=layer, source=first.source, target=first.target, config=config, requantize=first.requantize,
            plan=plan.depthwise, tiles=weights.tiles, taps=weights), replace(second, plan=plan.pointwise), plan)
        for plan in _plans(_Costs(second, geometry, pointwise, weights, config), room) if plan.cost < limit]


class _Costs:
    """Cycles of the engines for a band."""

    def __init__(self, second: PlainMapping, geometry: WindowGeometry, pointwise: Geometry, taps: WindowWeights,
                 config: NpuConfig) -> None:
        self.config, self.geometry, self.pointwise = config, geometry, pointwise
        self.taps, self.second = taps, second
        self.blocks = len(taps.tiles)
        self.out_blocks = -(-second.target.shape[0] // config.ic_lanes)
        self.others, self.store_cycles = len(second.others), store_cycles(second.layer, config)
        self.spread = (is_spread(second.layer, len(second.tiles) - 1, config)
                       and pointwise.output_size[1] > config.pixel_lanes)
        self.all_spread = self.spread and len(second.tiles) == 1
        self._steps = sum(geometry.steps(config, reduction.rows) for tile in taps.tiles for reduction in tile)
        self._slices = sum(map(len, taps.tiles))

    def depthwise(self, band: SpatialTile) -> float:
        step = step_pace(self.geometry.step_cycles(band, self.config), self.config.weight_beats, self.config)
        return self._steps * step + self._slices * 2 * WINDOW_OVERHEAD

    def depthwise_store(self, band: SpatialTile, gap: int = _STORE_GAP) -> float:
        return self.blocks * (band.rows * band.cols + gap)

    def pointwise_compute(self, band: SpatialTile) -> float:
        cycles, last = 0.0, len(self.second.tiles) - 1
        for number, tile in enumerate(self.second.tiles):
            words = self.pointwise.words(band, self.config, spread=self.spread and number == last)
            for reduction in tile:
                steps = reduction.blocks * reduction.groups
                cycles += steps * step_pace(words, reduction.step_beats(self.config), self.config)
        return cycles + COMPUTE_OVERHEAD * (self.blocks + len(self.second.tiles))

    def pointwise_store(self, band: SpatialTile) -> float:
        pixels = band.cols * self.store_cycles
        return self.out_blocks * (pixels + self.others * PARAMETER_BEATS) + len(self.second.tiles) * _STORE_SET_GAP

    def load(self, band: SpatialTile) -> float:
        """Beats that a band's depthwise part needs on the bus, padding counted with them."""
        return self.blocks * (band.load_beats + PARAMETER_BEATS) + self.taps.beats

    def pointwise_load(self, band: SpatialTile) -> float:
        return self.second.weight_beats + self.out_blocks * (PARAMETER_BEATS + self.others * band.cols)


def _tilings(costs: _Costs) -> Iterator[tuple[WindowGeometry, _SpatialTiles, list[_SpatialTiles], _SpatialTiles]]:
    """(geometry, tiles, bands of each, the bands as the pointwise layer's tiles) worth looking at."""
    config, geometry = costs.config, costs.geometry
    height, width = geometry.output_size
    row_words = -(-width // geometry.word_columns(config))
    for count in part_counts(-(-height // geometry.word_rows)):
        rows = split(height, count, geometry.word_rows)[0][1]
        words = -(-rows // geometry.word_rows) * row_words
        band = costs.pointwise.spatial_tile(0, 1, 0, rows * width, config)
        if words > config.acc_depth or costs.pointwise.words(band, config, spread=costs.all_spread) > config.acc_depth:
            continue
        form = replace(geometry, band_words=words)
        for several in _TILE_BANDS:
            tile_count = -(-height // (rows * several))
            if several > 1 and tile_count * several >= 2 * count:
                break
            tiles = [form.spatial_tile(*rows_of_tile, 0, width, config)
                     for rows_of_tile in split(height, tile_count, geometry.word_rows)]
            depthwise = [form.bands(tile, config) for tile in tiles]
            pointwise = [costs.pointwise.spatial_tile(0, 1, band.y * width, band.rows * width, config)
                         for of_tile in depthwise for band in of_tile]
            if all(form.fits(tile, config) for tile in tiles) and all(
                    costs.pointwise.fits(band, config)
                    and costs.pointwise.words(band, config, spread=costs.all_spread) <= config.acc_depth
                    for band in pointwise):
                yield form, tiles, depthwise, pointwise


def _estimate(costs: _Costs, tiles: Sequence[SpatialTile], depthwise: Sequence[Sequence[SpatialTile]],
              pointwise: Sequence[SpatialTile], room: int) -> tuple[float, float, int] | None:
    """(cycles, beats, chunk) of a tiling; None if the ``room`` beside its bands is too small."""
    config, blocks = costs.config, costs.blocks
    flat = [band for of_tile in depthwise for band in of_tile]
    entries = max(tile.entries for tile in tiles)
    whole = len(flat) > len(tiles)      # tiles are loaded row by row, with all their blocks
    if whole:
        chunk = blocks
    else:
        chunk = min(blocks, max(1, config.queue_depth // 4), max(1, room // 3 // entries),
                    -(-CHUNK_CYCLES // max(tile.load_beats for tile in tiles)))
    if chunk * entries > room:
        return None
    serial = chunk * entries * 2 > room     # loading cannot run ahead
    cycles, beats = 3.0 * LATENCY, 0.0
    # The first band's depthwise part by itself; then each band's pointwise part with the next one's depthwise part.
    first = flat[0]
    cycles += chunk * first.load_beats + max(
        costs.load(first) - chunk * first.load_beats, costs.depthwise_store(first), costs.depthwise(first))
    for number, band in enumerate(pointwise):
        following = flat[number + 1] if number + 1 < len(flat) else None
        array, store = costs.pointwise_compute(band), costs.pointwise_store(band)
        load, port = costs.pointwise_load(band), 0.0
        beats += load + costs.load(flat[number]) + costs.out_blocks * band.cols
        if following is not None:
            array += costs.depthwise(following)
            store += costs.depthwise_store(following, _STORE_SET_GAP)
            load += costs.load(following)
            port = blocks * (following.load_beats + following.rows * following.cols)
        cycles += max(array, store, load, port)
        if following is not None and serial:
            cycles += min(load, array)
    cycles += costs.out_blocks / len(costs.second.tiles) * pointwise[-1].cols * costs.store_cycles
    return cycles, beats, chunk


def _plans(costs: _Costs, room: Callable[[Strips], int]) -> list[FusedPlan]:
    """The best tilings of a depthwise layer in windows and the pointwise one after it, by the cycles reckoned."""
    plans = []
    for form, tiles, depthwise, pointwise in _tilings(costs):
        strips = Strips(costs.blocks, tuple(band.x for band in pointwise), costs.pointwise.output_size[1],
                        min(2, len(pointwise)), costs.config.banks)
        estimate = _estimate(costs, tiles, depthwise, pointwise, room(strips))
        if estimate is not None:
            cycles, beats, chunk = estimate
            plans.append(FusedPlan(Plan(form, tuple(tiles), chunk, False, False, 0, 0),
                                   Plan(costs.pointwise, tuple(pointwise), costs.blocks, True, costs.spread, 0, 0),
                                   strips, len(costs.second.tiles), False, cycles, beats))
    plans.sort(key=lambda plan: plan.cost)
    # With few bands the layers around come closer, which is not in the reckoning.
    few = min(plans, key=lambda plan: (len(plan.pointwise.spatial_tiles), plan.cost), default=None)
    best = [plan for number, plan in enumerate(plans) if number < _CANDIDATES or plan is few]
    # A start between the steps of the first tile needs a second one for the next band's blocks.
    return best + [replace(plan, early=True) for plan in best
                   if plan.strips.blocks > 2 and (plan.tiles > 1 or len(plan.pointwise.spatial_tiles) == 1)]
