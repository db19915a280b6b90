"""The forms of whole tensors: how a layer is tiled to read one in the input buffer, and to leave its result there."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

from cores.config import NpuConfig
from gen.lowering.mapped import MappedLayer
from gen.lowering.verify import rows_of
from gen.mapping.pack import is_spread
from gen.mapping.plain import ConvMapping, PlainMapping
from gen.mapping.pool import PoolMapping
from gen.mapping.windows import WindowGeometry, WindowMapping, in_windows
from gen.memory.placement import Kept, Strips, WindowRows
from gen.tiling.geometry import MAX_BLOCKS, MAX_KERNEL, Geometry, SpatialTile, part_counts, split
from gen.tiling.schedule import Plan

__all__ = ["HandingLayer", "laid", "last_of"]

#: A layer that may find a whole tensor, or leave one.
HandingLayer = ConvMapping | PoolMapping


def laid(config: NpuConfig, layer: MappedLayer, target: Kept | None, words: int, *,
          kept: bool) -> tuple[HandingLayer, Kept | None] | None:
    """A layer whose result has the form ``target``, and the form of its input, None unless that is ``kept``."""
    if isinstance(layer, PoolMapping):
        return _pooling(config, layer, target) if kept else None
    if not isinstance(layer, ConvMapping):
        return None
    conv = layer.layer
    if not kept:
        return _loading(config, layer, target, words)
    if conv.depthwise:
        windows = in_windows(layer)
        return None if windows is None else _in_rows(config, windows, target, words)
    if not (_is_pointwise(layer) and layer.takes_kept and layer.input_blocks <= MAX_BLOCKS):
        return None
    mapping = _pointwise(config, layer, words, in_rows=isinstance(target, WindowRows))
    if mapping is None:
        return None
    (_, height, width), blocks = layer.source.shape, layer.input_blocks
    if isinstance(target, WindowRows):
        pitch = mapping.plan.spatial_tiles[0].row_pitch
        return _relaid(mapping, pitch, height), WindowRows(
            blocks, height, width, 0, pitch, height, ((0, height, 0),), config.banks)
    strips = Strips(blocks, (0,), height * width, 1, config.banks)
    return _relaid(mapping, strips.pitches[0], 1), strips


def _is_pointwise(layer: ConvMapping) -> TypeGuard[PlainMapping]:
    """Whether a layer reads a pixel at a time, with all channels, and its map is one long row."""
    geometry = layer.plan.geometry
    return (isinstance(layer, PlainMapping) and not layer.layer.depthwise and geometry.output_size[0] == 1
            and (geometry.kernel, geometry.stride) == ((1, 1), (1, 1)) and not any(layer.layer.pads))


def _suit(config: NpuConfig, layer: MappedLayer, tiles: Sequence[SpatialTile], target: Kept | None) -> bool:
    """Whether results of these spatial tiles can be stored in the form ``target``."""
    width = layer.target.shape[2]
    if isinstance(target, WindowRows):
        return all(rows_of(layer, tile) is not None for tile in tiles)
    return target is None or all(
        (tile.rows == 1 or tile.cols == width) and (tile.y * width + tile.x) % config.banks == 0 for tile in tiles)


def last_of(config: NpuConfig, layer: MappedLayer, target: Kept | None) -> tuple[ConvMapping, None] | None:
    """The last layer of a step as it is, if its result can be stored in the form ``target``."""
    assert target is not None
    if not isinstance(layer, ConvMapping):
        return None
    return (layer, None) if _suit(config, layer, layer.spatial_tiles, target) else None


def _pooling(config: NpuConfig, layer: PoolMapping, target: Kept | None) -> tuple[PoolMapping, Strips] | None:
    """A layer with one window, all of its map, as a long row."""
    pool, (_, height, width) = layer.layer, layer.source.shape
    if pool.kernel != (height, width) or any(pool.pads) or layer.target.shape[1:] != (1, 1):
        return None
    pixels, most = height * width, MAX_KERNEL // config.banks * config.banks
    # The neighbours of a window are read as well, beyond the last block: that is the second place.
    strips = Strips(-(-layer.source.shape[0] // config.ic_lanes), (0,), pixels, 2, config.banks)
    geometry = Geometry((1, pixels), (1, 1), (0, 0, 0, 0), (1, pixels), (1, 1))
    spatial = replace(geometry.spatial_tile(0, 1, 0, 1, config), row_pitch=strips.pitches[0])
    pieces = tuple(((0, 1), (first, min(most, pixels - first))) for first in range(0, pixels, most))
    if not _suit(config, layer, [spatial], target):
        return None
    return replace(layer, plan=Plan(geometry, (spatial,), 1, False, False, 0, 0, pieces)), strips


def _relaid(mapping: ConvMapping, pitch: int, rows: int) -> ConvMapping:
    tiles = tuple(replace(tile, row_pitch=pitch, buffer_rows=rows) for tile in mapping.plan.spatial_tiles)
    return replace(mapping, plan=replace(mapping.plan, spatial_tiles=tiles))


def _pointwise(config: NpuConfig, layer: PlainMapping, words: int, *, in_rows: bool) -> PlainMapping | None:
    """A pointwise layer in few spatial tiles: rows of the map, or parts of one long row."""
    geometry, (_, height, width) = layer.plan.geometry, layer.source.shape
    if in_rows:
        geometry = replace(geometry, input_size=(height, width), output_size=(height, width))
    units, columns = geometry.output_size
    spread = is_spread(layer.layer, len(layer.tiles) - 1, config) and columns > config.pixel_lanes
    alone = spread and len(layer.tiles) == 1
    for count in part_counts(units if in_rows else -(-columns // config.banks)):
        tiles = tuple(geometry.spatial_tile(start, size, 0, columns, config) if in_rows
                      else geometry.spatial_tile(0, 1, start, size, config)
                      for start, size in split(units if in_rows else columns, count, 1 if in_rows else config.banks))
        if all(geometry.fits(tile, config) and geometry.words(tile, config, spread=alone) <= words
               for tile in tiles):
            return replace(layer, plan=Plan(geometry, tiles, layer.input_blocks, True, spread, 0, 0))
    return None


def _in_rows(config: NpuConfig, windows: WindowMapping, target: Kept | None,
             words: int) -> tuple[WindowMapping, WindowRows] | None:
    """A depthwise layer that reads whole rows in the input buffer, and their form."""
    (_, height, width), (_, out_height, out_width) = windows.source.shape, windows.target.shape
    # With a kernel of 1x1 it has the map as one long row.
    geometry = replace(_unbanded(config, windows), input_size=(height, width), output_size=(out_height, out_width))
    left = geometry.pads[1]
    for count in part_counts(-(-out_height // geometry.word_rows)):
        tiles = [geometry.spatial_tile(y, rows, 0, out_width, config)
                 for y, rows in split(out_height, count, geometry.word_rows)]
        if tiles[-1].row + tiles[-1].data_rows < height or any(not tile.data_rows for tile in tiles):
            return None
        depth = max(tiles[0].pad_top + height + tiles[-1].pad_bottom,
                    *(tile.y * geometry.stride[0] + tile.buffer_rows for tile in tiles))
        pitch = max(tiles[0].row_pitch, -(-(left + width) // config.banks))
        laid = tuple(replace(tile, row_pitch=pitch, buffer_rows=depth) for tile in tiles)
        if all(geometry.fits(tile, config) and geometry.words(tile, config) <= words
               for tile in laid) and _suit(config, windows, laid, target):
            rows = WindowRows(len(windows.tiles), height, width, left, pitch, depth,
                              ((0, height, tiles[0].pad_top),), config.banks)
            plan = Plan(geometry, laid, len(windows.tiles), False, False, 0, 0)
            return replace(windows, plan=plan), rows
    return None


def _loading(config: NpuConfig, layer: ConvMapping, target: Kept | None, words: int) -> tuple[ConvMapping, None] | None:
    """A layer that loads its input, in tiles that suit the form of its result."""
    plan = layer.plan
    if _suit(config, layer, layer.spatial_tiles, target):
        return layer, None
    if isinstance(layer, WindowMapping):
        return _loading_windows(config, layer, target, words)
    if not _is_pointwise(layer):
        return None
    mapping = _pointwise(config, layer, words, in_rows=isinstance(target, WindowRows))
    if mapping is None:
        return None
    chunk = min(layer.input_blocks, plan.chunk)
    entries = max(tile.entries for tile in mapping.plan.spatial_tiles) * layer.input_blocks
    held = len(layer.tiles) > 1 and 2 * entries <= config.input_depth
    return replace(mapping, plan=replace(mapping.plan, chunk=chunk, held=held)), None


def _loading_windows(config: NpuConfig, layer: WindowMapping, target: Kept | None,
                     words: int) -> tuple[ConvMapping, None] | None:
    """Of whole rows, a few blocks at a time."""
    geometry, most = _unbanded(config, layer), config.input_depth // 3
    height, width = geometry.output_size
    for count in part_counts(-(-height // geometry.word_rows)):
        tiles = tuple(geometry.spatial_tile(y, rows, 0, width, config)
                      for y, rows in split(height, count, geometry.word_rows))
        if all(geometry.fits(tile, config) and geometry.words(tile, config) <= words and tile.entries <= most
               for tile in tiles) and _suit(config, layer, tiles, target):
            chunk = max(1, min(layer.plan.chunk, most // max(tile.entries for tile in tiles)))
            plan = replace(layer.plan, geometry=geometry, spatial_tiles=tiles, chunk=chunk)
            return replace(layer, plan=plan), None
    return None


def _unbanded(config: NpuConfig, layer: WindowMapping) -> WindowGeometry:
    """Its geometry, of which each spatial tile is stored as a whole."""
    geometry = layer.plan.geometry
    assert isinstance(geometry, WindowGeometry)
    return replace(geometry, band_words=config.acc_depth)
