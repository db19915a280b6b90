"""Winograd F(2x2, 3x3) for dense 3x3 layers of stride 1 (docs/architecture.md, "Winograd tiles").

Four output pixels take 16 products instead of 36. The exact form multiplies 10-bit tiles by 12-bit weights and changes
no value; the narrow form rounds both to int8, which does (docs/numerics.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cores.arch.isa import MAX_TILE_COLS, Opcode, Queue, WordForm, largest_field
from cores.arch.numerics import POSITIONS
from cores.config import NpuConfig
from cores.timing.winograd import WinogradSumsTiming
from gen.ir.errors import CompileError, LayerError
from gen.ir.graph import Conv
from gen.ir.tensor import Tensor
from gen.lowering.buffer_allocation import Chunk
from gen.lowering.emitter import Emitter
from gen.lowering.mapped import ComputedTile
from gen.mapping.base import LayerContext
from gen.mapping.overflow_check import fit_exact
from gen.mapping.pack import pack, slices_of
from gen.mapping.plain import ConvMapping
from gen.mapping.winograd.narrow import has_tiles
from gen.tiling.geometry import Geometry, SpatialTile, input_range
from gen.tiling.schedule import (
    COMPUTE_OVERHEAD,
    LATENCY,
    Estimate,
    Plan,
    candidates,
    cheapest,
    step_pace,
)
from gen.tiling.weights import PARAMETER_BEATS, PackedWeights, ReductionSlice, TileSlices
from sim.golden import winograd_weights

__all__ = ["WinogradGeometry", "WinogradMapping"]

_MAX_TILES = largest_field(Opcode.COMPUTE_SET, "cols")


# -- tiles -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WinogradGeometry(Geometry):
    """A spatial tile in Winograd tiles of 2x2 pixels, numbered row by row without gaps, ``px`` to an accumulator word.

    Words come 16 times, once for each position; so do the entries of a block, of which a row is a position's.
    """

    #: Of the narrow form.
    shifts: tuple[int, ...] = ()

    @classmethod
    def fitting(cls, layer: Conv, source: Tensor, target: Tensor) -> "WinogradGeometry":
        """The geometry of a layer that has tiles. Raises LayerError where `Geometry.of` does."""
        plain = Geometry.of(layer, source, target)
        return cls(plain.kernel, plain.stride, plain.pads, plain.input_size, plain.output_size,
                   repeats=plain.repeats, windows=plain.windows,
                   shifts=layer.winograd.shifts if layer.winograd else ())

    @staticmethod
    def tiles(spatial: SpatialTile) -> int:
        return -(-spatial.rows // 2) * -(-spatial.cols // 2)

    def spatial_tile(self, y: int, rows: int, x: int, cols: int, config: NpuConfig) -> SpatialTile:
        tile_rows, tile_cols = -(-rows // 2), -(-cols // 2)
        row, data_rows, pad_top, pad_bottom = input_range(y - self.pads[0], 2 * tile_rows + 2, self.input_size[0])
        col, data_cols, pad_left, pad_right = input_range(x - self.pads[1], 2 * tile_cols + 2, self.input_size[1])
        return SpatialTile(y, rows, x, cols, row, data_rows, col, data_cols, pad_top, pad_bottom, pad_left, pad_right,
                      -(-tile_rows * tile_cols // config.banks), POSITIONS)

    def steps(self, config: NpuConfig, rows: range | None = None) -> int:
        return POSITIONS

    def word_columns(self, config: NpuConfig, *, spread: bool = False) -> int:
        return 2

    @property
    def word_rows(self) -> int:
        return 2

    def words(self, spatial: SpatialTile, config: NpuConfig, *, spread: bool = False) -> int:
        """Accumulator words of a position."""
        return -(-self.tiles(spatial) // config.pixel_lanes)

    def compute_fields(self, spatial: SpatialTile, config: NpuConfig, *, spread: bool = False,
                       rows: range | None = None) -> Mapping[str, int]:
        """Fields of COMPUTE_SET: a position's tiles are a row of pixels."""
        return {
            "kernel_h": 1, "kernel_w": 1, "stride": 1, "rows": 1, "cols": self.tiles(spatial),
            "buf_row_pitch": 0, "buf_row_step": 0, "buf_block_pitch": spatial.entries,
        }

    def tile_fields(self, spatial: SpatialTile) -> dict[str, int]:
        """Fields of LOAD_WINOGRAD."""
        return {
            "shifts": sum(shift << 2 * position for position, shift in enumerate(self.shifts)),
            "tile_cols": -(-spatial.cols // 2), "position_pitch": spatial.row_pitch,
        }

    def row_words(self, spatial: SpatialTile, config: NpuConfig, *, spread: bool = False) -> int:
        return 0

    def store_fields(self, spatial: SpatialTile, config: NpuConfig, *, spread: bool = False) -> Mapping[str, int]:
        return {"words": WordForm.TILES, "position_words": self.words(spatial, config)}

    def fits(self, spatial: SpatialTile, config: NpuConfig) -> bool:
        tiles = self.tiles(spatial)
        return (self.loads(spatial) and -(-spatial.cols // 2) <= MAX_TILE_COLS and tiles <= _MAX_TILES
                and spatial.entries <= min(config.input_depth, largest_field(Opcode.LOAD_SET, "buf_block_pitch"))
                and POSITIONS * self.words(spatial, config) <= config.acc_depth)


@dataclass(frozen=True, eq=False, kw_only=True)
class WinogradMapping(ConvMapping):
    """A layer in transformed tiles: in the narrow form if it has one, else in the exact one, which changes no value."""

    modes = {"winograd": "2x2 results at a time, by 16 multiplications instead of 36"}

    stores_windows = True

    #: Taken wherever it can be.
    demanded: bool = False

    @property
    def mode(self) -> str:
        return "winograd"

    @classmethod
    def propose(cls, context: LayerContext[Conv]) -> "WinogradMapping | None":
        layer, config, target = context.layer, context.config, context.target
        if layer.stochastic or not has_tiles(layer):
            return None
        if layer.winograd and config.winograd != 1:
            raise CompileError(f"layer {layer.name}: the narrow Winograd form needs a machine with winograd=1, "
                               f"not {config.winograd}", code="needs-unit", unit="winograd")
        if not layer.winograd and (config.winograd != 2 or context.options.winograd == "off"):
            return None
        fitted = context.fitted
        geometry = WinogradGeometry.fitting(fitted, context.source, target)
        requantize = fitted.requantize if fitted.winograd else fit_exact(fitted, config, context.operands)
        tiles, plan = slices_of(_transformed(fitted), config), None
        if requantize is not None and not context.packed_out:
            plan = _plan(fitted, geometry, target, tiles, config)
        if requantize is None or plan is None:
            if not layer.winograd:
                return None
            raise LayerError(layer.name, f"no tile of its Winograd form fits input_depth={config.input_depth} and "
                                         f"acc_depth={config.acc_depth}; build with deeper memories", code="no-tile")
        return cls.at(context, plan, requantize=requantize, tiles=tiles,
                      demanded=bool(layer.winograd) or context.options.winograd == "exact")

    @cached_property
    def weights(self) -> PackedWeights:
        """Packed like those of a kernel of 16 taps: block, position, group."""
        return PackedWeights(pack(_transformed(self.layer), self.tiles, self.config), self.tiles)

    def set_load(self, emitter: Emitter, geometry: Geometry, spatial: SpatialTile, fields: dict[str, int]) -> None:
        assert isinstance(geometry, WinogradGeometry)
        emitter.set_load({**fields, "buf_row_pitch": 0}, Opcode.LOAD_WINOGRAD, geometry.tile_fields(spatial))

    def beats_ahead(self, beats: int, reduction: ReductionSlice) -> int:
        return beats // reduction.blocks

    def compute(self, tile: ComputedTile, reduction: ReductionSlice, chunk: Chunk, after: dict[Queue, int], *,
                first: bool, ahead: int, row: int) -> None:
        """COMPUTEs of transformed tiles: for block, position.

        A block's weights come before them: 16 COMPUTEs fill the queue, after which what the next block needs would
        wait too long. So would the STORE of the tile before, which therefore comes after the first block.
        """
        words = self.plan.geometry.words(tile.spatial, self.config)
        beats = POSITIONS * reduction.groups * reduction.step_beats(self.config)
        for number in range(reduction.blocks):
            block = replace(reduction, block=reduction.block + number, blocks=1,
                            offset=reduction.offset + number * beats)
            tile.load_weights(block, ahead)
            base = chunk.place.base + (block.block - chunk.blocks.start) * tile.spatial.entries
            for position in range(POSITIONS):
                tile.emit(Opcode.COMPUTE, after, buf_base=base + position * tile.spatial.row_pitch, blocks=1,
                          groups=reduction.groups, kind=reduction.kind, first=int(first), acc_base=position * words)
            if first:
                tile.flush_stores()
            first, ahead = False, 0


def _transformed(layer: Conv) -> Conv:
    """A layer with the weights of its transformed tiles."""
    weights = winograd_weights(layer.weights).astype(np.int16) if layer.winograd is None else layer.winograd.weights
    return replace(layer, weights=weights)


def _plan(layer: Conv, geometry: WinogradGeometry, target: Tensor, tiles: TileSlices, config: NpuConfig) -> Plan | None:
    """Choose the tiling; None if none fits the configuration."""
    in_blocks = -(-layer.weights.shape[1] // config.ic_lanes)
    out_blocks = -(-target.shape[0] // config.ic_lanes)
    slices = [reduction for tile in tiles for reduction in tile]
    steps = [(POSITIONS * p.blocks * p.groups, p.step_beats(config)) for p in slices]
    weight_beats = sum(count * beats for count, beats in steps)
    computes = POSITIONS * sum(reduction.blocks for reduction in slices)
    others, depth = len(layer.others), config.input_depth

    def estimate(spatial_tiles: Sequence[tuple[SpatialTile, int]], held: bool) -> Estimate:
        rounds = 1 if held else len(tiles)
        cycles = beats_moved = 0.0
        for spatial, count in spatial_tiles:
            words, written = geometry.words(spatial, config), geometry.store_beats(spatial)
            compute = computes * COMPUTE_OVERHEAD + sum(
                number * step_pace(words, beats, config) for number, beats in steps)
            side = out_blocks * (PARAMETER_BEATS + others * written)
            load = in_blocks * spatial.load_beats * rounds + weight_beats + side
            transform = in_blocks * POSITIONS * geometry.tiles(spatial) * rounds
            store = out_blocks * (geometry.store_values(spatial) * WinogradSumsTiming.WORDS + PARAMETER_BEATS)
            # Where only one block has room, its successor is loaded when it is done.
            alone = not held and 2 * spatial.entries > depth
            cycles += count * (max(compute, load, transform, store) + alone * min(max(load, transform), compute))
            beats_moved += count * (load + out_blocks * written)
        first, last = spatial_tiles[0][0], spatial_tiles[-1][0]
        fill = 2 * LATENCY + POSITIONS * geometry.tiles(first)
        drain = LATENCY + min(config.oc_groups, out_blocks) * geometry.store_values(last) * WinogradSumsTiming.WORDS
        return cycles + fill + drain, beats_moved, 1, held

    found = []
    for tiling in candidates(geometry, config):
        entries = max(spatial.entries for spatial, _ in tiling.spatial_tiles)
        for held in [False, True][:1 + (len(tiles) > 1 and in_blocks * entries <= depth)]:
            found.append((estimate(tiling.spatial_tiles, held), tiling))
    if not found:
        return None
    best, tiling = cheapest(found)
    return tiling.finish(best, config)


