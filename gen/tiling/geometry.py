"""Where a layer's tiles lie: spatial tiles, the input they need, and its place in the input buffer."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import lcm, prod

from cores.arch.isa import Opcode, WordForm, largest_field
from cores.arch.numerics import MAP_PIXELS
from cores.config import NpuConfig
from gen.ir.epilogue.upsample import MAX_REPEATS
from gen.ir.errors import LayerError
from gen.ir.graph import Layer
from gen.ir.tensor import Tensor

__all__ = [
    "Geometry", "MAX_BEATS", "MAX_BLOCKS", "MAX_KERNEL", "MAX_PAD_ROWS", "MAX_STRIDE", "SpatialTile",
    "Split", "input_range", "part_counts", "row_entries", "split", "tilings",
]

# Limits that layers and tilings run into.
MAX_BEATS = 1 + min(largest_field(opcode, "offset") for opcode in (Opcode.LOAD_ACT, Opcode.STORE))
MAX_BLOCKS = largest_field(Opcode.COMPUTE, "blocks")
_MAX_ROWS = largest_field(Opcode.LOAD_ACT, "rows")
_MAX_COLS = largest_field(Opcode.LOAD_SET, "cols")
_MAX_PAD_SIDE = largest_field(Opcode.LOAD_SET, "pad_left")
MAX_PAD_ROWS = largest_field(Opcode.LOAD_ACT, "pad_top")
MAX_KERNEL = largest_field(Opcode.COMPUTE_SET, "kernel_h")
MAX_STRIDE = largest_field(Opcode.COMPUTE_SET, "stride")
_MAX_ROW_PITCH = largest_field(Opcode.LOAD_SET, "buf_row_pitch")
_MAX_BLOCK_PITCH = largest_field(Opcode.LOAD_SET, "buf_block_pitch")
_MAX_STORE_PITCH = largest_field(Opcode.STORE_SET, "row_pitch")
_MAX_PIXELS = min(largest_field(opcode, "block_pitch") for opcode in (Opcode.LOAD_SET, Opcode.STORE_SET))

#: How an axis is cut: (start, length) of each part.
Split = list[tuple[int, int]]


@dataclass(frozen=True)
class SpatialTile:
    """Output rows ``y`` and columns ``x`` and following, and the input they need.

    ``row`` and ``col`` are the first input row and column that hold data. ``row_pitch`` and ``entries`` (of a channel
    block) count entries of an input-buffer bank. A block takes ``buffer_rows`` there; those from ``buffer_row`` on are
    loaded, and what lies after them is read, but not used.
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
    buffer_rows: int
    buffer_row: int = 0

    @property
    def input_rows(self) -> int:
        return self.data_rows + self.pad_top + self.pad_bottom

    @property
    def entries(self) -> int:
        return self.row_pitch * self.buffer_rows

    @property
    def load_beats(self) -> int:
        """Cycles to bring in one block, padding included."""
        return self.input_rows * (self.data_cols + self.pad_left + self.pad_right)


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
    #: Tiles begin at columns that are multiples of this.
    column_step: int = 1
    #: How often each row and each column of the output is written.
    repeats: tuple[int, int] = (1, 1)
    #: Rows and columns of the output of which one value is written; tiles have whole windows.
    windows: tuple[int, int] = (1, 1)

    @classmethod
    def of(cls, layer: Layer, source: Tensor, target: Tensor, *, packed_in: bool = False, packed_out: bool = False,
           cut: bool = False) -> "Geometry":
        """``packed_in``, ``packed_out``: input or output is stored as packed bits, each row from a new beat. ``cut``:
        its windows are taken one by one and in pieces (`piece`), so that they may be of any size, any distance apart.

        Raises LayerError for a layer that no tiling brings within the instructions' limits.
        """
        rows, cols = layer.kernel
        pads = layer.pads
        (_, height, width), (_, out_height, out_width) = source.shape, target.shape

        def require(passed: bool, message: str) -> None:
            if not passed:
                raise LayerError(layer.name, message, code="instruction-limit")

        repeats = prod(layer.repeats)
        require(max(height * width, out_height * out_width * repeats) <= _MAX_PIXELS,
                f"feature maps have at most {_MAX_PIXELS:,} pixels; cut the image in front of the model")
        require(layer.repeats[1] <= MAX_REPEATS,
                f"columns are repeated at most {MAX_REPEATS} times, not {layer.repeats[1]}; resize in two steps")
        require(layer.repeats[0] * layer.repeats[1] * out_width <= _MAX_STORE_PITCH,
                f"upsampled rows are at most {_MAX_STORE_PITCH:,} pixels apart; cut the image in front of the model")
        flat = height == 1 or layer.repeats[0] == 1 and (width % MAP_PIXELS == 0 or not (packed_in or packed_out))
        column_step = MAP_PIXELS if packed_out else 1
        flat = flat and layer.windows == (1, 1)
        if (rows, cols) == (1, 1) and tuple(layer.stride) == (1, 1) and not any(pads) and flat:
            return cls((1, 1), (1, 1), pads, (1, height * width), (1, out_height * out_width), column_step=column_step,
                       repeats=layer.repeats)
        # Strides along an axis with a single output mean nothing.
        stride = (1 if out_height == 1 else layer.stride[0], 1 if out_width == 1 else layer.stride[1])
        require(cut or max(rows, cols) <= MAX_KERNEL,
                f"windows are at most {MAX_KERNEL}x{MAX_KERNEL}, not {rows}x{cols}")
        require(cut or stride[1] <= MAX_STRIDE,
                f"horizontal strides are at most {MAX_STRIDE}, or products of such, not {stride[1]}")
        require(max(pads[1], pads[3]) <= _MAX_PAD_SIDE and max(pads[0], pads[2]) <= MAX_PAD_ROWS,
                f"padding is at most {_MAX_PAD_SIDE} columns and {MAX_PAD_ROWS} rows a side, not {pads}")
        row_skip = stride[0] if rows == 1 and not any(pads[::2]) else 1
        return cls((rows, cols), stride, pads, (height, width), (out_height, out_width), row_skip, column_step,
                   layer.repeats, layer.windows)

    def spatial_tile(self, y: int, rows: int, x: int, cols: int, config: NpuConfig) -> SpatialTile:
        """The tile of output rows ``y..y+rows`` and columns ``x..x+cols``."""
        if self.row_skip > 1:
            row, data_rows, pad_top, pad_bottom = y * self.row_skip, rows, 0, 0
        else:
            row, data_rows, pad_top, pad_bottom = input_range(
                y * self.stride[0] - self.pads[0], (rows - 1) * self.stride[0] + self.kernel[0], self.input_size[0])
        col, data_cols, pad_left, pad_right = input_range(
            x * self.stride[1] - self.pads[1], (cols - 1) * self.stride[1] + self.kernel[1], self.input_size[1])
        return SpatialTile(y, rows, x, cols, row, data_rows, col, data_cols, pad_top, pad_bottom, pad_left, pad_right,
                      self._row_pitch(cols, config), self._rows_read(rows))

    def piece(self, y: int, x: int, rows: tuple[int, int], cols: tuple[int, int]) -> "Geometry":
        """The loops over a piece of the window of output row ``y``, column ``x``: those of a layer with one output.

        ``rows``, ``cols``: the kernel's rows and columns in the piece, (first, number).
        """
        before = (self.pads[0] - y * self.stride[0] - rows[0], self.pads[1] - x * self.stride[1] - cols[0])
        return Geometry((rows[1], cols[1]), (1, 1), (*before, 0, 0), self.input_size, (1, 1))

    def _row_pitch(self, cols: int, config: NpuConfig) -> int:
        """Entries of an input row: up to the partners of the last output, so that its reads stay inside the block."""
        outputs = -(-cols // config.banks) * config.banks
        return row_entries((outputs - 1) * self.stride[1] + self.kernel[1], self.stride[1], config.banks)

    def _rows_read(self, rows: int) -> int:
        """Input rows that the machine reads for ``rows`` output rows."""
        return rows if self.row_skip > 1 else (rows - 1) * self.stride[0] + self.kernel[0]

    def buffer_row_step(self, spatial: SpatialTile) -> int:
        """Entries between the first input rows of neighbouring output rows."""
        return (1 if self.row_skip > 1 else self.stride[0]) * spatial.row_pitch

    @property
    def load_stride(self) -> int:
        """The stride that decides the bank of a column."""
        return self.stride[1]

    def steps(self, config: NpuConfig, rows: range | None = None) -> int:
        """Steps of a block of one group. ``rows``: of a window mapping, the rows of steps that count."""
        return self.kernel[0] * self.kernel[1]

    def word_columns(self, config: NpuConfig, *, spread: bool = False) -> int:
        """Output columns of an accumulator word."""
        return config.word_columns(spread=spread)

    def store_values(self, spatial: SpatialTile) -> int:
        """Values of a channel that stores make of a tile, those of a window counted one by one."""
        return spatial.rows * spatial.cols * prod(self.repeats)

    def store_beats(self, spatial: SpatialTile) -> int:
        """Beats of a block of a tile's output."""
        return self.store_values(spatial) // prod(self.windows)

    def row_words(self, spatial: SpatialTile, config: NpuConfig, *, spread: bool = False) -> int:
        """Accumulator words from a row of a tile to the next, as STORE_MAXIMUM has them."""
        return -(-spatial.cols // self.word_columns(config, spread=spread))

    @property
    def word_rows(self) -> int:
        """Output rows of an accumulator word."""
        return 1

    def input_blocks(self, channels: int, config: NpuConfig) -> int:
        """Channel blocks of a tile's input in the buffer."""
        return -(-channels // config.ic_lanes)

    def load_cycles(self, spatial: SpatialTile, blocks: int, config: NpuConfig) -> float:
        """Cycles to bring in ``blocks`` input blocks of a tile."""
        return blocks * spatial.load_beats

    def words(self, spatial: SpatialTile, config: NpuConfig, *, spread: bool = False) -> int:
        """Accumulator words of a tile; ``spread``: in SPREAD words."""
        return -(-spatial.rows // self.word_rows) * -(-spatial.cols // self.word_columns(config, spread=spread))

    def step_cycles(self, spatial: SpatialTile, config: NpuConfig, *, spread: bool = False) -> float:
        """Cycles that a step of a tile takes on average."""
        return self.words(spatial, config, spread=spread)

    def compute_fields(self, spatial: SpatialTile, config: NpuConfig, *, spread: bool = False,
                       rows: range | None = None) -> Mapping[str, int]:
        """Fields of COMPUTE_SET. ``rows``: of a window mapping, the rows of steps that run."""
        return {
            "kernel_h": self.kernel[0], "kernel_w": self.kernel[1], "stride": self.stride[1], "rows": spatial.rows,
            "cols": spatial.cols, "buf_row_pitch": spatial.row_pitch, "buf_row_step": self.buffer_row_step(spatial),
            "buf_block_pitch": spatial.entries, "words": _form(spread),
        }

    def store_fields(self, spatial: SpatialTile, config: NpuConfig, *, spread: bool = False) -> Mapping[str, int]:
        """What STORE_SET says of the words."""
        return {"words": _form(spread)}

    def loads(self, spatial: SpatialTile) -> bool:
        """Whether instructions can express what is loaded for a spatial tile."""
        return (1 <= spatial.data_cols <= _MAX_COLS and spatial.data_rows <= _MAX_ROWS and spatial.rows <= _MAX_ROWS
                and max(spatial.pad_left, spatial.pad_right) <= _MAX_PAD_SIDE
                and max(spatial.pad_top, spatial.pad_bottom) <= MAX_PAD_ROWS)

    def fits(self, spatial: SpatialTile, config: NpuConfig) -> bool:
        """Whether instructions can express a spatial tile and the input buffer hold a block of it."""
        return (self.loads(spatial) and spatial.row_pitch <= _MAX_ROW_PITCH
                and self.buffer_row_step(spatial) <= _MAX_BLOCK_PITCH
                and spatial.entries <= min(config.input_depth, _MAX_BLOCK_PITCH))


def _form(spread: bool) -> WordForm:
    return WordForm.SPREAD if spread else WordForm.PIXELS


def input_range(start: int, length: int, size: int) -> tuple[int, int, int, int]:
    """``length`` padded positions from ``start`` -> (first with data, number with data, padding before, after)."""
    first, end = max(start, 0), min(start + length, size)
    data = max(end - first, 0)
    before = min(max(-start, 0), length)
    return min(first, size - 1), data, before, length - data - before


def row_entries(columns: int, stride: int, banks: int) -> int:
    """Entries of a bank that ``columns`` padded columns take (docs/architecture.md, Loading)."""
    turn = banks * stride
    return max(c // turn * stride + c % stride for c in range(max(0, columns - turn), columns)) + 1


def split(size: int, parts: int, multiple: int) -> Split:
    """At most ``parts`` nearly equal lengths, all but the last multiples of ``multiple``."""
    units = -(-size // multiple)
    step, longer = divmod(units, parts)
    result, start = [], 0
    for part in range(parts):
        length = min((step + (part < longer)) * multiple, size - start)
        if length > 0:
            result.append((start, length))
        start += length
    return result


def part_counts(size: int, least: int = 1) -> Iterator[int]:
    """Numbers of parts of ``size`` units, from ``least`` on, that give different part sizes; the largest first."""
    parts = least
    while parts < size:
        yield parts
        # The fewest parts that are shorter.
        parts = -(-size // (-(-size // parts) - 1))
    if least <= size:
        yield size


def tilings(geometry: Geometry, config: NpuConfig, *, spread: bool = False) -> Iterator[tuple[Split, Split]]:
    """Splits of the output's rows and columns whose tiles have no more columns than instructions can name.

    All that differ in the largest tile, those of few tiles first.
    """
    height, width = geometry.output_size
    step = lcm(max(geometry.word_columns(config, spread=spread), geometry.column_step), geometry.windows[1])
    row_step = lcm(geometry.word_rows, geometry.windows[0])
    units, most = -(-width // step), _MAX_COLS // (geometry.repeats[1] * geometry.windows[0])
    for col_parts in part_counts(units, -(-units // (most // step))):
        columns = split(width, col_parts, step)
        for row_parts in part_counts(-(-height // row_step)):
            yield split(height, row_parts, row_step), columns
