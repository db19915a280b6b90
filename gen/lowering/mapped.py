"""A layer with the way in which it is computed: what a mapping (`gen.mapping`) makes, and tiles are made of."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Protocol

from cores.arch.isa import Opcode, Queue
from cores.config import NpuConfig
from gen.ir.graph import Layer, before_windows
from gen.ir.tensor import Requantize, Tensor
from gen.lowering.buffer_allocation import Chunk
from gen.lowering.emitter import Emitter
from gen.memory.placement import Placement
from gen.tiling.geometry import Geometry, SpatialTile
from gen.tiling.schedule import Plan
from gen.tiling.weights import PackedWeights, ReductionSlice

__all__ = ["ComputedTile", "MappedLayer", "PlacedLayer", "TensorSlice", "data_of"]


@dataclass(frozen=True)
class TensorSlice:
    """Channel blocks of a tensor times a range of pixels (first, and the one after the last)."""

    tensor: str
    blocks: tuple[int, int]
    pixels: tuple[int, int]


class ComputedTile(Protocol):
    """An output tile in the making (`gen.lowering.tiles`), as a mapping knows it that emits its COMPUTEs."""

    spatial: SpatialTile

    def emit(self, opcode: Opcode, after: dict[Queue, int], **fields: int) -> None:
        """A COMPUTE into the tile's bank."""

    def load_weights(self, reduction: ReductionSlice, ahead: int) -> None:
        """A COMPUTE's weights, but for the ``ahead`` beats that are on their way."""

    def load_stored_weights(self, part: TensorSlice, first: int, beats: int) -> None:
        """Weights that lie in a tensor in memory: ``beats`` from beat ``first`` of it on, which are ``part`` of it."""

    def load_turned(self, part: TensorSlice, first: int, blocks: int, rows: int, geometry: Mapping[str, int],
                    turn: Mapping[str, int]) -> None:
        """Weights by the corner turn, of a tensor in memory: of ``blocks`` of ``rows`` from beat ``first`` of it on,
        which are ``part`` of it, with these fields of LOAD_SET and LOAD_TURN.
        """

    def load_constant_weights(self, offset: int, beats: int) -> None:
        """Of the layer's packed constants, ``beats`` from ``offset`` on."""

    def flush_stores(self) -> None:
        """The STOREs of all tiles before this one now."""


@dataclass(frozen=True, eq=False, kw_only=True)
class MappedLayer(ABC):
    """One layer of the graph, as one datapath computes it. ``layer`` says what its values are."""

    layer: Layer
    source: Tensor
    #: What is made, before rows and columns are repeated.
    target: Tensor
    config: NpuConfig
    #: What makes activations of the sums of this mapping, which need not be those of the layer.
    requantize: Requantize
    plan: Plan

    #: Its input lies in memory as rows of interleaved bytes.
    interleaves: ClassVar[bool] = False
    #: Its stores can make one value of each window of its result (`Layer.windows`).
    stores_windows: ClassVar[bool] = False

    @property
    @abstractmethod
    def mode(self) -> str:
        """Name in the program's table."""

    @property
    def takes_kept(self) -> bool:
        """Whether its input may be one that stays in the input buffer."""
        return False

    @property
    def spatial_tiles(self) -> Sequence[SpatialTile]:
        """Those of its output tiles."""
        return self.plan.spatial_tiles

    @property
    def input(self) -> str:
        """The tensor that is read from memory, or stays in the input buffer."""
        return self.layer.input

    @property
    def operands(self) -> tuple[str, ...]:
        """All that its sums are made of, that tensor first."""
        return self.input, *self.layer.operands[1:]

    @property
    def padding(self) -> int:
        """What lies around its input."""
        return self.layer.padding(self.source.zero_point)

    @property
    def others(self) -> tuple[str, ...]:
        """The tensors that are read from memory beside those, as side data."""
        return self.layer.others

    @property
    def macs(self) -> int:
        """Multiplications of the dense layer, also of what is in no window."""
        return self.layer.macs(before_windows(self.layer, self.source, self.target))

    @property
    def useful_macs(self) -> int:
        """Those of weights that were not pruned, for what is made."""
        return self.layer.macs(self.target)

    @property
    def lane_macs(self) -> int:
        """``useful_macs`` that the model asks for, with channels rounded up to lanes: those of the result to a block,
        those that a sum is made of to the lanes of an output. 0 for a layer that stands for no node of the model.
        """
        if not self.layer.onnx_nodes:
            return 0
        made, summed, config = self.target.shape[0], self.layer.summed_channels, self.config
        macs = self.useful_macs * _rounded_up(made, config.ic_lanes) // made
        return macs * _rounded_up(summed, config.nnz_lanes) // summed if summed else macs

    @property
    def weight_beats(self) -> int:
        """Beats of the packed weights."""
        return 0

    @cached_property
    def weights(self) -> PackedWeights | None:
        """Packed when first asked for: most mappings that are thought of are not taken."""
        return None

    def output_blocks(self, limit: int) -> list[range]:
        """The channel blocks of the output, ``limit`` to a tile."""
        blocks = -(-self.target.shape[0] // self.config.ic_lanes)
        return [range(first, min(first + limit, blocks)) for first in range(0, blocks, limit)]

    def rows_apart(self, spatial: SpatialTile) -> int | None:
        """Pixels of the output from a row of a tile to the next, where that is not a row of the output."""
        return None

    def covers_output(self) -> bool:
        """Whether its spatial tiles are inside the output, apart from each other, and all of it together."""
        tiles, (height, width) = self.plan.spatial_tiles, self.plan.geometry.output_size
        inside = all(0 <= w.y <= w.y + w.rows <= height and 0 <= w.x <= w.x + w.cols <= width for w in tiles)
        rows, cols = {(w.y, w.rows) for w in tiles}, {(w.x, w.cols) for w in tiles}
        grid = len(tiles) == len(rows) * len(cols) == len({(w.y, w.x) for w in tiles})
        return inside and grid and sum(n for _, n in rows) == height and sum(n for _, n in cols) == width

    # -- what is emitted -----------------------------------------------------------------------------------------

    def loaded_tensor(self, spatial: SpatialTile) -> str:
        """The tensor that a spatial tile reads."""
        return self.input

    def loaded_slice(self, geometry: Geometry, spatial: SpatialTile, blocks: range) -> TensorSlice:
        """What a load of ``blocks`` of a spatial tile reads; the tile has data."""
        start, row_pitch = data_of(geometry, spatial)
        end = start + (spatial.data_rows - 1) * row_pitch + spatial.data_cols
        return TensorSlice(self.input, (blocks.start, blocks.stop), (start, end))

    def load(self, emitter: Emitter, place: Placement, geometry: Geometry, spatial: SpatialTile, blocks: range,
             base: int, after: dict[Queue, int]) -> int:
        """Emit the load of a spatial tile's blocks to entry ``base`` and following; returns the last LOAD_ACT's
        index.
        """
        start, row_pitch = data_of(geometry, spatial)
        pixels = geometry.input_size[0] * geometry.input_size[1]
        self.set_load(emitter, geometry, spatial, dict(
            cols=spatial.data_cols, row_pitch=row_pitch, block_pitch=pixels, pad_left=spatial.pad_left,
            pad_right=spatial.pad_right, pad_value=self.padding, stride=geometry.load_stride,
            buf_row_pitch=spatial.row_pitch, buf_block_pitch=spatial.entries))
        return emitter.emit(
            Opcode.LOAD_ACT, after=after, offset=place.offset + blocks.start * pixels + start,
            buf_base=base + spatial.buffer_row * spatial.row_pitch, blocks=len(blocks), rows=spatial.data_rows,
            pad_top=spatial.pad_top, pad_bottom=spatial.pad_bottom)

    def set_load(self, emitter: Emitter, geometry: Geometry, spatial: SpatialTile, fields: dict[str, int]) -> None:
        emitter.set_load(fields)

    def beats_ahead(self, beats: int, reduction: ReductionSlice) -> int:
        """Of the ``beats`` that a COMPUTE's weights take, those that can be fetched before its activations."""
        return beats

    def compute(self, tile: ComputedTile, reduction: ReductionSlice, chunk: Chunk, after: dict[Queue, int], *,
                first: bool, ahead: int, row: int) -> None:
        """Emit a COMPUTE of input blocks in ``chunk`` with its weights, ``ahead`` beats of which are there."""
        base = chunk.place.base + (reduction.block - chunk.blocks.start) * tile.spatial.entries
        base += (row + (reduction.rows.start if reduction.rows else 0)) * tile.spatial.row_pitch
        tile.emit(Opcode.COMPUTE, after, buf_base=base, blocks=reduction.blocks, groups=reduction.groups,
                  kind=reduction.kind, first=int(first), **self.fields(reduction))
        tile.load_weights(reduction, ahead)

    def parameter_fields(self, bank: int, group: int) -> dict[str, int]:
        """Further fields of a LOAD_SIDE of channel parameters, from those of a ``group`` on, of a tile in a bank.
        """
        return {}

    def fields(self, reduction: ReductionSlice) -> dict[str, int]:
        """Further fields of a COMPUTE."""
        return {}


def _rounded_up(channels: int, lanes: int) -> int:
    return -(-channels // lanes) * lanes


def data_of(geometry: Geometry, spatial: SpatialTile) -> tuple[int, int]:
    """A spatial tile's first pixel with data in its block, and how far apart its rows are."""
    width = geometry.input_size[1]
    return spatial.row * width + spatial.col, geometry.row_skip * width if spatial.data_rows > 1 else 0


@dataclass(frozen=True, eq=False)
class PlacedLayer:
    """A mapped layer in a program: its number there, and the first beats of its weights and channel parameters."""

    number: int
    mapped: MappedLayer
    weights: int
    parameters: int
    #: Beats of the constants that operations of its epilogue have.
    constants: Mapping[Opcode, range] = field(default_factory=dict)
