"""The tiling of each layer, chosen by counted cycles and memory traffic.

A layer is cut into spatial tiles; each makes its output channels one output tile (``tm`` channels) after the other. The
tile's input is loaded in chunks of channel blocks, each computed on as soon as it is there. Where all of it fits the
input buffer it is *held* across the output tiles, otherwise every output tile loads it again. Of a depthwise layer in
windows every channel block is an output tile, and a chunk may serve several of them.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from cores.arch.numerics import POSITIONS
from cores.compute.compute_engine import ComputeEngine
from cores.config import NpuConfig
from cores.store.winograd_sums import WinogradSums
from gen.ir.graph import Conv, Tensor
from gen.mapping.binary import SignSource
from gen.mapping.depthwise import WindowGeometry
from gen.mapping.pack import PARAMETER_BEATS, PackedWeights, Pass, is_narrow
from gen.mapping.sign_loads import load_cycles
from gen.mapping.winograd import WinogradGeometry
from gen.tiling.geometry import MAX_BLOCKS, CompileError, Geometry, Split, Window, tilings

__all__ = [
    "BEAT_WEIGHT", "CHUNK_CYCLES", "COMPUTE_OVERHEAD", "LATENCY", "STORE_CYCLES", "WINDOW_OVERHEAD", "Estimate", "Plan",
    "Tiling", "candidates", "cost_of", "plan_conv", "plan_windows", "plan_winograd", "samples",
    "step_pace",
]

#: Cycles from a read request to its data, which no schedule avoids at a layer's start.
LATENCY = 40
#: Cycles that a COMPUTE or POOL may spend beside its steps.
COMPUTE_OVERHEAD = 1
#: The same of a COMPUTE in windows: the next one's sums begin behind its last.
WINDOW_OVERHEAD = 4
#: A chunk smaller than this in compute cycles only makes instructions.
CHUNK_CYCLES = 200
#: Tiles of fewer columns mostly cost: they are looked at where no wider one fits.
_MIN_COLS = 8
#: Cycles of the store engine for a pixel of a block, without and with a residual.
STORE_CYCLES = (1, 3)
#: What a tile's own cycles weigh: until its first tile is done a layer in windows and the next one keep different parts
#: of the machine busy one after the other.
_START_WEIGHT = 0.1
#: What a beat of memory traffic weighs against a cycle where cycles are equal.
BEAT_WEIGHT = 0.03


def step_pace(words: float, weight_beats: int, config: NpuConfig) -> float:
    """Cycles from a step to the next: its words', or its weights' (with windows or indices a few more in truth)."""
    return max(words, weight_beats, ComputeEngine.min_step(config))


#: (cycles, beats, chunk, held) of a tiling: the figures of a `Plan`.
Estimate = tuple[float, float, int, bool]


@dataclass(frozen=True)
class Plan:
    """The tiling of one layer. ``cycles`` and ``beats`` are the estimates it was chosen by."""

    geometry: Geometry
    windows: tuple[Window, ...]
    #: Channel blocks loaded (and computed on) at a time.
    chunk: int
    #: The tile's input stays in the buffer for all output tiles.
    held: bool
    #: COMPUTEs of the last output tile have ``spread``.
    narrow: bool
    cycles: float
    beats: float
    #: Each window, of one pixel, is pooled in pieces: the kernel's rows and columns of each.
    pieces: tuple[tuple[tuple[int, int], tuple[int, int]], ...] = ()

    @property
    def cost(self) -> float:
        return cost_of((self.cycles, self.beats, self.chunk, self.held))


@dataclass(frozen=True)
class Tiling:
    """A plan in the making: one of many, so its windows are counted, not listed.

    ``windows``: the different ones, and how often each occurs.
    """

    geometry: Geometry
    rows: Split
    cols: Split
    windows: Sequence[tuple[Window, int]]

    def finish(self, estimate: Estimate, config: NpuConfig, *, narrow: bool = False) -> Plan:
        cycles, beats, chunk, held = estimate
        windows = tuple(self.geometry.window(*row, *col, config) for row in self.rows for col in self.cols)
        return Plan(self.geometry, windows, chunk, held, narrow, cycles, beats)


def samples(parts: Split) -> list[tuple[tuple[int, int], int]]:
    """The parts that are different, and how often each occurs: the first and last may be padded."""
    if len(parts) <= 3:
        return [(part, 1) for part in parts]
    return [(parts[0], 1), (parts[1], len(parts) - 2), (parts[-1], 1)]


def candidates(geometry: Geometry, config: NpuConfig, *, narrow: bool = False,
               words: Callable[[Window], int] = lambda window: 0) -> Iterator[Tiling]:
    """Tilings that fit, narrow ones only if there are no others; ``words``: a tile's in an accumulator bank."""
    found = False
    for rows, cols in tilings(geometry, config, narrow=narrow):
        if found and len(cols) > 1 and cols[0][1] < _MIN_COLS:
            return
        windows = [(geometry.window(*row, *col, config), m * n) for row, m in samples(rows) for col, n in samples(cols)]
        if all(geometry.fits(window, config) and words(window) <= config.acc_depth for window, _ in windows):
            found = True
            yield Tiling(geometry, rows, cols, windows)


def cost_of(estimate: Estimate) -> float:
    """What tilings are compared by; as `Plan.cost`."""
    cycles, beats, *_ = estimate
    return cycles + BEAT_WEIGHT * beats


class _ConvCost:
    """Cycles and beats of a convolution under different tilings."""

    def __init__(self, layer: Conv, source: Tensor, target: Tensor, tiles: Sequence[Sequence[Pass]], config: NpuConfig,
                 geometry: Geometry, signs: SignSource | None) -> None:
        self.config, self.geometry, self.depthwise, self.tiles = config, geometry, layer.depthwise, len(tiles)
        self.signs = signs
        #: Where a row is one word anyway, nothing is gained.
        self.narrow = (is_narrow(layer, len(tiles) - 1, config) and geometry.output_size[1] > config.pixel_lanes
                       and signs is None)
        self.out_blocks = -(-target.shape[0] // config.ic_lanes)
        self.in_blocks = geometry.input_blocks(source.shape[0], config)
        if layer.depthwise:
            self.in_blocks = min(self.in_blocks, config.oc_groups)
        if signs is not None:
            self.in_blocks = signs.blocks
        self.residual = layer.residual is not None
        taps = geometry.steps(config)
        #: (steps, beats of a step, narrow) of all output tiles.
        self.steps: list[tuple[int, int, bool]] = []
        for part, narrow in ((tiles[:-1], False), (tiles[-1:], True)) if self.narrow else ((tiles, False),):
            counts: Counter[int] = Counter()
            for item in (item for tile in part for item in tile):
                counts[item.step_beats(config)] += item.blocks * item.groups
            self.steps += [(taps * count, beats, narrow) for beats, count in counts.items()]
        self.passes = sum(map(len, tiles))

    @property
    def all_narrow(self) -> bool:
        return self.narrow and self.tiles == 1

    def _load(self, window: Window) -> float:
        """Cycles to bring in all input blocks of a tile."""
        if self.signs is not None:
            return load_cycles(self.signs, window, self.config)
        return self.geometry.load_cycles(window, self.in_blocks, self.config)

    def words(self, window: Window) -> int:
        """Accumulator words of the widest output tile."""
        return self.geometry.words(window, self.config, narrow=self.all_narrow)

    def _compute(self, window: Window) -> float:
        """Cycles of all output tiles."""
        return sum(
            steps * step_pace(self.geometry.step_cycles(window, self.config, narrow=narrow), beats, self.config)
            for steps, beats, narrow in self.steps)

    def _store(self, window: Window, blocks: int) -> int:
        return blocks * (window.rows * window.cols * STORE_CYCLES[self.residual] + PARAMETER_BEATS)

    def estimate(self, windows: Sequence[tuple[Window, int]]) -> Estimate:
        depth = self.config.input_depth
        largest = max((window for window, _ in windows), key=lambda window: window.entries)
        tile_entries = self.in_blocks * largest.entries
        block_cycles = self._compute(largest) / self.tiles / self.in_blocks
        chunk = min(self.in_blocks, MAX_BLOCKS, max(1, round(CHUNK_CYCLES / max(1, block_cycles))),
                    max(1, depth // 2 // largest.entries))
        held = not self.depthwise and self.tiles > 1 and tile_entries <= depth
        weight_beats = sum(steps * beats for steps, beats, _ in self.steps)
        cycles = beats_moved = 0.0
        for window, count in windows:
            pixels = window.rows * window.cols
            rounds = 1 if held else self.tiles
            chunks = -(-self.in_blocks // chunk)
            compute = self._compute(window) + COMPUTE_OVERHEAD * (self.passes + chunks * rounds)
            activations = self._load(window)
            load = activations * rounds + weight_beats + self.out_blocks * (PARAMETER_BEATS + self.residual * pixels)
            stalls = 0.0
            if (held or chunks == 1) and tile_entries * 2 > depth:
                # What finds no room beside this tile waits until the last output tile frees its blocks.
                late = activations * (2 - depth / tile_entries)
                stalls = late if chunks == 1 else max(0.0, late - compute / self.tiles)
            elif chunks > 1 and not held and chunk * largest.entries * 2 > depth:
                stalls = min(load, compute)
            cycles += count * (max(compute, load, self._store(window, self.out_blocks)) + stalls)
            beats_moved += count * (load + self.out_blocks * pixels)
        fill = 2 * LATENCY + chunk * self._load(windows[0][0]) / self.in_blocks
        drain = LATENCY + self._store(windows[-1][0], min(self.config.oc_groups, self.out_blocks))
        return cycles + fill + drain, beats_moved, chunk, held


def plan_conv(layer: Conv, source: Tensor, target: Tensor, tiles: Sequence[Sequence[Pass]], config: NpuConfig, *,
              signs: SignSource | None = None, map_out: bool = False, geometry: Geometry | None = None) -> Plan:
    """Choose the tiling of a convolution whose output tiles take the given passes.

    ``signs``: it runs on the binary unit, with its input from there; ``map_out``: it writes a map of signs;
    ``geometry``: its loops, if they are not the layer's own.
    Raises CompileError when no tiling fits the configuration.
    """
    if geometry is None:
        geometry = Geometry.of(layer, source, target, map_in=signs is not None and signs.packed, map_out=map_out)
    cost = _ConvCost(layer, source, target, tiles, config, geometry, signs)
    found = [(cost.estimate(tiling.windows), tiling)
             for tiling in candidates(geometry, config, narrow=cost.all_narrow, words=cost.words)]
    if not found:
        raise CompileError(f"layer {layer.name}: no tile of it fits input_depth={config.input_depth} and "
                           f"acc_depth={config.acc_depth}; build with deeper memories")
    estimate, tiling = min(found, key=lambda item: cost_of(item[0]))
    return tiling.finish(estimate, config, narrow=cost.narrow)


def plan_winograd(layer: Conv, geometry: WinogradGeometry, target: Tensor, tiles: Sequence[Sequence[Pass]],
                  config: NpuConfig) -> Plan | None:
    """Choose the tiling of a layer in transformed tiles; None if no tiling fits the configuration."""
    in_blocks = -(-layer.weights.shape[1] // config.ic_lanes)
    out_blocks = -(-target.shape[0] // config.ic_lanes)
    passes = [part for tile in tiles for part in tile]
    steps = [(POSITIONS * p.blocks * p.groups, p.step_beats(config)) for p in passes]
    weight_beats = sum(count * beats for count, beats in steps)
    computes = POSITIONS * sum(part.blocks for part in passes)
    residual, depth = layer.residual is not None, config.input_depth

    def estimate(windows: Sequence[tuple[Window, int]], held: bool) -> Estimate:
        rounds = 1 if held else len(tiles)
        cycles = beats_moved = 0.0
        for window, count in windows:
            words, pixels = geometry.words(window, config), window.rows * window.cols
            compute = computes * COMPUTE_OVERHEAD + sum(
                number * step_pace(words, beats, config) for number, beats in steps)
            side = out_blocks * (PARAMETER_BEATS + residual * pixels)
            load = in_blocks * window.load_beats * rounds + weight_beats + side
            transform = in_blocks * POSITIONS * geometry.tiles(window) * rounds
            store = out_blocks * (pixels * WinogradSums.WORDS + PARAMETER_BEATS)
            # Where only one block has room, its successor is loaded when it is done.
            alone = not held and 2 * window.entries > depth
            cycles += count * (max(compute, load, transform, store) + alone * min(max(load, transform), compute))
            beats_moved += count * (load + out_blocks * pixels)
        first, last = windows[0][0], windows[-1][0]
        fill = 2 * LATENCY + POSITIONS * geometry.tiles(first)
        drain = LATENCY + min(config.oc_groups, out_blocks) * last.rows * last.cols * WinogradSums.WORDS
        return cycles + fill + drain, beats_moved, 1, held

    found = []
    for tiling in candidates(geometry, config):
        entries = max(window.entries for window, _ in tiling.windows)
        for held in [False, True][:1 + (len(tiles) > 1 and in_blocks * entries <= depth)]:
            found.append((estimate(tiling.windows, held), tiling))
    if not found:
        return None
    best, tiling = min(found, key=lambda item: cost_of(item[0]))
    return tiling.finish(best, config)


def _estimate_windows(layer: Conv, geometry: WindowGeometry, packed: PackedWeights,
                      windows: Sequence[tuple[Window, int]], config: NpuConfig) -> Estimate:
    """Of a depthwise layer's tiling in windows."""
    blocks, passes, depth = len(packed.tiles), sum(map(len, packed.tiles)), config.input_depth
    steps = sum(geometry.steps(config, part.rows) for tile in packed.tiles for part in tile)
    residual = layer.residual is not None
    largest = max((window for window, _ in windows), key=lambda window: window.entries)
    # Instructions of the next chunk should be in their queues in time.
    chunk = min(blocks, max(1, config.queue_depth // 4), max(1, depth // 3 // largest.entries),
                -(-CHUNK_CYCLES // largest.load_beats))
    # Of all tiles, as each engine would take if it never waited.
    loads = computes = stores = beats = 0.0
    for window, count in windows:
        load, compute, pixels = 0.0, 0.0, window.rows * window.cols
        parts = geometry.parts(window, config)
        for part in parts:
            step = step_pace(geometry.step_cycles(part, config), config.weight_beats, config)
            compute += steps * step + passes * WINDOW_OVERHEAD
            load += blocks * (part.load_beats + PARAMETER_BEATS) + len(packed.data)
        load += blocks * pixels * residual
        beats += count * (load + blocks * pixels)
        if chunk * largest.entries * 2 > depth:
            # The next chunk's first part is loaded when this one's last is computed.
            load += compute / blocks * -(-blocks // chunk) / len(parts)
        loads, computes = loads + count * load, computes + count * compute
        stores += count * blocks * (pixels * STORE_CYCLES[residual] + len(parts) * PARAMETER_BEATS)
    first, last = geometry.parts(windows[0][0], config)[0], geometry.parts(windows[-1][0], config)[-1]
    fill, drain = chunk * first.load_beats, last.rows * last.cols * STORE_CYCLES[residual]
    between = steps / blocks * geometry.step_cycles(last, config)
    cycles = max(loads + between + drain, fill + computes + drain, fill + between + stores)
    return cycles + 3 * LATENCY, beats, chunk, False


def plan_windows(layer: Conv, geometry: WindowGeometry, packed: PackedWeights, config: NpuConfig) -> Plan | None:
    """Choose the tiling of a depthwise layer in windows; None if no tiling fits the configuration."""
    # Small parts are stored sooner, but each takes the weights anew.
    divided = [replace(geometry, part_words=config.acc_depth // parts) for parts in (1, 2, 4)]
    found = [(_estimate_windows(layer, form, packed, tiling.windows, config), tiling)
             for form in divided for tiling in candidates(form, config)]
    if not found:
        return None
    estimate, tiling = min(found, key=lambda item: (
        cost_of(item[0]) + _START_WEIGHT * item[0][0] / (len(item[1].rows) * len(item[1].cols))))
    return tiling.finish(estimate, config)
