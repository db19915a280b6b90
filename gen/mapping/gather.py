"""Convolutions of few input channels as 1x1 convolutions (docs/datapath.md, "Gathered rows").

The input lies in memory as rows of interleaved bytes. For every output pixel the bytes under a row of the kernel are
one run; the runs of all its rows, one after the other, are the channels of a 1x1 convolution.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cores.arch.isa import LAYOUTS, Opcode, Queue, largest_field
from cores.config import NpuConfig
from gen.ir.graph import Conv, Graph
from gen.ir.queries import count_readers
from gen.ir.tensor import Tensor
from gen.lowering.emitter import Emitter
from gen.mapping.base import LayerContext
from gen.mapping.pack import pack, slices_of
from gen.mapping.plain import ConvCost, ConvMapping, plan_conv
from gen.memory.placement import Placement
from gen.tiling.geometry import Geometry, SpatialTile
from gen.tiling.weights import PackedWeights

__all__ = ["GatherGeometry", "GatherMapping", "is_gatherable"]

_MAX_LENGTH = largest_field(Opcode.LOAD_GATHER, "length")
_MAX_STEP = largest_field(Opcode.LOAD_GATHER, "step")
_MAX_BYTES = largest_field(Opcode.LOAD_GATHER, "bytes")
_LOWEST_START = -(1 << next(f.bits for f in LAYOUTS[Opcode.LOAD_GATHER] if f.name == "start") - 1)
_MAX_COLS = largest_field(Opcode.LOAD_SET, "cols")
_MAX_PAD_ROWS = largest_field(Opcode.LOAD_ACT, "pad_top")

#: Cycles of a load beside its runs: instructions, and filling the window.
_LOAD_CYCLES = 8


@dataclass(frozen=True)
class GatherLoad:
    """One LOAD_GATHER: ``length`` bytes under row ``row`` of the kernel, from byte ``first`` on, go to ``place`` of
    ``block``.
    """

    row: int
    first: int
    length: int
    block: int
    place: int


def is_gatherable(layer: Conv, graph: Graph) -> bool:
    """Whether a layer's input can be laid out for it alone: a model input that nothing else reads."""
    inputs = {tensor for tensor, _ in graph.inputs.values()}
    return (not layer.depthwise and layer.input in inputs and not graph.tensors[layer.input].signs
            and count_readers(graph)[layer.input] == 1)


def _gathered(layer: Conv) -> Conv:
    """The layer as a 1x1 convolution: its channels are kernel row, kernel column, channel."""
    weights = layer.weights.transpose(0, 2, 3, 1).reshape(len(layer.weights), -1, 1, 1)
    return replace(layer, weights=np.ascontiguousarray(weights), stride=(1, 1), pads=(0, 0, 0, 0))


@dataclass(frozen=True)
class GatherGeometry(Geometry):
    """The loops of the 1x1 convolution; ``window_*`` are the layer's own."""

    channels: int = 0
    window_kernel: tuple[int, int] = (1, 1)
    window_stride: tuple[int, int] = (1, 1)

    @classmethod
    def fitting(cls, layer: Conv, source: Tensor, target: Tensor, config: NpuConfig) -> "GatherGeometry | None":
        """The geometry of a layer whose rows the hardware can gather; None for others."""
        channels, height, width = source.shape
        rows, cols = layer.weights.shape[2:]
        stride = (1 if target.shape[1] == 1 else layer.stride[0], 1 if target.shape[2] == 1 else layer.stride[1])
        fits = (stride[1] * channels <= _MAX_STEP and -layer.pads[1] * channels >= _LOWEST_START
                and max(layer.pads[0], layer.pads[2]) <= _MAX_PAD_ROWS and width * channels <= _MAX_BYTES
                and -(-width * channels // config.beat_bytes) <= _MAX_COLS)
        if not config.gather or not fits:
            return None
        return cls((1, 1), (1, 1), layer.pads, (height, width), (target.shape[1], target.shape[2]),
                   repeats=layer.repeats, windows=layer.windows, channels=channels,
                   window_kernel=(rows, cols), window_stride=stride)

    def row_beats(self, config: NpuConfig) -> int:
        """Beats of a row of the input."""
        return -(-self.input_size[1] * self.channels // config.beat_bytes)

    def gather_loads(self, config: NpuConfig) -> list[GatherLoad]:
        """The runs of all kernel rows, cut where blocks of channels end."""
        lanes, run = config.beat_bytes, self.window_kernel[1] * self.channels
        loads = []
        for row in range(self.window_kernel[0]):
            first = 0
            while first < run:
                block, place = divmod(row * run + first, lanes)
                length = min(run - first, lanes - place, _MAX_LENGTH)
                loads.append(GatherLoad(row, first, length, block, place))
                first += length
        return loads

    def input_blocks(self, channels: int, config: NpuConfig) -> int:
        return -(-self.window_kernel[0] * self.window_kernel[1] * self.channels // config.ic_lanes)

    def spatial_tile(self, y: int, rows: int, x: int, cols: int, config: NpuConfig) -> SpatialTile:
        # What is loaded differs from load to load; here only how it lies in the buffer.
        return SpatialTile(y, rows, x, cols, 0, rows, 0, cols, 0, 0, 0, 0, -(-cols // config.banks), rows)

    def fetch(self, spatial: SpatialTile, load: GatherLoad, config: NpuConfig) -> dict[str, dict[str, int]]:
        """Fields of the LOAD_SET, LOAD_GATHER and LOAD_ACT of a load that depend on where the tile is."""
        lanes, height = config.beat_bytes, self.input_size[0]
        step = self.window_stride[1] * self.channels
        data = self.input_size[1] * self.channels
        start = (spatial.x * self.window_stride[1] - self.pads[1]) * self.channels + load.first
        end = start + (spatial.cols - 1) * step + load.length
        # Where all is padding it does not matter what is fetched.
        beat = min(max(start, 0), data - 1) // lanes
        beats = max(1, -(-min(end, data) // lanes) - beat)
        first = spatial.y * self.window_stride[0] - self.pads[0] + load.row
        top = min(spatial.rows, max(0, -(first // self.window_stride[0])))
        first += top * self.window_stride[0]
        rows = min(spatial.rows - top, max(0, -(-(height - first) // self.window_stride[0])))
        return {
            "set": {"cols": beats, "row_pitch": self.window_stride[0] * self.row_beats(config) if rows > 1 else 0},
            "gather": {
                "outputs": spatial.cols, "length": load.length, "step": step, "place": load.place,
                "start": start - beat * lanes if start < data else 0,
                "bytes": data - beat * lanes if start < data else 0},
            "act": {"offset": (first if rows else 0) * self.row_beats(config) + beat, "rows": rows, "pad_top": top,
                    "pad_bottom": spatial.rows - top - rows},
        }

    def load_cycles(self, spatial: SpatialTile, blocks: int, config: NpuConfig) -> float:
        runs = -(-spatial.cols // config.write_lanes)
        beats = 2 + -(-spatial.cols * self.window_stride[1] * self.channels // config.beat_bytes)
        return len(self.gather_loads(config)) * (spatial.rows * max(runs, beats) + _LOAD_CYCLES)


@dataclass(frozen=True, eq=False, kw_only=True)
class GatherMapping(ConvMapping):
    """The layer as a 1x1 convolution of gathered rows."""

    modes = {"gathered": "rows of the kernel as channels of a 1x1 layer, for few input channels"}

    interleaves = True
    stores_windows = True

    @property
    def mode(self) -> str:
        return "gathered"

    @classmethod
    def propose(cls, context: LayerContext[Conv]) -> "GatherMapping | None":
        layer, config = context.layer, context.config
        if (not layer.is_exact or context.packed_out or context.options.gather != "auto"
                or not is_gatherable(layer, context.whole.graph)):
            return None
        geometry = GatherGeometry.fitting(layer, context.source, context.target, config)
        if geometry is None:
            return None
        form = _gathered(context.fitted)
        tiles = slices_of(form, config)
        blocks = geometry.input_blocks(context.source.shape[0], config)
        plan = plan_conv(layer.name, ConvCost(form, tiles, geometry, config, input_blocks=blocks))
        return cls.at(context, plan, tiles=tiles)

    @cached_property
    def weights(self) -> PackedWeights:
        return PackedWeights(pack(_gathered(self.layer), self.tiles, self.config), self.tiles)

    def load(self, emitter: Emitter, place: Placement, geometry: Geometry, spatial: SpatialTile, blocks: range,
             base: int, after: dict[Queue, int]) -> int:
        assert isinstance(geometry, GatherGeometry)
        index = -1
        for load in geometry.gather_loads(self.config):
            if load.block not in blocks:
                continue
            fields = geometry.fetch(spatial, load, self.config)
            act = fields["act"]
            emitter.set_load(
                {**fields["set"], "block_pitch": 0, "pad_value": self.padding, "stride": 1,
                 "buf_row_pitch": spatial.row_pitch, "buf_block_pitch": spatial.entries},
                Opcode.LOAD_GATHER, fields["gather"])
            index = emitter.emit(
                Opcode.LOAD_ACT, after=dict(after), buf_base=base + (load.block - blocks.start) * spatial.entries,
                blocks=1, **{**act, "offset": place.offset + act["offset"]})
        return index
