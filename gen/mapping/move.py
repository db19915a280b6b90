"""Pixels in another order: boxes of them are loaded, copied by the pool unit, and stored at other places.

A box is rows of neighbouring pixels, which are neighbours before and after; its rows are equally far apart before, and
equally far apart after. Windows of a map are such boxes, and so are every second pixel of a row; where a map is shifted
in a circle, what is cut are further ones. All channel blocks of a box move at once, out of one tensor.
"""

from collections.abc import Iterator, Sequence
from collections.abc import Mapping as Table
from dataclasses import dataclass
from math import prod

import numpy as np

from cores.arch.isa import Opcode, Queue, WordForm, largest_field
from cores.config import NpuConfig
from gen.ir.errors import LayerError
from gen.ir.graph import Move
from gen.lowering.emitter import Emitter
from gen.lowering.mapped import PlacedLayer, TensorSlice
from gen.lowering.tiles import Tiles
from gen.mapping.base import LayerContext, Mapping
from gen.memory.placement import Placement
from gen.tiling.geometry import MAX_BLOCKS, Geometry, SpatialTile
from gen.tiling.schedule import BEAT_WEIGHT, LATENCY, Plan
from gen.tiling.weights import PARAMETER_BEATS

__all__ = ["MoveMapping"]

_MAX_ROWS = min(largest_field(opcode, "rows") for opcode in (Opcode.LOAD_ACT, Opcode.STORE_SET, Opcode.COMPUTE_SET))
_MAX_COLS = min(largest_field(opcode, "cols") for opcode in (Opcode.LOAD_SET, Opcode.STORE_SET, Opcode.COMPUTE_SET))
_MAX_PITCH = min(largest_field(opcode, "row_pitch") for opcode in (Opcode.LOAD_SET, Opcode.STORE_SET))

#: Estimated cycles of a tile beside its pixels.
_TILE_CYCLES = 40


@dataclass(frozen=True)
class _Box:
    """Pixels ``source + row * apart + col`` go to ``target + row * pitch + col``."""

    source: int
    target: int
    rows: int
    cols: int
    apart: int
    pitch: int


@dataclass(frozen=True)
class _BoxTile(SpatialTile):
    """A box as a spatial tile of maps that are one long row: ``rows`` and ``cols`` as they are stored, ``data_rows``
    and ``data_cols`` as they are loaded, ``apart`` and ``pitch`` pixels between rows. It is of operand ``source``, of
    so many ``pixels``.

    What follows each other is one row. The rows in the buffer are those that are loaded.
    """

    apart: int = 0
    pitch: int = 0
    source: int = 0
    pixels: int = 0

    @classmethod
    def of(cls, box: _Box, config: NpuConfig, source: int, pixels: int) -> "_BoxTile":
        def lying(pitch: int) -> tuple[int, int]:
            return (1, box.rows * box.cols) if pitch == box.cols and box.rows * box.cols <= _MAX_COLS else (
                box.rows, box.cols)

        (rows, cols), (data_rows, data_cols) = lying(box.pitch), lying(box.apart)
        return cls(0, rows, box.target, cols, 0, data_rows, box.source, data_cols, 0, 0, 0, 0,
                   -(-data_cols // config.banks), data_rows, apart=box.apart, pitch=box.pitch, source=source,
                   pixels=pixels)


class _MoveGeometry(Geometry):
    """The POOL of a box: of the rows that are in the buffer."""

    def compute_fields(self, spatial: SpatialTile, config: NpuConfig, *, spread: bool = False,
                       rows: range | None = None) -> Table[str, int]:
        return {"kernel_h": 1, "kernel_w": 1, "stride": 1, "rows": spatial.data_rows, "cols": spatial.data_cols,
                "buf_row_pitch": spatial.row_pitch, "buf_row_step": spatial.row_pitch,
                "buf_block_pitch": spatial.entries, "words": WordForm.PIXELS}


def _runs(targets: np.ndarray, places: np.ndarray, longest: int) -> Iterator[tuple[int, int, int]]:
    """(first pixel after, first pixel before, number) of neighbours that stay neighbours, at most ``longest``.

    Longer ones than most pixels are in are cut: where a window ends the next one may begin.
    """
    starts = np.flatnonzero((np.diff(targets, prepend=-2) != 1) | (np.diff(places, prepend=-2) != 1))
    counts = np.diff(starts, append=len(places))
    longest = min(longest, int(np.bincount(counts, counts).argmax()))
    for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
        for first in range(start, start + count, longest):
            yield int(targets[first]), int(places[first]), min(longest, start + count - first)


def _boxes(targets: np.ndarray, places: np.ndarray, entries: int, banks: int) -> list[_Box]:
    """Cut pixels into boxes of at most so many ``entries`` of a bank.

    ``places``: of each pixel; ``targets``: where each goes, ascending. Two rows could follow the first one of a box:
    the next in the order of targets, and the next in the order of places. The one that makes the larger box does.
    """
    runs = list(_runs(targets, places, min(_MAX_COLS, entries * banks)))
    free = {(target, source): count for target, source, count in runs}
    after = _successors(runs, 0)
    before = _successors(runs, 1)

    def chain(number: int, second: int | None) -> list[tuple[int, int]]:
        target, source, count = runs[number]
        found, most = [(target, source)], min(_MAX_ROWS, entries // -(-count // banks))
        if second is None or (key := runs[second][:2]) not in free:
            return found
        pitch, apart = key[0] - target, key[1] - source
        if not (count <= pitch <= _MAX_PITCH and 0 <= apart <= _MAX_PITCH):
            return found
        while len(found) < most and free.get(key := (found[-1][0] + pitch, found[-1][1] + apart)) == count:
            found.append(key)
        return found

    boxes = []
    for number, (target, source, count) in enumerate(runs):
        if (target, source) not in free:
            continue
        rows = max(chain(number, after[number]), chain(number, before[number]), key=len)
        for row in rows:
            del free[row]
        second = rows[1] if len(rows) > 1 else rows[0]
        boxes.append(_Box(source, target, len(rows), count, second[1] - source, second[0] - target))
    return boxes


def _successors(runs: Sequence[tuple[int, int, int]], key: int) -> list[int | None]:
    """Of each run the next of the same length, sorted by its pixel after (``key`` 0) or before (1)."""
    found: list[int | None] = [None] * len(runs)
    last: dict[int, int] = {}
    for number in sorted(range(len(runs)), key=lambda n: runs[n][key]):
        count = runs[number][2]
        if count in last:
            found[last[count]] = number
        last[count] = number
    return found


def _tiles(places: np.ndarray, sizes: Sequence[int], entries: int, config: NpuConfig) -> Iterator[_BoxTile]:
    """The boxes of ``places`` in operands of so many pixels, one operand after the other."""
    starts = np.cumsum([0, *sizes])
    sources = np.searchsorted(starts, places, "right") - 1
    for source, pixels in enumerate(sizes):
        targets = np.flatnonzero(sources == source)
        if len(targets):
            for box in _boxes(targets, places[targets] - starts[source], entries, config.banks):
                yield _BoxTile.of(box, config, source, pixels)


@dataclass(frozen=True, eq=False, kw_only=True)
class MoveMapping(Mapping):
    """A POOL and a STORE for each box."""

    modes = {"move": "pixels put at other places, nothing computed"}

    takes = Move

    layer: Move

    @property
    def mode(self) -> str:
        return "move"

    @classmethod
    def propose(cls, context: LayerContext[Move]) -> "MoveMapping":
        layer, config = context.layer, context.config
        blocks = -(-context.source.shape[0] // config.ic_lanes)
        # Half of the buffer at most, so that loading runs ahead.
        entries = config.input_depth // 2 // min(blocks, MAX_BLOCKS)
        if not entries or layer.repeats != (1, 1):
            raise LayerError(layer.name, f"no tile of it fits input_depth={config.input_depth}; build with a deeper "
                                         "input buffer", code="no-tile")
        sizes = [prod(context.whole.graph.tensors[name].shape[1:]) for name in layer.operands]
        after = prod(context.target.shape[1:])
        if max(*sizes, after) > _MAX_PITCH:
            raise LayerError(layer.name, f"feature maps have at most {_MAX_PITCH:,} pixels; cut the image in front of "
                                         "the model", code="instruction-limit")
        tiles = tuple(_tiles(layer.places, sizes, entries, config))
        # Each row of a load, and of a store, is a burst of its own.
        rows = sum(tile.rows + tile.data_rows for tile in tiles)
        beats = blocks * (2 * after + len(tiles) * PARAMETER_BEATS)
        cycles = 2.0 * LATENCY + blocks * (after + rows) + len(tiles) * (_TILE_CYCLES + blocks * PARAMETER_BEATS)
        geometry = _MoveGeometry((1, 1), (1, 1), (0, 0, 0, 0), (1, sizes[0]), (1, after))
        return cls.at(context, Plan(geometry, tiles, min(blocks, MAX_BLOCKS), False, False, cycles,
                                    cycles + BEAT_WEIGHT * beats))

    def emit(self, tiles: Tiles, placed: PlacedLayer) -> None:
        geometry = self.plan.geometry
        for spatial in self.plan.spatial_tiles:
            for blocks in self.output_blocks(self.plan.chunk):
                tile = tiles.begin(placed, geometry, spatial, blocks)
                chunk = tiles.chunks.load(placed, geometry, spatial, blocks)
                tile.pool(geometry, spatial, chunk, maximum=False, first=True, last=True)
                chunk.place.last_reader = tiles.last_compute

    def rows_apart(self, spatial: SpatialTile) -> int:
        assert isinstance(spatial, _BoxTile)
        return spatial.pitch

    def covers_output(self) -> bool:
        count = np.zeros(self.plan.geometry.output_size[1], np.int64)
        for spatial in self.plan.spatial_tiles:
            for row in range(spatial.rows):
                first = spatial.x + row * self.rows_apart(spatial)
                count[first:first + spatial.cols] += 1
        return bool((count == 1).all())

    def loaded_tensor(self, spatial: SpatialTile) -> str:
        assert isinstance(spatial, _BoxTile)
        return self.operands[spatial.source]

    def loaded_slice(self, geometry: Geometry, spatial: SpatialTile, blocks: range) -> TensorSlice:
        assert isinstance(spatial, _BoxTile)
        end = spatial.col + (spatial.data_rows - 1) * spatial.apart + spatial.data_cols
        return TensorSlice(self.loaded_tensor(spatial), (blocks.start, blocks.stop), (spatial.col, end))

    def load(self, emitter: Emitter, place: Placement, geometry: Geometry, spatial: SpatialTile, blocks: range,
             base: int, after: dict[Queue, int]) -> int:
        assert isinstance(spatial, _BoxTile)
        pixels = spatial.pixels
        emitter.set_load(dict(
            cols=spatial.data_cols, row_pitch=spatial.apart if spatial.data_rows > 1 else 0, block_pitch=pixels,
            pad_left=0, pad_right=0, pad_value=0, stride=1, buf_row_pitch=spatial.row_pitch,
            buf_block_pitch=spatial.entries))
        return emitter.emit(Opcode.LOAD_ACT, after=after, offset=place.offset + blocks.start * pixels + spatial.col,
                            buf_base=base, blocks=len(blocks), rows=spatial.data_rows, pad_top=0, pad_bottom=0)
