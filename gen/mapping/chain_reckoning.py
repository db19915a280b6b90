"""Cycles of layers in a chain (`gen.mapping.chained`), reckoned tile by tile."""

from collections import Counter
from collections.abc import Iterator, Sequence

from cores.config import NpuConfig
from gen.mapping.chain_plans import Band, ChainPlan
from gen.mapping.plain import ConvMapping, PlainMapping
from gen.mapping.windows import WindowMapping
from gen.tiling.geometry import Geometry, SpatialTile
from gen.tiling.schedule import COMPUTE_OVERHEAD, LATENCY, WINDOW_OVERHEAD, Plan, step_pace, store_cycles
from gen.tiling.weights import PARAMETER_BEATS, ReductionSlice

__all__ = ["Reckoning"]

#: Cycles of the store engine from a STORE to the next, and from the last beat of a local STORE until what waits for it
#: has begun: estimates.
_STORE_GAP, _TOKEN = 26, 30


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


class Reckoning:
    """Cycles of a chain. ``double``: there is room for the next part of its input."""

    def __init__(self, first: ConvMapping, depthwise: WindowMapping, last: PlainMapping | None, plan: ChainPlan,
                 config: NpuConfig, *, double: bool) -> None:
        self.first, self.depthwise, self.last = first, depthwise, last
        self.plan, self.config, self.double = plan, config, double
        self.clock, self.load = _Clock(), 2.0 * LATENCY
        #: How often each row of the first layer's output is stored.
        self._times = Counter(row for low, count, _ in plan.rows.runs for row in range(low, low + count))
        #: Of the first layer's output tiles of a band, when each can be read.
        self.made: list[float] = []

    def cycles(self) -> float:
        plan, form, last = self.plan, self.plan.rows, self.last
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
        plan, first = self.plan.first, self.first
        self.made = []
        for tile in band.made:
            self.load = max(self.load, 0.0 if self.double else self.clock.array)
            self.load += plan.geometry.load_cycles(tile, plan.chunk, self.config)
            self.made = self._tiles(first, plan, tile, self._times[tile.y], self.load)

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
        for block, slices in enumerate(self.depthwise.tiles):
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
