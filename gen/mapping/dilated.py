"""Convolutions whose kernels have rows or columns of zeros between their taps: dilated ones, without these.

A COMPUTE says how far apart the rows are that its taps read: to leave out rows of zeros costs nothing. Of columns, each
column of taps has a COMPUTE, which begins further on in the input buffer. Columns take turns in its banks, and a
COMPUTE begins at the first of them, so that is for taps that are a multiple of all banks apart; with others columns of
zeros are multiplied. A tile's input is that of the whole kernel, and so is all that tiling reckons with but the steps.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, reduce
from math import gcd

import numpy as np

from cores.arch.isa import Opcode, Queue, largest_field
from cores.config import NpuConfig
from gen.ir.graph import Conv
from gen.ir.tensor import Tensor
from gen.lowering.buffer_allocation import Chunk
from gen.lowering.mapped import ComputedTile, MappedLayer
from gen.mapping.base import LayerContext
from gen.mapping.pack import pack, slices_of
from gen.mapping.plain import ConvMapping
from gen.tiling.geometry import Geometry, SpatialTile
from gen.tiling.weights import PackedWeights, ReductionSlice, TileSlices

__all__ = ["DilatedGeometry", "DilatedMapping", "zeros_between_taps"]

#: Layers that a line names at most.
_NAMED = 3
_MAX_ROW_PITCH = largest_field(Opcode.COMPUTE_SET, "buf_row_pitch")


@dataclass(frozen=True)
class DilatedGeometry(Geometry):
    """``apart``: rows and columns from a tap of the kernel to the next; ``taps``: rows and columns of one COMPUTE."""

    apart: tuple[int, int] = (1, 1)
    taps: tuple[int, int] = (1, 1)

    @classmethod
    def fitting(cls, layer: Conv, source: Tensor, target: Tensor, config: NpuConfig, *,
                packed_out: bool = False) -> "DilatedGeometry | None":
        """That of a layer with taps to be left out; None for others. Raises LayerError where `Geometry.of` does."""
        plain = Geometry.of(layer, source, target, packed_out=packed_out)
        used = layer.weights.any(axis=(0, 1))
        rows = _distance(np.flatnonzero(np.any(used, axis=1)), used.shape[0])
        cols = _distance(np.flatnonzero(np.any(used, axis=0)), used.shape[1])
        if plain.kernel != used.shape or cols % (config.banks * plain.stride[1]):
            cols = 1
        if plain.kernel != used.shape or (rows, cols) == (1, 1):
            return None
        taps = (plain.kernel[0] - 1) // rows + 1, 1 if cols > 1 else plain.kernel[1]
        return cls(**{field.name: getattr(plain, field.name) for field in fields(plain)}, apart=(rows, cols), taps=taps)

    def steps(self, config: NpuConfig, rows: range | None = None) -> int:
        return self.taps[0] * self.taps[1]

    def compute_fields(self, spatial: SpatialTile, config: NpuConfig, *, spread: bool = False,
                       rows: range | None = None) -> Mapping[str, int]:
        return {**super().compute_fields(spatial, config, spread=spread), "kernel_h": self.taps[0],
                "kernel_w": self.taps[1], "buf_row_pitch": self.apart[0] * spatial.row_pitch}

    def fits(self, spatial: SpatialTile, config: NpuConfig) -> bool:
        return super().fits(spatial, config) and self.apart[0] * spatial.row_pitch <= _MAX_ROW_PITCH


@dataclass(frozen=True, eq=False, kw_only=True)
class DilatedMapping(ConvMapping):
    """``parts``: the layer with the taps of one COMPUTE alone, for each of them."""

    modes = {"dilated": "without the zeros between a kernel's taps"}

    parts: Sequence[Conv]
    takes_kept = True

    @classmethod
    def propose(cls, context: LayerContext[Conv]) -> "DilatedMapping | None":
        if not context.layer.is_exact:
            return None
        layer, config = context.fitted, context.config
        geometry = DilatedGeometry.fitting(layer, context.source, context.target, config, packed_out=context.packed_out)
        if geometry is None:
            return None
        down, across = geometry.apart
        rows = layer.weights[:, :, ::down]
        columns = range(0, geometry.kernel[1], across)
        whole = replace(layer, weights=rows, counted=None)
        parts = [replace(whole, weights=rows[..., column:column + 1]) for column in columns] if across > 1 else [whole]
        return cls.tiled(context, geometry, _slices(parts, config), parts=parts)

    @property
    def mode(self) -> str:
        return "dilated"

    @property
    def macs(self) -> int:
        return sum(part.macs(self.target) for part in self.parts)

    @property
    def useful_macs(self) -> int:
        return self.macs

    @cached_property
    def weights(self) -> PackedWeights:
        chunks = [pack(part, slices_of(part, self.config), self.config) for part in self.parts]
        return PackedWeights(np.concatenate(chunks), self.tiles)

    def compute(self, tile: ComputedTile, reduction: ReductionSlice, chunk: Chunk, after: dict[Queue, int], *,
                first: bool, ahead: int, row: int) -> None:
        geometry = self.plan.geometry
        assert isinstance(geometry, DilatedGeometry)
        column = 0 if reduction.rows is None else reduction.rows.start * geometry.apart[1]
        base = chunk.place.base + (reduction.block - chunk.blocks.start) * tile.spatial.entries
        tile.emit(Opcode.COMPUTE, after, buf_base=base + row * tile.spatial.row_pitch + column // self.config.banks,
                  blocks=reduction.blocks, groups=reduction.groups, kind=reduction.kind, first=int(first))
        tile.load_weights(reduction, ahead)


def zeros_between_taps(layers: Iterable[MappedLayer]) -> str:
    """For people: of layers that multiply columns of zeros between the taps of their kernels, "" where none does."""
    found = []
    for mapped in layers:
        layer = mapped.layer
        if not isinstance(layer, Conv) or isinstance(mapped, DilatedMapping) and len(mapped.parts) > 1:
            continue
        apart = _distance(np.flatnonzero(layer.weights.any(axis=(0, 1, 2))), layer.weights.shape[3])
        if apart > 1:
            found.append((layer.name, mapped.config.banks * layer.stride[1]))
    if not found:
        return ""
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return (f"columns of zeros are multiplied, too, in layer {', '.join(name for name, _ in found[:_NAMED])}{more}, "
            f"whose kernels are dilated; where columns are a multiple of {found[0][1]} apart the machine leaves them "
            "out")


def _distance(places: np.ndarray, count: int) -> int:
    """From one of ``places`` to the next, the same for all, where the first and the last of ``count`` are; else 1."""
    if len(places) < 2 or places[-1] - places[0] < count - 1:
        return 1
    return reduce(gcd, np.diff(places).tolist())


def _slices(parts: Sequence[Conv], config: NpuConfig) -> TileSlices:
    """The slices of all parts, tile by tile; weights lie in memory part by part."""
    found, offset = [], 0
    for number, part in enumerate(parts):
        tiles = slices_of(part, config)
        taps = part.weights[0, 0].size
        found.append([[replace(item, offset=item.offset + offset, rows=range(number, number + 1)) for item in tile]
                      for tile in tiles])
        offset += sum(item.blocks * taps * item.groups * item.step_beats(config) for tile in tiles for item in tile)
    return tuple(tuple(item for part in tile for item in part) for tile in zip(*found, strict=True))
