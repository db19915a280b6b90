"""Tilings of layers in a chain (`gen.mapping.chained`): bands, and where the first layer's rows lie in the buffer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from cores.config import NpuConfig
from gen.mapping.pack import is_spread
from gen.mapping.plain import ConvMapping, PlainMapping
from gen.mapping.windows import WindowGeometry, WindowMapping
from gen.memory.placement import Strips, WindowRows
from gen.tiling.geometry import Geometry, SpatialTile, Split, part_counts, split
from gen.tiling.schedule import Plan

__all__ = ["Band", "ChainPlan", "tilings_of_chain"]


@dataclass(frozen=True)
class Band:
    """Rows of the depthwise layer's output, and what they take."""

    spatial: SpatialTile
    #: First row of the room that its windows read, and how many they may read.
    place: int
    span: int
    #: The first layer's tiles that bring what the bands before it have not.
    made: tuple[SpatialTile, ...]


@dataclass(frozen=True)
class ChainPlan:
    """The tiling of the layers of a chain."""

    first: Plan
    depthwise: Plan
    #: The bands as the last layer's tiles.
    last: Plan | None
    rows: WindowRows
    #: The last layer's input.
    strips: Strips | None
    bands: tuple[Band, ...]
    #: Windows of a band are made between the steps of the last layer's tiles, which suits a last layer that takes the
    #: array long; not after them.
    between: bool = False
    cycles: float = 0.0

    @property
    def right(self) -> int:
        """Columns of padding after each row."""
        tile = self.bands[0].spatial
        return tile.pad_right

    @property
    def bottom(self) -> range:
        """Rows of the room that are padding below the last band."""
        band = self.bands[-1]
        first = band.place + band.spatial.pad_top + band.spatial.data_rows
        return range(first, first + band.spatial.pad_bottom)


def tilings_of_chain(first: ConvMapping, windows: WindowMapping, geometry: WindowGeometry, last: PlainMapping | None,
                     config: NpuConfig) -> Iterator[ChainPlan]:
    """All tilings of a chain in bands, whether there is room for them or not."""
    plain = first.plan.geometry
    if plain.output_size != geometry.input_size:    # one long row
        plain = replace(plain, input_size=geometry.input_size, output_size=geometry.input_size)
    height = geometry.output_size[0]
    for count in part_counts(-(-height // geometry.word_rows)):
        parts = split(height, count, geometry.word_rows)
        several = [turns for turns in (2, 3) if turns < len(parts)] + [len(parts)]
        for turns, between in product(several, (False,) if last is None else (False, True)):
            plan = _plan(first, windows, last, config, plain, geometry, parts, turns, between)
            if plan is not None:
                yield plan


def _plan(first: ConvMapping, windows: WindowMapping, last: PlainMapping | None, config: NpuConfig, plain: Geometry,
          geometry: WindowGeometry, parts: Split, turns: int, between: bool) -> ChainPlan | None:
    """A tiling in bands of these rows, with room for ``turns`` of them; None where it does not fit the instructions."""
    (height, width), (_, out_width) = geometry.input_size, geometry.output_size
    tiles = [geometry.spatial_tile(y, rows, 0, out_width, config) for y, rows in parts]
    starts = [y * geometry.stride[0] - geometry.pads[0] for y, _ in parts]
    ends = [tile.row + tile.data_rows for tile in tiles]
    if ends[-1] < height or any(tile.data_rows == 0 for tile in tiles):
        return None
    spans = [tile.buffer_rows for tile in tiles]
    depth = (turns - 1) * parts[0][1] * geometry.stride[0] + max(spans)
    placed = _place(starts, ends, spans, depth)
    if placed is None:
        return None
    places, runs, made = placed
    left = geometry.pads[1]
    pitch = max(tiles[0].row_pitch, -(-(left + width) // config.banks))
    rows = WindowRows(len(windows.tiles), height, width, left, pitch, depth, tuple(runs), config.banks)
    spread = is_spread(first.layer, len(first.tiles) - 1, config) and width > config.pixel_lanes
    all_spread = spread and len(first.tiles) == 1
    most = config.acc_depth // plain.words(plain.spatial_tile(0, 1, 0, width, config), config, spread=all_spread)
    if not most:
        return None
    groups = [tuple(plain.spatial_tile(y + at, rows, 0, width, config)
                    for y, count in band for at, rows in split(count, -(-count // most), 1)) for band in made]
    laid = [replace(tile, row_pitch=pitch, buffer_rows=depth) for tile in tiles]
    bands = [Band(*band) for band in zip(laid, places, spans, groups, strict=True)]
    flat = [tile for group in groups for tile in group]
    fits = (all(geometry.fits(tile, config) and geometry.words(tile, config) <= config.acc_depth for tile in laid)
            and all(plain.fits(tile, config) for tile in flat))
    last_plan = strips = None
    if last is not None:
        pointwise = Geometry.of(last.layer, last.source, last.target)
        ones = [pointwise.spatial_tile(0, 1, y * out_width, count * out_width, config) for y, count in parts]
        last_spread = (is_spread(last.layer, len(last.tiles) - 1, config)
                       and pointwise.output_size[1] > config.pixel_lanes)
        fits = fits and all(
            pointwise.fits(tile, config)
            and pointwise.words(tile, config, spread=last_spread and len(last.tiles) == 1) <= config.acc_depth
            for tile in ones)
        strips = Strips(len(windows.tiles), tuple(tile.x for tile in ones), pointwise.output_size[1],
                        min(1 + between, len(ones)), config.banks)
        last_plan = Plan(pointwise, tuple(ones), len(windows.tiles), True, last_spread, 0, 0)
    if not fits:
        return None
    form = replace(geometry, band_words=config.acc_depth)
    blocks = plain.input_blocks(first.source.shape[0], config)
    return ChainPlan(Plan(plain, tuple(flat), blocks, True, spread, 0, 0),
                     Plan(form, tuple(laid), len(windows.tiles), False, False, 0, 0), last_plan, rows, strips,
                     tuple(bands), between)


def _place(starts: Sequence[int], ends: Sequence[int], spans: Sequence[int],
           depth: int) -> tuple[list[int], list[tuple[int, int, int]], list[Split]] | None:
    """Where the windows of bands find their rows in a room of ``depth`` rows: of each band the first row of the room;
    the runs of `WindowRows`; of each band the rows that are made for it. None where rows would be overwritten too soon.

    Bands read rows of the map from ``starts``, above it where that is below 0, up to ``ends``, and ``spans`` rows of
    the room.
    """
    places, runs, made = [0], list[tuple[int, int, int]](), list[Split]()
    for number, start in enumerate(starts):
        new = ends[number - 1] if number else 0
        if number:
            place = places[-1] + start - starts[number - 1]
            if place + spans[number] > depth:
                # From the first row again: rows that both bands need are stored twice.
                place, again = 0, new - start
                if start < 0 or again < 0 or places[-1] < again or start < made[-1][0][0]:
                    return None
                if again:
                    runs.append((start, again, place))
                    begin = made[-1][0][0]
                    made[-1] = [part for part in ((begin, start - begin), (start, again)) if part[1]]
            places.append(place)
        if new >= ends[number]:
            return None
        runs.append((new, ends[number] - new, places[-1] + new - start))
        made.append([(new, ends[number] - new)])
    return places, runs, made
