"""The tiling of each layer, chosen by counted cycles and memory traffic.

A layer is cut into spatial tiles; each makes its output channels one output tile (``tm`` channels) after the other. The
tile's input is loaded in chunks of channel blocks, each computed on as soon as it is there. Where all of it fits the
input buffer it is *held* across the output tiles, otherwise every output tile loads it again.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cores.config import NpuConfig
from gen.ir import Conv, Layer, Tensor
from gen.pack import PARAMETER_BEATS, Pass, step_beats

__all__ = ["CompileError", "Geometry", "Plan", "Window", "plan_conv", "plan_pool"]

#: Cycles from a read request to its data, which no schedule avoids at a layer's start.
_LATENCY = 40
#: Cycles that a COMPUTE spends beside its steps, and the least a step takes beyond its weights.
_COMPUTE_OVERHEAD = 4
_STEP_OVERHEAD = 3
#: A chunk smaller than this in compute cycles would show its overhead.
_CHUNK_CYCLES = 200
#: Cycles of a pooled output tile below which more tiles do not pay.
_POOL_CYCLES = 256
#: What a beat of memory traffic weighs against a cycle where cycles are equal.
_BEAT_WEIGHT = 0.01

# Limits of the instruction fields (cores/isa.py) that tilings run into.
_MAX_ROWS = 1023
_MAX_COLS = 4095
_MAX_BLOCKS = 1023
_MAX_PAD_SIDE = 15
_MAX_PAD_ROWS = 63
_MAX_KERNEL = 63
_MAX_STRIDE = 7
_MAX_ROW_PITCH = 4095
_MAX_BLOCK_PITCH = 16383


class CompileError(ValueError):
    """A layer that this configuration cannot run; the message names it and says what to change."""


@dataclass(frozen=True)
class Window:
    """One spatial tile in input and buffer coordinates.

    Output rows ``y`` and following, columns ``x`` and following. Rows and columns of the input that hold data are counted
    from ``row`` and ``col``; ``row_pitch`` and ``entries`` (of a block) are of the input buffer.
    """

    y: int
    rows: int
    x: int
    cols: int
    row: int
    data_rows: int
    col: int
    data_cols: int
    pad_top: int
    pad_bottom: int
    pad_left: int
    pad_right: int
    row_pitch: int
    entries: int

    @property
    def load_beats(self) -> int:
        """Cycles to bring in one block, padding included."""
        return (self.data_rows + self.pad_top + self.pad_bottom) * (self.data_cols + self.pad_left + self.pad_right)


@dataclass(frozen=True)
class Geometry:
    """A layer's loops, after simplification: a 1x1 layer without stride or padding is one long row."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    pads: tuple[int, int, int, int]
    input_size: tuple[int, int]
    output_size: tuple[int, int]
    #: Input rows are fetched this far apart: a kernel of one row needs only every stride-th.
    row_skip: int = 1

    @classmethod
    def of(cls, layer: Layer, source: Tensor, target: Tensor) -> "Geometry":
        kernel = layer.weights.shape[2:] if isinstance(layer, Conv) else layer.kernel
        stride, pads = layer.stride, tuple(layer.pads)
        _, height, width = source.shape
        _, out_height, out_width = target.shape
        if max(kernel) > _MAX_KERNEL:
            raise CompileError(f"layer {layer.name}: windows are at most {_MAX_KERNEL}x{_MAX_KERNEL}, not {kernel[0]}x{kernel[1]}")
        if tuple(kernel) == (1, 1) and stride == (1, 1) and not any(pads):
            return cls((1, 1), (1, 1), pads, (1, height * width), (1, out_height * out_width))
        # Strides along an axis with a single output mean nothing.
        stride = (1 if out_height == 1 else stride[0], 1 if out_width == 1 else stride[1])
        if stride[1] > _MAX_STRIDE:
            raise CompileError(f"layer {layer.name}: horizontal strides are at most {_MAX_STRIDE}, not {stride[1]}")
        if max(pads[1], pads[3]) > _MAX_PAD_SIDE or max(pads[0], pads[2]) > _MAX_PAD_ROWS:
            raise CompileError(f"layer {layer.name}: padding is at most {_MAX_PAD_SIDE} columns and {_MAX_PAD_ROWS} rows a side, not {pads}")
        return cls(tuple(kernel), stride, pads, (height, width), (out_height, out_width), stride[0] if kernel[0] == 1 and not any(pads[::2]) else 1)

    def window(self, y: int, rows: int, x: int, cols: int, config: NpuConfig) -> Window:
        """The tile of output rows ``y..y+rows`` and columns ``x..x+cols``."""
        stride_y, stride_x = self.stride
        if self.row_skip > 1:
            row, pad_top, pad_bottom, data_rows = y * self.row_skip, 0, 0, rows
        else:
            top, height = y * stride_y - self.pads[0], (rows - 1) * stride_y + self.kernel[0]
            row, end = max(top, 0), min(top + height, self.input_size[0])
            data_rows = max(end - row, 0)
            pad_top = min(max(-top, 0), height)
            pad_bottom = height - data_rows - pad_top
            row = min(row, self.input_size[0] - 1)
        left, width = x * stride_x - self.pads[1], (cols - 1) * stride_x + self.kernel[1]
        col, end = max(left, 0), min(left + width, self.input_size[1])
        # Rows are laid out up to the partner of the last output, so that its reads stay inside the block.
        lanes = config.pixel_lanes
        row_pitch = _entries(stride_x, (-(-cols // lanes) * lanes - 1) * stride_x + self.kernel[1], lanes)
        return Window(y, rows, x, cols, row, data_rows, col, end - col, pad_top, pad_bottom, max(-left, 0), left + width - end,
                      row_pitch, row_pitch * (data_rows + pad_top + pad_bottom))

    def buffer_row_step(self, window: Window) -> int:
        """Entries between the first input rows of neighbouring output rows."""
        return (1 if self.row_skip > 1 else self.stride[0]) * window.row_pitch


@dataclass(frozen=True)
class Plan:
    """The tiling of one layer. ``cycles`` and ``beats`` are the estimates it was chosen by."""

    geometry: Geometry
    windows: tuple[Window, ...]
    #: Channel blocks loaded (and computed on) at a time.
    chunk: int
    #: The tile's input stays in the buffer for all output tiles.
    held: bool
    cycles: float
    beats: float


def _entries(stride: int, columns: int, lanes: int) -> int:
    """Entries of a bank that ``columns`` padded columns take (docs/architecture.md, Loading)."""
    if lanes == 1:
        return columns
    return max(c // (2 * stride) * stride + c % stride for c in range(max(0, columns - 2 * stride), columns)) + 1


def _split(size: int, parts: int, multiple: int) -> list[tuple[int, int]]:
    """(start, length) of at most ``parts`` nearly equal lengths, all but the last multiples of ``multiple``."""
    units = -(-size // multiple)
    step, longer = divmod(units, parts)
    result, start = [], 0
    for part in range(parts):
        length = min((step + (part < longer)) * multiple, size - start)
        if length > 0:
            result.append((start, length))
        start += length
    return result


def _counts(size: int, largest: int) -> list[int]:
    """Numbers of parts worth trying for an axis: every one that gives another part size, up to ``largest`` parts."""
    counts: dict[int, int] = {}
    for parts in range(1, min(size, largest) + 1):
        counts.setdefault(-(-size // parts), parts)
    return list(counts.values())


def _tilings(geometry: Geometry, config: NpuConfig) -> Iterator[tuple[list[tuple[int, int]], list[tuple[int, int]]]]:
    """Row and column splits worth looking at."""
    height, width = geometry.output_size
    lanes = config.pixel_lanes
    widest = min(_MAX_COLS, config.acc_depth * lanes)
    for col_parts in _counts(-(-width // lanes), 64):
        columns = _split(width, col_parts, lanes)
        longest = max(length for _, length in columns)
        if longest > widest:
            continue
        if col_parts > 1 and longest < 8 and height > 1:
            break  # slivers only cost
        for row_parts in _counts(height, 256):
            yield _split(height, row_parts, 1), columns


def _fits(window: Window, geometry: Geometry) -> bool:
    return (window.data_cols >= 1 and window.data_cols <= _MAX_COLS and max(window.pad_left, window.pad_right) <= _MAX_PAD_SIDE
            and max(window.pad_top, window.pad_bottom) <= _MAX_PAD_ROWS and window.data_rows <= _MAX_ROWS
            and window.row_pitch <= _MAX_ROW_PITCH and window.entries <= _MAX_BLOCK_PITCH
            and geometry.buffer_row_step(window) <= _MAX_BLOCK_PITCH)


def _classes(rows: Sequence[tuple[int, int]], cols: Sequence[tuple[int, int]], geometry: Geometry,
             config: NpuConfig) -> list[tuple[Window, int]]:
    """Different windows of a tiling with how often each occurs; first and last rows and columns stand for themselves."""

    def sample(parts: Sequence[tuple[int, int]]) -> list[tuple[tuple[int, int], int]]:
        if len(parts) <= 3:
            return [(part, 1) for part in parts]
        return [(parts[0], 1), (parts[1], len(parts) - 2), (parts[-1], 1)]

    return [(geometry.window(y, h, x, w, config), m * n) for (y, h), m in sample(rows) for (x, w), n in sample(cols)]


def plan_conv(layer: Conv, source: Tensor, target: Tensor, tiles: Sequence[Sequence[Pass]], config: NpuConfig) -> Plan:
    """Choose the tiling of a convolution whose output tiles take the given passes.

    Raises CompileError when no tiling fits the configuration.
    """
    geometry = Geometry.of(layer, source, target)
    taps = geometry.kernel[0] * geometry.kernel[1]
    tn = config.ic_lanes
    out_blocks = -(-target.shape[0] // tn)
    in_blocks = config.oc_groups if layer.depthwise else -(-source.shape[0] // tn)
    in_blocks = min(in_blocks, -(-source.shape[0] // tn))
    outputs = len(tiles)
    # Steps with and without indices of all output tiles.
    plain = taps * sum(p.blocks * p.groups for tile in tiles for p in tile if not p.indexed)
    indexed = taps * sum(p.blocks * p.groups for tile in tiles for p in tile if p.indexed)
    weight_beats = plain * step_beats(config, False) + indexed * step_beats(config, True)
    passes = sum(map(len, tiles))
    beat_cycles = 3 if layer.residual else 1
    best: Plan | None = None

    for rows, cols in _tilings(geometry, config):
        classes = _classes(rows, cols, geometry, config)
        largest = max((window for window, _ in classes), key=lambda window: window.entries)
        words = max(window.rows * math.ceil(window.cols / config.pixel_lanes) for window, _ in classes)
        if words > config.acc_depth or largest.entries > config.input_depth or not all(_fits(window, geometry) for window, _ in classes):
            continue

        def compute(window: Window) -> float:
            p = window.rows * math.ceil(window.cols / config.pixel_lanes)
            return (plain * max(p, step_beats(config, False) + _STEP_OVERHEAD) + indexed * max(p, step_beats(config, True) + _STEP_OVERHEAD)
                    + _COMPUTE_OVERHEAD * passes)

        block_cycles = compute(largest) / outputs / max(1, in_blocks)
        chunk = min(in_blocks, max(1, math.ceil(_CHUNK_CYCLES / block_cycles)), _MAX_BLOCKS,
                    max(1, config.input_depth // 2 // largest.entries))
        held = not layer.depthwise and outputs > 1 and in_blocks * largest.entries <= config.input_depth
        single = in_blocks <= chunk or held
        tile_entries = in_blocks * largest.entries
        cycles, beats = 0.0, 0.0
        for window, count in classes:
            work = compute(window) + _COMPUTE_OVERHEAD * (in_blocks / chunk) * (2 if held else outputs)
            act_beats = in_blocks * window.load_beats * (1 if held else outputs)
            pixels = window.rows * window.cols
            side = out_blocks * (PARAMETER_BEATS + (pixels if layer.residual else 0))
            load = act_beats + weight_beats + side
            store = out_blocks * (pixels * beat_cycles + PARAMETER_BEATS)
            serial = 0.0
            if single and tile_entries * 2 > config.input_depth:
                # What does not fit beside this tile can be loaded only while the last output tile frees its blocks.
                late = in_blocks * window.load_beats * (2 - config.input_depth / tile_entries)
                serial = max(0.0, late - work / outputs) if in_blocks > chunk else late
            elif not single and chunk * largest.entries * 2 > config.input_depth:
                serial = min(load, work)
            cycles += count * (max(work, load, store) + serial)
            beats += count * (load + out_blocks * pixels)
        first, last = classes[0][0], classes[-1][0]
        fill = 2 * _LATENCY + chunk * first.load_beats
        drain = _LATENCY + min(config.oc_groups, out_blocks) * (last.rows * last.cols * beat_cycles + PARAMETER_BEATS)
        cycles += fill + drain
        if best is None or cycles + _BEAT_WEIGHT * beats < best.cycles + _BEAT_WEIGHT * best.beats:
            windows = tuple(geometry.window(y, h, x, w, config) for y, h in rows for x, w in cols)
            best = Plan(geometry, windows, chunk, held, cycles, beats)
    if best is None:
        raise CompileError(f"layer {layer.name}: no tile of it fits input_depth={config.input_depth} and acc_depth={config.acc_depth}; "
                           "build with deeper memories")
    return best


def plan_pool(layer: Layer, source: Tensor, target: Tensor, config: NpuConfig) -> Plan:
    """Choose the tiling of a pooling layer: ``chunk`` blocks of a spatial tile at a time, each its own output tile.

    Raises CompileError when no tiling fits the configuration.
    """
    geometry = Geometry.of(layer, source, target)
    blocks = -(-source.shape[0] // config.ic_lanes)
    taps = geometry.kernel[0] * geometry.kernel[1]
    beat_cycles = max(taps, 3 if layer.residual else 1)
    best: Plan | None = None
    for rows, cols in _tilings(geometry, config):
        classes = _classes(rows, cols, geometry, config)
        largest = max((window for window, _ in classes), key=lambda window: window.entries)
        if (largest.entries > config.input_depth or max(window.rows for window, _ in classes) > _MAX_ROWS
                or not all(_fits(window, geometry) for window, _ in classes)):
            continue
        # Four tiles at least in the buffer, so that loading runs ahead; not so few cycles that overhead shows.
        block_cycles = max(largest.rows * largest.cols * beat_cycles, largest.load_beats)
        chunk = min(blocks, _MAX_BLOCKS, max(1, config.input_depth // 4 // largest.entries), max(1, math.ceil(_POOL_CYCLES / block_cycles)))
        overlap = largest.entries * 2 <= config.input_depth
        cycles, beats = 2.0 * _LATENCY + chunk * (classes[0][0].load_beats + PARAMETER_BEATS), 0.0
        for window, count in classes:
            work = blocks * (window.rows * window.cols * beat_cycles + PARAMETER_BEATS) + _COMPUTE_OVERHEAD * 2 * math.ceil(blocks / chunk)
            load = blocks * (window.load_beats + PARAMETER_BEATS)
            cycles += count * (max(work, load) if overlap else work + load)
            beats += count * load
        if best is None or cycles + _BEAT_WEIGHT * beats < best.cycles + _BEAT_WEIGHT * best.beats:
            windows = tuple(geometry.window(y, h, x, w, config) for y, h in rows for x, w in cols)
            best = Plan(geometry, windows, chunk, False, cycles, beats)
    if best is None:
        raise CompileError(f"layer {layer.name}: no tile of it fits input_depth={config.input_depth}; build with a deeper input buffer")
    return best
