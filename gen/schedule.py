"""The tiling of each layer, chosen by counted cycles and memory traffic.

A layer is cut into spatial tiles; each makes its output channels one output tile (``tm`` channels) after the other. The
tile's input is loaded in chunks of channel blocks, each computed on as soon as it is there. Where all of it fits the
input buffer it is *held* across the output tiles, otherwise every output tile loads it again. Of a depthwise layer in
windows every channel block is an output tile, and a chunk may serve several of them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from cores.compute_engine import ComputeEngine
from cores.config import NpuConfig
from cores.numerics import POSITIONS
from cores.winograd_sums import WinogradSums
from gen.binary import SignSource
from gen.depthwise import WindowGeometry
from gen.geometry import MAX_BLOCKS, CompileError, Geometry, Split, Window, tilings
from gen.ir import Conv, Pool, Tensor
from gen.pack import PARAMETER_BEATS, PackedWeights, Pass, is_narrow
from gen.sign_loads import load_cycles
from gen.winograd import WinogradGeometry

__all__ = [
    "BEAT_WEIGHT", "CHUNK_CYCLES", "COMPUTE_OVERHEAD", "LATENCY", "STORE_CYCLES", "WINDOW_OVERHEAD", "Plan",
    "plan_conv", "plan_pool", "plan_windows", "plan_winograd", "step_pace",
]

#: Cycles from a read request to its data, which no schedule avoids at a layer's start.
LATENCY = 40
#: Cycles that a COMPUTE or POOL may spend beside its steps.
COMPUTE_OVERHEAD = 1
#: The same of a COMPUTE in windows: the next one's sums begin behind its last.
WINDOW_OVERHEAD = 4
#: A chunk smaller than this in compute cycles only makes instructions.
CHUNK_CYCLES = 200
#: The same of a pooled output tile.
_POOL_CYCLES = 256
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

    @property
    def cost(self) -> float:
        return self.cycles + BEAT_WEIGHT * self.beats


def _candidates(geometry: Geometry, config: NpuConfig, *,
                narrow: bool = False) -> Iterator[tuple[Split, Split, list[tuple[Window, int]]]]:
    """Tilings that fit, with their different windows and how often each occurs."""

    def samples(parts: Split) -> list[tuple[tuple[int, int], int]]:
        # The first and last part may be padded, those between are alike.
        if len(parts) <= 3:
            return [(part, 1) for part in parts]
        return [(parts[0], 1), (parts[1], len(parts) - 2), (parts[-1], 1)]

    for rows, cols in tilings(geometry, config, narrow=narrow):
        windows = [(geometry.window(*row, *col, config), m * n) for row, m in samples(rows) for col, n in samples(cols)]
        if all(geometry.fits(window, config) for window, _ in windows):
            yield rows, cols, windows


def _finish(plan: tuple[float, float, int, bool], geometry: Geometry, rows: Split, cols: Split,
            config: NpuConfig, *, narrow: bool = False) -> Plan:
    cycles, beats, chunk, held = plan
    windows = tuple(geometry.window(*row, *col, config) for row in rows for col in cols)
    return Plan(geometry, windows, chunk, held, narrow, cycles, beats)


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

    def estimate(self, windows: Sequence[tuple[Window, int]]) -> tuple[float, float, int, bool]:
        """(cycles, beats, chunk, held) of a tiling."""
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
    plans = [_finish(cost.estimate(windows), geometry, rows, cols, config, narrow=cost.narrow)
             for rows, cols, windows in _candidates(geometry, config, narrow=cost.all_narrow)
             if all(cost.words(window) <= config.acc_depth for window, _ in windows)]
    if not plans:
        raise CompileError(f"layer {layer.name}: no tile of it fits input_depth={config.input_depth} and "
                           f"acc_depth={config.acc_depth}; build with deeper memories")
    return min(plans, key=lambda plan: plan.cost)


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

    def estimate(windows: Sequence[tuple[Window, int]], held: bool) -> tuple[float, float, int, bool]:
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

    plans = []
    for rows, cols, windows in _candidates(geometry, config):
        entries = max(window.entries for window, _ in windows)
        for held in [False, True][:1 + (len(tiles) > 1 and in_blocks * entries <= depth)]:
            plans.append(_finish(estimate(windows, held), geometry, rows, cols, config))
    return min(plans, key=lambda plan: plan.cost, default=None)


def _estimate_windows(layer: Conv, geometry: WindowGeometry, packed: PackedWeights,
                      windows: Sequence[tuple[Window, int]], config: NpuConfig) -> tuple[float, float, int, bool]:
    """(cycles, beats, chunk, False) of a depthwise layer's tiling in windows."""
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
    plans = [_finish(_estimate_windows(layer, form, packed, windows, config), form, rows, cols, config)
             for form in divided for rows, cols, windows in _candidates(form, config)]
    return min(plans, key=lambda plan: plan.cost + _START_WEIGHT * plan.cycles / len(plan.windows), default=None)


def _estimate_pool(layer: Pool, blocks: int, windows: Sequence[tuple[Window, int]],
                   config: NpuConfig) -> tuple[float, float, int, bool]:
    """(cycles, beats, chunk, False) of a pooling layer's tiling."""
    largest = max((window for window, _ in windows), key=lambda window: window.entries)
    # A window takes a cycle for each tap, and no less than the store engine takes for its pixel.
    pixel_cycles = max(layer.kernel[0] * layer.kernel[1], STORE_CYCLES[layer.residual is not None])
    block_cycles = max(largest.rows * largest.cols * pixel_cycles, largest.load_beats)
    # A quarter of the buffer at most, so that loading runs ahead.
    chunk = min(blocks, MAX_BLOCKS, max(1, config.input_depth // 4 // largest.entries),
                -(-_POOL_CYCLES // block_cycles))
    cycles, beats = 2.0 * LATENCY + chunk * (windows[0][0].load_beats + PARAMETER_BEATS), 0.0
    for window, count in windows:
        work = blocks * (window.rows * window.cols * pixel_cycles + PARAMETER_BEATS)
        work += COMPUTE_OVERHEAD * -(-blocks // chunk)
        load = blocks * (window.load_beats + PARAMETER_BEATS)
        cycles += count * (max(work, load) if largest.entries * 2 <= config.input_depth else work + load)
        beats += count * (load + blocks * window.rows * window.cols)
    return cycles, beats, chunk, False


def plan_pool(layer: Pool, source: Tensor, target: Tensor, config: NpuConfig, *, map_out: bool = False) -> Plan:
    """Choose the tiling of a pooling layer: ``chunk`` blocks of a spatial tile at a time, each its own output tile.

    ``map_out``: it writes a map of signs. Raises CompileError when no tiling fits the configuration.
    """
    geometry = Geometry.of(layer, source, target, map_out=map_out)
    blocks = -(-source.shape[0] // config.ic_lanes)
    plans = [_finish(_estimate_pool(layer, blocks, windows, config), geometry, rows, cols, config)
             for rows, cols, windows in _candidates(geometry, config)]
    if not plans:
        raise CompileError(f"layer {layer.name}: no tile of it fits input_depth={config.input_depth}; "
                           "build with a deeper input buffer")
    return min(plans, key=lambda plan: plan.cost)
