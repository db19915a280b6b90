"""The tiling of each layer, chosen by counted cycles and memory traffic.

A layer is cut into spatial tiles; each makes its output channels one output tile (``tm`` channels) after the other. The
tile's input is loaded in chunks of channel blocks, each computed on as soon as it is there. Where all of it fits the
input buffer it is *held* across the output tiles, otherwise every output tile loads it again. Of a depthwise layer on
the window mapping every channel block is an output tile, and a chunk may serve several of them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cores.config import NpuConfig
from cores.timing.compute import ComputeEngineTiming
from cores.timing.store import RequantizerTiming
from gen.ir.graph import Layer
from gen.tiling.geometry import Geometry, SpatialTile, Split, tilings
from sim.timing.latencies import MEMORY

__all__ = [
    "BEAT_WEIGHT", "CHUNK_CYCLES", "COMPUTE_OVERHEAD", "LATENCY", "WINDOW_OVERHEAD", "Estimate", "Plan",
    "Tiling", "candidates", "cheapest", "cost_of", "samples", "step_pace", "store_cycles",
]

#: Cycles from a read request to its data, which no schedule avoids at a layer's start.
LATENCY = MEMORY
#: Estimates of the planner, not depths of the hardware: cycles that a COMPUTE or POOL may spend beside its steps, and
#: the same of a COMPUTE in windows, as the next one's sums begin after its last.
COMPUTE_OVERHEAD, WINDOW_OVERHEAD = 1, 4
#: A chunk smaller than this in compute cycles only makes instructions.
CHUNK_CYCLES = 200
#: Tiles of fewer columns mostly cost: they are looked at where no wider one fits.
_MIN_COLS = 8
#: What a beat of memory traffic weighs against a cycle where cycles are equal.
BEAT_WEIGHT = 0.03


def store_cycles(layer: Layer, config: NpuConfig) -> int:
    """Cycles of the store engine for a pixel of a block: turns that are at the same multiplier."""
    elsewhere = RequantizerTiming.ADD_CYCLES - config.residual_cycles
    return config.store_parts * max((1, *(op.cycles - elsewhere for op in layer.epilogue)))


def step_pace(words: float, weight_beats: int, config: NpuConfig) -> float:
    """Cycles from a step to the next: its words', or its weights' (with windows or indices a few more in truth)."""
    return max(words, weight_beats, ComputeEngineTiming.min_step(config))


#: (cycles, beats, chunk, held) of a tiling: the figures of a `Plan`.
Estimate = tuple[float, float, int, bool]


@dataclass(frozen=True)
class Plan:
    """The tiling of one layer. ``cycles`` and ``beats`` are the estimates it was chosen by."""

    geometry: Geometry
    spatial_tiles: tuple[SpatialTile, ...]
    #: Channel blocks loaded (and computed on) at a time.
    chunk: int
    #: The tile's input stays in the buffer for all output tiles.
    held: bool
    #: The last output tile's words are SPREAD.
    spread: bool
    cycles: float
    beats: float
    #: Each window, of one pixel, is pooled in pieces: the kernel's rows and columns of each.
    pieces: tuple[tuple[tuple[int, int], tuple[int, int]], ...] = ()

    @property
    def cost(self) -> float:
        return cost_of((self.cycles, self.beats, self.chunk, self.held))


@dataclass(frozen=True)
class Tiling:
    """A plan in the making: one of many, so its spatial tiles are counted, not listed.

    ``spatial_tiles``: the different ones, and how often each occurs.
    """

    geometry: Geometry
    rows: Split
    cols: Split
    spatial_tiles: Sequence[tuple[SpatialTile, int]]

    def finish(self, estimate: Estimate, config: NpuConfig, *, spread: bool = False) -> Plan:
        cycles, beats, chunk, held = estimate
        spatial_tiles = tuple(self.geometry.spatial_tile(*row, *col, config) for row in self.rows for col in self.cols)
        return Plan(self.geometry, spatial_tiles, chunk, held, spread, cycles, beats)


def samples(parts: Split) -> list[tuple[tuple[int, int], int]]:
    """The parts that are different, and how often each occurs: the first and last may be padded."""
    if len(parts) <= 3:
        return [(part, 1) for part in parts]
    return [(parts[0], 1), (parts[1], len(parts) - 2), (parts[-1], 1)]


def candidates(geometry: Geometry, config: NpuConfig, *, spread: bool = False,
               words: Callable[[SpatialTile], int] = lambda spatial: 0) -> Iterator[Tiling]:
    """Tilings that fit, those of few columns only if there are no others; ``words``: a tile's in a bank."""
    found = False
    for rows, cols in tilings(geometry, config, spread=spread):
        if found and len(cols) > 1 and cols[0][1] < _MIN_COLS:
            return
        spatial_tiles = [(geometry.spatial_tile(*row, *col, config), m * n)
                         for row, m in samples(rows) for col, n in samples(cols)]
        if all(geometry.fits(spatial, config) and words(spatial) <= config.acc_depth for spatial, _ in spatial_tiles):
            found = True
            yield Tiling(geometry, rows, cols, spatial_tiles)


def cost_of(estimate: Estimate) -> float:
    """What tilings are compared by; as `Plan.cost`."""
    cycles, beats, *_ = estimate
    return cycles + BEAT_WEIGHT * beats


def cheapest(found: Sequence[tuple[Estimate, Tiling]]) -> tuple[Estimate, Tiling]:
    """The tiling of least cost; the first of several."""
    return min(found, key=lambda item: cost_of(item[0]))
