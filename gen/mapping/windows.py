"""Depthwise layers in windows (docs/architecture.md, "Spread words"): their geometry and their packed weights.

Reduction lanes are neighbouring taps of one channel, and one COMPUTE makes one channel block of a tile: with `spread`
for stride 1, with `alternate` for stride 2. Where output lanes have taps of their own channel (`NpuConfig.own_taps`),
the words of all strides are spread, and taps that neighbour each other in a phase, every stride-th column, go together.
A tile may have more rows than fit an accumulator bank: it is loaded and computed in bands of rows, so that the rows
that two bands need are loaded once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cores.arch.isa import StepKind, WordForm
from cores.config import NpuConfig
from gen.ir.errors import LayerError
from gen.ir.graph import Conv
from gen.ir.tensor import Tensor
from gen.lowering.mapped import PlacedLayer
from gen.lowering.tiles import Tiles
from gen.mapping.base import LayerContext
from gen.mapping.pack import pack_lanes, weight_parts
from gen.mapping.plain import ConvMapping
from gen.tiling.geometry import MAX_KERNEL, Geometry, SpatialTile, row_entries, split
from gen.tiling.schedule import (
    CHUNK_CYCLES,
    LATENCY,
    WINDOW_OVERHEAD,
    Estimate,
    Plan,
    candidates,
    cost_of,
    step_pace,
    store_cycles,
)
from gen.tiling.weights import PARAMETER_BEATS, PackedWeights, ReductionSlice, TileSlices

__all__ = ["WindowGeometry", "WindowMapping", "WindowWeights", "in_windows"]

#: What a tile's own cycles weigh: until its first tile is done a layer in windows and the next one keep different parts
#: of the machine busy one after the other.
_START_WEIGHT = 0.1


@dataclass(frozen=True)
class WindowGeometry(Geometry):
    """The loops of a depthwise layer in windows. All input rows are loaded, and all columns: in their own order, or by
    phases.
    """

    #: Accumulator words that a band of a tile may take.
    band_words: int = 0
    #: Phases of the columns that are computed one by one, the horizontal stride; 1 without.
    phases: int = 1

    @classmethod
    def fitting(cls, layer: Conv, source: Tensor, target: Tensor, config: NpuConfig, *,
                packed_out: bool = False) -> "WindowGeometry | None":
        """The geometry of a layer that can be computed in windows; None for others.

        Raises LayerError where `Geometry.of` does.
        """
        plain = Geometry.of(layer, source, target, packed_out=packed_out)
        strides = {(1, 1), (2, 2)} if config.groups_alternate else {(1, 1)}
        if not config.depthwise or not layer.depthwise or not (config.own_taps or plain.stride in strides):
            return None
        # The plain geometry of a 1x1 kernel is one long row, which suits windows as well.
        geometry = cls(plain.kernel, plain.stride, plain.pads, plain.input_size, plain.output_size,
                       column_step=plain.column_step, repeats=plain.repeats, band_words=config.acc_depth,
                       phases=plain.stride[1] if config.own_taps else 1)
        return geometry if geometry.step_rows <= MAX_KERNEL else None

    @property
    def alternate(self) -> bool:
        """Groups of output lanes make alternate rows; otherwise they make different pixels of a row."""
        return self.stride == (2, 2) and self.phases == 1

    @property
    def shift(self) -> bool:
        """Tap row 2 of the upper rows is made with tap row 0 of the rows below them: the same input row."""
        return self.alternate and self.kernel[0] == 3

    @property
    def step_rows(self) -> int:
        """Input rows that a row of words needs, each a step (a few, with wide kernels)."""
        return self.kernel[0] + 2 * self.alternate - self.shift

    def tap_groups(self, config: NpuConfig) -> int:
        """Steps that the taps of a kernel row take: of each phase those of so many taps, then the next ones."""
        whole, rest = divmod(self.kernel[1], config.window_taps * self.phases)
        return whole * self.phases + min(rest, self.phases)

    def step_of(self, tap_row: int, group: int) -> int:
        """The step row in which a group of output lanes multiplies a row of taps."""
        if not self.alternate:
            return tap_row
        return (tap_row + 2 * group) % 4 if self.shift else tap_row + 2 * group

    def reads(self, cols: int, config: NpuConfig) -> int:
        """Reads of an input row that cover the taps of ``cols`` outputs, and no fewer than there are words."""
        taps = min(config.window_taps, -(-self.kernel[1] // self.phases))
        columns = (cols - 1) * self.stride[1] // self.phases + taps
        return max(-(-columns // config.banks), -(-cols // self.word_columns(config)))

    def fits(self, spatial: SpatialTile, config: NpuConfig) -> bool:
        """Also one row of words has to be no longer than an accumulator bank: bands divide no rows."""
        return super().fits(spatial, config) and -(-spatial.cols // self.word_columns(config)) <= config.acc_depth

    def band_rows(self, spatial: SpatialTile, config: NpuConfig) -> int:
        """Output rows that a band has at most."""
        return max(1, self.band_words // -(-spatial.cols // self.word_columns(config))) * self.word_rows

    def bands(self, spatial: SpatialTile, config: NpuConfig) -> list[SpatialTile]:
        """A tile's bands from top to bottom, each with the input rows that those before it do not bring."""
        bands = []
        loaded = 0
        for start, rows in split(spatial.rows, -(-spatial.rows // self.band_rows(spatial, config)), self.word_rows):
            end = (start + rows - 1) * self.stride[0] + self.kernel[0]
            data = [min(max(row - spatial.pad_top, 0), spatial.data_rows) for row in (loaded, end)]
            above = min(spatial.pad_top, end) - min(spatial.pad_top, loaded)
            data_rows = data[1] - data[0]
            bands.append(replace(
                spatial, y=spatial.y + start, rows=rows, row=spatial.row + data[0], data_rows=data_rows, pad_top=above,
                pad_bottom=end - loaded - above - data_rows, buffer_row=loaded))
            loaded = end
        return bands

    def first_row(self, spatial: SpatialTile, band: SpatialTile) -> int:
        """Buffer row at which the reads of a band of a tile begin."""
        return (band.y - spatial.y) * self.stride[0]

    # -- what `Geometry` says of plain layers ----------------------------------------------------------------------

    @property
    def load_stride(self) -> int:
        return self.phases

    @property
    def words_form(self) -> WordForm:
        return WordForm.ALTERNATE if self.alternate else WordForm.SPREAD

    @property
    def word_rows(self) -> int:
        return 2 if self.alternate else 1

    def word_columns(self, config: NpuConfig, *, spread: bool = False) -> int:
        return config.word_columns(spread=not self.alternate)

    def steps(self, config: NpuConfig, rows: range | None = None) -> int:
        return (self.step_rows if rows is None else len(rows)) * self.tap_groups(config)

    def step_cycles(self, spatial: SpatialTile, config: NpuConfig, *, spread: bool = False) -> float:
        rows = -(-spatial.rows // self.word_rows) + self.shift / self.step_rows
        return rows * self.reads(spatial.cols, config)

    def _row_pitch(self, cols: int, config: NpuConfig) -> int:
        columns = (cols - 1) * self.stride[1] + self.kernel[1]
        further = (self.tap_groups(config) - 1) // self.phases * config.window_taps // config.banks
        return max(row_entries(columns, self.phases, config.banks), (further + self.reads(cols, config)) * self.phases)

    def _rows_read(self, rows: int) -> int:
        # The upper half of the last pair is computed even where the output does not have it.
        return super()._rows_read(-(-rows // self.word_rows) * self.word_rows)

    def buffer_row_step(self, spatial: SpatialTile) -> int:
        return self.word_rows * self.stride[0] * spatial.row_pitch

    def compute_fields(self, spatial: SpatialTile, config: NpuConfig, *, spread: bool = False,
                       rows: range | None = None) -> Mapping[str, int]:
        rows = range(self.step_rows) if rows is None else rows
        return {
            "kernel_h": len(rows), "kernel_w": self.tap_groups(config), "stride": self.phases,
            "rows": -(-spatial.rows // self.word_rows), "cols": spatial.cols, "buf_row_pitch": spatial.row_pitch,
            "buf_row_step": self.buffer_row_step(spatial), "buf_block_pitch": spatial.entries,
            "words": self.words_form, "shift": int(self.shift and rows.start == 0),
            "reads": self.reads(spatial.cols, config),
        }

    def store_fields(self, spatial: SpatialTile, config: NpuConfig, *, spread: bool = False) -> Mapping[str, int]:
        return {"words": self.words_form}


class WindowWeights:
    """A depthwise layer's weights: a tile for each channel block, with more than one slice if they exceed int8."""

    def __init__(self, layer: Conv, geometry: WindowGeometry, config: NpuConfig) -> None:
        self._config = config
        channels, _, height, width = layer.weights.shape
        groups, lanes, tn = geometry.tap_groups(config), config.window_taps, config.ic_lanes
        blocks = -(-channels // tn)
        parts = -(-groups // geometry.phases)
        taps = np.zeros((blocks * tn, height, parts * lanes * geometry.phases), np.int16)
        taps[:channels, :, :width] = layer.weights[:, 0]
        # Of a part the phases, of a phase its taps.
        by_part = taps.reshape(blocks, tn, height, parts, lanes, geometry.phases).transpose(0, 2, 3, 5, 1, 4)
        by_row = by_part.reshape(blocks, height, parts * geometry.phases, tn, lanes)[:, :, :groups]
        steps = np.zeros((blocks, geometry.step_rows, groups, config.oc_groups, tn, config.nnz_lanes), np.int16)
        for group in range(config.oc_groups):
            for row in range(height):
                steps[:, geometry.step_of(row, group), :, group, :, :lanes] = by_row[:, row]
        self._parts = list(weight_parts(steps, config))
        tiles, offset = [], 0
        for block in range(blocks):
            slices = []
            for number, part in enumerate(self._parts):
                used = np.flatnonzero(part[block].any(axis=(1, 2, 3, 4))) if number else np.arange(geometry.step_rows)
                if len(used):
                    rows = range(int(used[0]), int(used[-1]) + 1)
                    slices.append(ReductionSlice(block, 1, 1, StepKind.WINDOW, offset, rows))
                    offset += geometry.steps(config, rows) * slices[-1].step_beats(config)
            tiles.append(tuple(slices))
        self.tiles: TileSlices = tuple(tiles)
        self.beats = offset

    def packed(self) -> PackedWeights:
        config, chunks = self._config, []
        for block, slices in enumerate(self.tiles):
            # Of further parts only those with something in them have a slice.
            parts = [part for number, part in enumerate(self._parts) if not number or part[block].any()]
            for item, part in zip(slices, parts, strict=True):
                assert item.rows is not None
                rows = part[block, item.rows.start:item.rows.stop].reshape(-1, config.oc_lanes * config.nnz_lanes)
                chunks.append(pack_lanes(rows, config).reshape(-1, config.beat_bytes))
        return PackedWeights(np.concatenate(chunks), self.tiles)


@dataclass(frozen=True, eq=False, kw_only=True)
class WindowMapping(ConvMapping):
    """Each channel block is an output tile, a chunk of several is loaded at once."""

    modes = {"window": "depthwise: neighbouring taps and pixels on lanes that one channel would leave idle"}

    taps: WindowWeights

    @property
    def mode(self) -> str:
        return "window"

    @property
    def spatial_tiles(self) -> Sequence[SpatialTile]:
        geometry = self.plan.geometry
        assert isinstance(geometry, WindowGeometry)
        return [band for spatial in self.plan.spatial_tiles for band in geometry.bands(spatial, self.config)]

    @classmethod
    def propose(cls, context: LayerContext[Conv]) -> "WindowMapping | None":
        layer, config = context.layer, context.config
        if not layer.depthwise or context.options.depthwise != "auto":
            return None
        geometry = WindowGeometry.fitting(layer, context.source, context.target, config, packed_out=context.packed_out)
        if geometry is None:
            return None
        fitted = context.fitted
        taps = WindowWeights(fitted, geometry, config)
        return cls.at(context, _plan(fitted, geometry, taps, config), tiles=taps.tiles, taps=taps)

    @cached_property
    def weights(self) -> PackedWeights:
        return self.taps.packed()

    def emit(self, tiles: Tiles, placed: PlacedLayer) -> None:
        for _ in self.output_tiles(tiles, placed):
            pass

    def output_tiles(self, tiles: Tiles, placed: PlacedLayer) -> Iterator[None]:
        """Emit the layer's output tiles, one each time."""
        geometry = self.plan.geometry
        assert isinstance(geometry, WindowGeometry)
        for spatial in self.plan.spatial_tiles:
            bands = geometry.bands(spatial, tiles.config)
            for blocks in self.output_blocks(self.plan.chunk):
                room = tiles.chunks.ring.take(spatial.entries * len(blocks))
                for band in bands:
                    chunk = tiles.chunks.load(placed, geometry, band, blocks, self.tiles[blocks.start], room)
                    for block in blocks:
                        tile = tiles.begin(placed, geometry, band, range(block, block + 1))
                        for reduction in self.tiles[block]:
                            tile.compute(reduction, chunk, row=geometry.first_row(spatial, band))
                        # The last of them remains.
                        chunk.place.last_reader = tiles.last_compute
                        tile.end()
                        yield


def in_windows(mapping: ConvMapping) -> WindowMapping | None:
    """A depthwise layer in windows of rows that lie in the input buffer as they are; its tiling is still open. None if
    it cannot be.
    """
    layer, config = mapping.layer, mapping.config
    geometry = WindowGeometry.fitting(layer, mapping.source, mapping.target, config)
    if geometry is None or geometry.phases > 1:
        return None
    taps = WindowWeights(layer, geometry, config)
    return WindowMapping(
        layer=layer, source=mapping.source, target=mapping.target, config=config, requantize=mapping.requantize,
        plan=replace(mapping.plan, geometry=geometry), tiles=taps.tiles, taps=taps)


# -- cost ------------------------------------------------------------------------------------------------------------


def _estimate(layer: Conv, geometry: WindowGeometry, weights: WindowWeights,
              spatial_tiles: Sequence[tuple[SpatialTile, int]], config: NpuConfig) -> Estimate:
    """Of a depthwise layer's tiling in windows."""
    blocks, slices, depth = len(weights.tiles), sum(map(len, weights.tiles)), config.input_depth
    steps = sum(geometry.steps(config, reduction.rows) for tile in weights.tiles for reduction in tile)
    others = len(layer.others)
    largest = max((spatial for spatial, _ in spatial_tiles), key=lambda spatial: spatial.entries)
    # Instructions of the next chunk should be in their queues in time.
    chunk = min(blocks, max(1, config.queue_depth // 4), max(1, depth // 3 // largest.entries),
                -(-CHUNK_CYCLES // largest.load_beats))
    # Of all tiles, as each engine would take if it never waited.
    loads = computes = stores = beats = 0.0
    for spatial, count in spatial_tiles:
        load, compute, written = 0.0, 0.0, geometry.store_beats(spatial)
        bands = geometry.bands(spatial, config)
        for band in bands:
            step = step_pace(geometry.step_cycles(band, config), config.weight_beats, config)
            compute += steps * step + slices * WINDOW_OVERHEAD
            load += blocks * (band.load_beats + PARAMETER_BEATS) + weights.beats
        load += blocks * written * others
        beats += count * (load + blocks * written)
        if chunk * largest.entries * 2 > depth:
            # The next chunk's first band is loaded when this one's last is computed.
            load += compute / blocks * -(-blocks // chunk) / len(bands)
        loads, computes = loads + count * load, computes + count * compute
        stores += count * blocks * (written * store_cycles(layer, config) + len(bands) * PARAMETER_BEATS)
    first, last = geometry.bands(spatial_tiles[0][0], config)[0], geometry.bands(spatial_tiles[-1][0], config)[-1]
    fill, drain = chunk * first.load_beats, geometry.store_beats(last) * store_cycles(layer, config)
    between = steps / blocks * geometry.step_cycles(last, config)
    cycles = max(loads + between + drain, fill + computes + drain, fill + between + stores)
    return cycles + 3 * LATENCY, beats, chunk, False


def _plan(layer: Conv, geometry: WindowGeometry, weights: WindowWeights, config: NpuConfig) -> Plan:
    """Choose the tiling. Raises LayerError if none fits the configuration."""
    # Small bands are stored sooner, but each takes the weights anew.
    divided = [replace(geometry, band_words=config.acc_depth // bands) for bands in (1, 2, 4)]
    found = [(_estimate(layer, form, weights, tiling.spatial_tiles, config), tiling)
             for form in divided for tiling in candidates(form, config)]
    if not found:
        raise LayerError(layer.name, f"no tile of it fits input_depth={config.input_depth} and "
                                     f"acc_depth={config.acc_depth}; build with deeper memories", code="no-tile")
    estimate, tiling = min(found, key=lambda item: (
        cost_of(item[0]) + _START_WEIGHT * item[0][0] / (len(item[1].rows) * len(item[1].cols))))
    return tiling.finish(estimate, config)
