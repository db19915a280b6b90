"""Loads of signs for the binary unit: from int8 feature maps, or from maps of signs."""

from cores.arch.isa import Opcode, Queue
from cores.arch.numerics import MAP_PIXELS
from cores.config import NpuConfig
from gen.lowering.emitter import Emitter
from gen.mapping.binary import SignSource
from gen.program.program import Placement
from gen.tiling.geometry import MAX_PAD_ROWS, Geometry, Window

__all__ = ["load_cycles", "load_signs"]


def load_cycles(source: SignSource, window: Window, config: NpuConfig) -> float:
    """Cycles to bring in all blocks of a tile, padding included."""
    pixels = window.load_beats
    cycles = source.int8_blocks * pixels / (config.pixel_lanes if source.packed else 1)
    return cycles + (pixels / config.pixel_lanes if source.fill is not None else 0)


def load_signs(emitter: Emitter, config: NpuConfig, source: SignSource, place: Placement, geometry: Geometry,
               window: Window, blocks: tuple[int, int], base: int, *, padding: int | None,
               after: dict[Queue, int]) -> int:
    """Load entries ``blocks`` (first, end) of a tile to ``base``; ``padding`` is None for a layer without.

    Returns the position of the last load.
    """
    low, high = source.entry_blocks(*blocks)
    row_beats = place.row_beats
    # Of a layer that is one long row (`Geometry.of`) the tensor's rows follow each other without a gap.
    row, col = divmod(window.row * geometry.input_size[1] + window.col, place.shape[2])
    skip = geometry.row_skip * (row_beats if geometry.input_size[1] == place.shape[2] else 0)
    columns = window.pad_left + window.data_cols + window.pad_right
    shared = {
        "row_pitch": skip if window.data_rows > 1 else 0, "block_pitch": place.shape[1] * row_beats,
        "buf_row_pitch": window.row_pitch, "buf_block_pitch": window.entries, "pad_zero": int(padding == 0),
    }
    if source.fill is not None and blocks[1] == source.blocks:
        _fill(emitter, config, source.fill, window, base + (blocks[1] - 1 - blocks[0]) * window.entries, after)
    offset = place.offset + (low * place.shape[1] + row) * row_beats
    pixel = config.ic_lanes // MAP_PIXELS
    if source.packed:
        first, start = divmod(col, MAP_PIXELS)
        beats = -(-(start + window.data_cols) // MAP_PIXELS)
        emitter.set_load(
            {**shared, "cols": beats, "pad_value": -1 if padding == 1 else 0, "stride": 1},
            Opcode.LOAD_GATHER, {
                "outputs": columns, "length": pixel, "step": pixel, "start": (start - window.pad_left) * pixel,
                "bytes": (start + window.data_cols) * pixel})
        offset += first
    else:
        emitter.set_load({
            **shared, "cols": window.data_cols, "pad_left": window.pad_left, "pad_right": window.pad_right,
            "pad_value": padding or 0, "stride": geometry.load_stride, "sign": 1})
        offset += col
    return emitter.emit(
        Opcode.LOAD_ACT, after=after, offset=offset, buf_base=base + window.buffer_row * window.row_pitch,
        blocks=high - low, rows=window.data_rows, pad_top=window.pad_top, pad_bottom=window.pad_bottom)


def _fill(emitter: Emitter, config: NpuConfig, used: int, window: Window, base: int, after: dict[Queue, int]) -> None:
    """Zero the bytes of a tile's last entries that no block comes to, from ``used`` on.

    A row's entries in all banks: which of them its columns are in depends on the stride.
    """
    emitter.set_load(
        {"cols": 1, "stride": 1, "buf_row_pitch": window.row_pitch},
        Opcode.LOAD_GATHER, {
            "outputs": window.row_pitch * config.banks, "length": config.beat_bytes - used, "place": used})
    rows = window.input_rows
    for first in range(0, rows, 2 * MAX_PAD_ROWS):
        count = min(rows - first, 2 * MAX_PAD_ROWS)
        emitter.emit(
            Opcode.LOAD_ACT, after=after, offset=0, buf_base=base + first * window.row_pitch, blocks=1, rows=0,
            pad_top=min(count, MAX_PAD_ROWS), pad_bottom=max(0, count - MAX_PAD_ROWS))
