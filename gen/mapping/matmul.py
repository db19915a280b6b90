"""Products of two activations, one of which is taken as weights (`gen.mapping.turn`).

What zero points add, further steps do: that of the matrix is a constant weight of each channel of the input, that of
the input a constant activation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cores.arch.isa import Opcode, Queue, StepKind
from cores.config import NpuConfig
from gen.ir.errors import LayerError
from gen.ir.graph import Conv, MatMul
from gen.ir.layers.matmul import WeightOrder
from gen.lowering.buffer_allocation import Chunk
from gen.lowering.emitter import Emitter
from gen.lowering.mapped import ComputedTile, PlacedLayer, TensorSlice
from gen.lowering.tiles import Tile, Tiles
from gen.mapping.base import LayerContext
from gen.mapping.pack import pack, slices_of
from gen.mapping.plain import ConvCost, SlicedMapping, plan_conv
from gen.mapping.turn import turn_problem, weight_order
from gen.memory.placement import Placement
from gen.tiling.geometry import Geometry, SpatialTile
from gen.tiling.schedule import Plan
from gen.tiling.weights import PackedWeights, ReductionSlice, TileSlices

__all__ = ["MatMulMapping"]


@dataclass(frozen=True)
class _TurnedSlice(ReductionSlice):
    """A slice whose weights are those of output tile ``tile`` of the turned matrix."""

    tile: int = 0


@dataclass(frozen=True)
class _ConstantTile(SpatialTile):
    """A spatial tile of one block, all of whose activations are ``value``."""

    value: int = 0


def _indices(order: WeightOrder, config: NpuConfig) -> np.ndarray:
    """The indices of each step: uint8 (steps * index beats, bytes)."""
    lane = np.arange(config.oc_lanes * config.nnz_lanes) % order.reduction_lanes
    indices = (np.arange(order.steps)[:, None] * order.run + lane % order.run).astype(np.uint8)
    bits = np.unpackbits(indices[..., None], axis=-1, bitorder="little")[..., :config.index_bits]
    packed = np.packbits(bits.reshape(order.steps, -1), axis=-1, bitorder="little")
    beats = np.zeros((order.steps, config.index_beats * config.beat_bytes), np.uint8)
    beats[:, :packed.shape[1]] = packed
    return beats.reshape(-1, config.beat_bytes)


def _constants(zero_point: int) -> list[int]:
    """Activations that add up to ``-zero_point``."""
    return [part for part in (min(-zero_point, 127), -zero_point - min(-zero_point, 127)) if part]


@dataclass(frozen=True, eq=False, kw_only=True)
class MatMulMapping(SlicedMapping):
    """Output tiles over the turned matrix, and further slices of the reduction for zero points."""

    modes = {"activations": "products of two activations, one of them as weights"}

    takes = MatMul

    layer: MatMul
    packed: PackedWeights

    @property
    def mode(self) -> str:
        return "activations"

    @classmethod
    def propose(cls, context: LayerContext[MatMul]) -> "MatMulMapping | None":
        layer, config = context.fitted, context.config
        if problem := turn_problem(layer, config):
            raise LayerError(layer.name, problem, code="needs-unit", unit="gather")
        order = weight_order(config)
        if layer.turned != (None if config.turn else order) or context.packed_out:
            return None
        kind = StepKind.DENSE if order.run == 1 else StepKind.INDEXED
        tail = layer.reduced % order.beat
        full = layer.reduced // order.beat
        turned = [
            [_TurnedSlice(0, full, order.steps, kind, 0, tile=tile)] * (full > 0)
            + [_TurnedSlice(full, 1, order.steps_of(tail), kind, 0, tile=tile)] * (tail > 0)
            for tile in range(-(-layer.outputs // config.oc_lanes))]
        indices = np.empty((0, config.beat_bytes), np.uint8) if config.turn else _indices(order, config)
        constant = _constant_weights(layer)
        more = slices_of(constant, config) if layer.zero_points[1] else ((),) * len(turned)
        tiles: TileSlices = tuple(
            (*first, *(replace(item, offset=item.offset + len(indices)) for item in rest))
            for first, rest in zip(turned, more, strict=True))
        data = np.concatenate([indices, pack(constant, more, config)]) if layer.zero_points[1] else indices
        blocks = order.blocks(layer.reduced)
        _, height, width = context.source.shape
        pixels = height * width // layer.parts
        repeated = 1 + len(() if config.turn else _constants(layer.zero_points[0]))
        geometry = Geometry((1, 1), (1, 1), (0, 0, 0, 0), (1, pixels), (1, pixels), repeats=layer.repeats)
        counted: TileSlices = tuple((*first * (repeated - 1), *whole)
                                    for first, whole in zip(turned, tiles, strict=True))
        plan = plan_conv(layer.name, _Cost(constant, counted, geometry, config, input_blocks=blocks,
                                           spread=_can_spread(layer, config)))
        if repeated > 1:
            # So that there is room for constants beside the input.
            plan = replace(plan, held=False)
        return cls.at(context, _of_parts(plan, layer.parts), tiles=tiles, packed=PackedWeights(data, tiles))

    @property
    def weights(self) -> PackedWeights:
        return self.packed

    @property
    def weight_beats(self) -> int:
        return len(self.packed.data)

    def beats_ahead(self, beats: int, reduction: ReductionSlice) -> int:
        return 0

    def load_and_compute(self, tiles: Tiles, tile: Tile, placed: PlacedLayer, slices: Sequence[ReductionSlice],
                         needed: range) -> list[Chunk]:
        chunks = super().load_and_compute(tiles, tile, placed, slices, needed)
        for value in () if self.config.turn else _constants(self.layer.zero_points[0]):
            spatial = _ConstantTile(**{**vars(tile.spatial), "data_rows": 0, "value": value})
            chunk = tiles.chunks.load(placed, self.plan.geometry, spatial, range(1))
            for reduction in slices:
                if isinstance(reduction, _TurnedSlice):
                    for block in range(reduction.block, reduction.block + reduction.blocks):
                        # All blocks are that one.
                        here = Chunk(range(block, block + 1), chunk.place, chunk.loaded)
                        tile.compute(replace(reduction, block=block, blocks=1), here)
            chunk.place.last_reader = tiles.last_compute
        return chunks

    def load(self, emitter: Emitter, place: Placement, geometry: Geometry, spatial: SpatialTile, blocks: range,
             base: int, after: dict[Queue, int]) -> int:
        if not isinstance(spatial, _ConstantTile):
            return super().load(emitter, place, geometry, spatial, blocks, base, after)
        emitter.set_load(dict(
            cols=spatial.data_cols, row_pitch=0, block_pitch=0, pad_left=0, pad_right=0, pad_value=spatial.value,
            stride=1, buf_row_pitch=spatial.row_pitch, buf_block_pitch=spatial.entries))
        return emitter.emit(Opcode.LOAD_ACT, after=after, offset=place.offset, buf_base=base, blocks=1, rows=0,
                            pad_top=spatial.rows, pad_bottom=0)

    def compute(self, tile: ComputedTile, reduction: ReductionSlice, chunk: Chunk, after: dict[Queue, int], *,
                first: bool, ahead: int, row: int) -> None:
        if not isinstance(reduction, _TurnedSlice):
            super().compute(tile, reduction, chunk, after, first=first, ahead=ahead, row=row)
            return
        base = chunk.place.base + (reduction.block - chunk.blocks.start) * tile.spatial.entries
        tile.emit(Opcode.COMPUTE, after, buf_base=base, blocks=reduction.blocks, groups=reduction.groups,
                  kind=reduction.kind, first=int(first))
        if self.config.turn:
            self._load_turned(tile, reduction, first=first)
            return
        order, config = weight_order(self.config), self.config
        rows, beats = order.rows(self.layer.outputs), config.weight_beats
        blocks = order.blocks(self.layer.reduced)
        for block in range(reduction.block, reduction.block + reduction.blocks):
            for step in range(reduction.groups):
                pixel = block * rows + reduction.tile * beats
                part = TensorSlice(self.layer.matrix, (step, step + 1), (pixel, pixel + beats))
                if reduction.kind == StepKind.INDEXED:
                    tile.load_constant_weights(step * config.index_beats, config.index_beats)
                tile.load_stored_weights(part, step * blocks * rows + pixel, beats)

    def _load_turned(self, tile: ComputedTile, reduction: _TurnedSlice, *, first: bool) -> None:
        """The weights by the corner turn: a box of the matrix's tensor has those of each block for all output lanes."""
        layer, tn, lanes = self.layer, self.config.ic_lanes, self.config.oc_lanes
        output = reduction.tile * lanes
        valid = max(0, min(lanes, layer.rows - output))
        # Where all lanes are beyond the last row, whatever is loaded is 0.
        start, outputs = (output, valid) if valid else (0, 1)
        depth = min(tn, layer.reduced - reduction.block * tn)
        block, blocks = reduction.block, reduction.blocks
        spread = self.plan.spread and reduction.tile == len(self.tiles) - 1
        # All pixels of the matrix's tensor, and the first of the tile's part.
        length = layer.reduced if layer.by_channels else layer.rows
        pixels = layer.parts * length
        pixel = tile.spatial.x // (self.plan.geometry.output_size[1] // layer.parts) * length
        if layer.by_channels:
            first_block, rows, cols = start // tn, self.config.oc_groups if spread else -(-outputs // tn), depth
            pixel += block * tn
            span, box = (first_block, first_block + -(-outputs // tn)), (pixel, pixel + (blocks - 1) * tn + depth)
        else:
            first_block, rows, cols = block, 1, outputs
            pixel += start
            span, box = (block, block + blocks), (pixel, pixel + outputs)
        tile.load_turned(
            TensorSlice(layer.matrix, span, box), first_block * pixels + pixel, blocks, rows,
            {"cols": cols, "row_pitch": pixels if rows > 1 and not spread else 0,
             "block_pitch": (tn if layer.by_channels else pixels) if blocks > 1 else 0},
            {"by_channels": int(layer.by_channels), "lanes": lanes if spread else valid, "depth": depth,
             "steps": reduction.groups, "first": int(first)})

    def parameter_fields(self, bank: int, group: int) -> dict[str, int]:
        zero_point = self.layer.zero_points[0]
        return {"zero_point": zero_point, "bank": bank, "group": group} if self.config.turn and zero_point else {}


def _can_spread(layer: MatMul, config: NpuConfig) -> bool:
    """Whether the corner turn gives all groups of output lanes the rows of the last output tile: if they are as many as
    a group has, as lanes are 0 from one on alone.
    """
    rest = -(-layer.outputs // config.oc_lanes) * config.oc_lanes - config.oc_lanes
    return bool(config.turn and layer.by_channels and layer.rows == layer.outputs == rest + config.ic_lanes)


def _constant_weights(layer: MatMul) -> Conv:
    """A 1x1 convolution with what the matrix's zero point adds; without one it only has the layer's sizes."""
    weights = np.zeros((layer.outputs, layer.reduced, 1, 1), np.int16)
    weights[:layer.rows] = -layer.zero_points[1]
    return Conv(layer.name, layer.input, layer.output, requantize=layer.requantize, epilogue=layer.epilogue,
                weights=weights)


def _of_parts(plan: Plan, parts: int) -> Plan:
    """The plan of one part for so many, whose pixels follow each other."""
    geometry = plan.geometry
    pixels = geometry.output_size[1]
    size = 1, parts * pixels
    tiles = tuple(replace(tile, x=tile.x + part * pixels, col=tile.col + part * pixels)
                  for part in range(parts) for tile in plan.spatial_tiles)
    return replace(plan, geometry=replace(geometry, input_size=size, output_size=size), spatial_tiles=tiles,
                   cycles=parts * plan.cycles, beats=parts * plan.beats)


class _Cost(ConvCost):
    """Of a plan whose last output tile may be ``spread``."""

    def __init__(self, *args: Any, spread: bool, **more: Any) -> None:
        self.may_spread = spread
        super().__init__(*args, **more)
