"""Depthwise layers in windows (docs/architecture.md, "Spread words"): their geometry and their packed weights.

Reduction lanes are neighbouring taps of one channel, and one COMPUTE makes one channel block of a tile: with `spread`
for stride 1, with `alternate` for stride 2. A tile may have more rows than fit an accumulator bank: it is loaded and
computed in parts, so that the rows that two parts need are loaded once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cores.config import NpuConfig
from gen.ir.graph import Conv, Tensor
from gen.mapping.pack import PackedWeights, Pass, pack_lanes, weight_parts
from gen.tiling.geometry import MAX_KERNEL, Geometry, Window, split

__all__ = ["WindowGeometry", "pack_windows"]


@dataclass(frozen=True)
class WindowGeometry(Geometry):
    """The loops of a depthwise layer in windows. All input rows are loaded, and all columns in their own order."""

    #: Accumulator words that a part of a tile may take.
    part_words: int = 0

    @classmethod
    def fitting(cls, layer: Conv, source: Tensor, target: Tensor, config: NpuConfig, *,
                map_out: bool = False) -> "WindowGeometry | None":
        """The geometry of a layer that can be computed in windows; None for others.

        Raises CompileError where `Geometry.of` does.
        """
        plain = Geometry.of(layer, source, target, map_out=map_out)
        strides = {(1, 1), (2, 2)} if config.oc_groups == 2 else {(1, 1)}
        if not config.depthwise or not layer.depthwise or plain.stride not in strides:
            return None
        # The plain geometry of a 1x1 kernel is one long row, which suits windows as well.
        geometry = cls(plain.kernel, plain.stride, plain.pads, plain.input_size, plain.output_size,
                       column_step=plain.column_step, part_words=config.acc_depth)
        return geometry if geometry.step_rows <= MAX_KERNEL else None

    @property
    def alternate(self) -> bool:
        """Groups of output lanes make alternate rows; otherwise they make different pixels of a row."""
        return self.stride == (2, 2)

    @property
    def shift(self) -> bool:
        """Tap row 2 of the upper rows is made with tap row 0 of the rows below them: the same input row."""
        return self.alternate and self.kernel[0] == 3

    @property
    def step_rows(self) -> int:
        """Input rows that a row of words needs, each a step (a few, with wide kernels)."""
        return self.kernel[0] + 2 * self.alternate - self.shift

    def tap_groups(self, config: NpuConfig) -> int:
        """Steps that the taps of a kernel row take."""
        return -(-self.kernel[1] // config.nnz_lanes)

    def step_of(self, tap_row: int, group: int) -> int:
        """The step row in which a group of output lanes multiplies a row of taps."""
        if not self.alternate:
            return tap_row
        return (tap_row + 2 * group) % 4 if self.shift else tap_row + 2 * group

    def reads(self, cols: int, config: NpuConfig) -> int:
        """Reads of an input row that cover the taps of ``cols`` outputs, and no fewer than there are words."""
        columns = (cols - 1) * self.stride[1] + min(config.nnz_lanes, self.kernel[1])
        return max(-(-columns // config.banks), -(-cols // self.word_columns(config)))

    def part_rows(self, window: Window, config: NpuConfig) -> int:
        """Output rows of a tile that a part of it has at most."""
        return max(1, self.part_words // -(-window.cols // self.word_columns(config))) * self.word_rows

    def parts(self, window: Window, config: NpuConfig) -> list[Window]:
        """A tile's parts from top to bottom, each with the input rows that those before it do not bring."""
        parts = []
        loaded = 0
        for start, rows in split(window.rows, -(-window.rows // self.part_rows(window, config)), self.word_rows):
            end = (start + rows - 1) * self.stride[0] + self.kernel[0]
            data = [min(max(row - window.pad_top, 0), window.data_rows) for row in (loaded, end)]
            above = min(window.pad_top, end) - min(window.pad_top, loaded)
            data_rows = data[1] - data[0]
            parts.append(replace(
                window, y=window.y + start, rows=rows, row=window.row + data[0], data_rows=data_rows, pad_top=above,
                pad_bottom=end - loaded - above - data_rows, buffer_row=loaded))
            loaded = end
        return parts

    def first_row(self, window: Window, part: Window) -> int:
        """Buffer row at which the reads of a part of a tile begin."""
        return (part.y - window.y) * self.stride[0]

    # -- what `Geometry` says of plain layers ----------------------------------------------------------------------

    @property
    def load_stride(self) -> int:
        return 1

    @property
    def word_rows(self) -> int:
        return 2 if self.alternate else 1

    def word_columns(self, config: NpuConfig, *, narrow: bool = False) -> int:
        return config.pixel_lanes if self.alternate else config.banks

    def steps(self, config: NpuConfig, rows: range | None = None) -> int:
        return (self.step_rows if rows is None else len(rows)) * self.tap_groups(config)

    def step_cycles(self, window: Window, config: NpuConfig, *, narrow: bool = False) -> float:
        rows = -(-window.rows // self.word_rows) + self.shift / self.step_rows
        return rows * self.reads(window.cols, config)

    def _row_pitch(self, cols: int, config: NpuConfig) -> int:
        columns = (cols - 1) * self.stride[1] + self.kernel[1]
        read = (self.tap_groups(config) - 1) * config.nnz_lanes // config.banks + self.reads(cols, config)
        return max(-(-columns // config.banks), read)

    def _rows_read(self, rows: int) -> int:
        # The upper half of the last pair is computed even where the output does not have it.
        return super()._rows_read(-(-rows // self.word_rows) * self.word_rows)

    def buffer_row_step(self, window: Window) -> int:
        return self.word_rows * self.stride[0] * window.row_pitch

    def compute_fields(self, window: Window, config: NpuConfig, *, narrow: bool = False,
                       rows: range | None = None) -> Mapping[str, int]:
        rows = range(self.step_rows) if rows is None else rows
        return {
            "kernel_h": len(rows), "kernel_w": self.tap_groups(config), "stride": 1,
            "rows": -(-window.rows // self.word_rows), "cols": window.cols, "buf_row_pitch": window.row_pitch,
            "buf_row_step": self.buffer_row_step(window), "buf_block_pitch": window.entries,
            "spread": int(not self.alternate), "window": 1, "alternate": int(self.alternate),
            "shift": int(self.shift and rows.start == 0), "reads": self.reads(window.cols, config),
        }

    def store_fields(self, window: Window, config: NpuConfig, *, narrow: bool = False) -> Mapping[str, int]:
        return {"spread": int(not self.alternate), "alternate": int(self.alternate)}


def pack_windows(layer: Conv, geometry: WindowGeometry, config: NpuConfig) -> PackedWeights:
    """Pack a depthwise layer's weights: a tile for each channel block, with more than one pass if weights exceed int8.

    The further passes only have the rows of steps in which there is something left.
    """
    channels, _, height, width = layer.weights.shape
    groups, lanes, tn = geometry.tap_groups(config), config.nnz_lanes, config.ic_lanes
    blocks = -(-channels // tn)
    taps = np.zeros((blocks * tn, height, groups * lanes), np.int16)
    taps[:channels, :, :width] = layer.weights[:, 0]
    by_row = taps.reshape(blocks, tn, height, groups, lanes).transpose(0, 2, 3, 1, 4)
    steps = np.zeros((blocks, geometry.step_rows, groups, config.oc_groups, tn, lanes), np.int16)
    for group in range(config.oc_groups):
        for row in range(height):
            steps[:, geometry.step_of(row, group), :, group] = by_row[:, row]
    parts = list(weight_parts(steps, config))
    chunks: list[np.ndarray] = []
    tiles: list[tuple[Pass, ...]] = []
    offset = 0
    for block in range(blocks):
        passes = []
        for number, part in enumerate(parts):
            used = np.flatnonzero(part[block].any(axis=(1, 2, 3, 4))) if number else np.arange(geometry.step_rows)
            if len(used):
                first, last = int(used[0]), int(used[-1])
                passes.append(Pass(block, 1, 1, False, offset, range(first, last + 1)))
                rows = part[block, first:last + 1].reshape(-1, config.oc_lanes * lanes)
                chunks.append(pack_lanes(rows, config).reshape(-1, config.beat_bytes))
                offset += len(chunks[-1])
        tiles.append(tuple(passes))
    return PackedWeights(np.concatenate(chunks), tuple(tiles))
