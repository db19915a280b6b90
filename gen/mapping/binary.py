"""Which layers the binary unit runs, where they find the signs of their input, and their packed weights.

The unit counts equal bits, ``A`` of them, where the sum of the layer's signs is ``dot = 2 * A - constant``, and makes
``A * 2**COUNT_SHIFT`` of them; `_unit_stage` puts that into bias and shift without changing a result. Bits without a
channel are known on both sides, and one half of them equals its weight, so that they cancel, and so does the padding
that counts as half of an entry.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cores.arch.isa import EntryForm, Opcode, Queue
from cores.arch.numerics import COUNT_SHIFT, MAP_PIXELS, MAX_SHIFT
from cores.config import NpuConfig
from gen.ir.channel_padding import padding_values
from gen.ir.errors import CompileError
from gen.ir.graph import Conv, Graph, unscaled
from gen.ir.layers.conv import is_binary, sign_sizes
from gen.ir.queries import count_readers, only_signs
from gen.ir.tensor import Requantize
from gen.lowering.emitter import Emitter
from gen.lowering.mapped import TensorSlice, data_of
from gen.mapping.base import LayerContext, MappingContext
from gen.mapping.plain import ConvCost, ConvMapping, plan_conv
from gen.mapping.signs import Columns, PairGeometry, SignSource, constant_of, pack_weights, slices_of_signs
from gen.memory.placement import Placement
from gen.tiling.geometry import MAX_PAD_ROWS, Geometry, SpatialTile
from gen.tiling.weights import PackedWeights

__all__ = ["BinaryLayers", "BinaryMapping"]


@dataclass(frozen=True, eq=False)
class _OnUnit:
    """A layer that the unit can run: where its signs are, what padding has there, and what makes activations."""

    layer: Conv
    signs: SignSource
    requantize: Requantize


@dataclass(frozen=True, eq=False)
class BinaryLayers:
    """The layers of a graph that run on the unit, by name.

    ``packed``: tensors that are stored as packed bits. ``spared``: tensors of signs that nothing reads, as the unit
    takes them from what they are the signs of; the layers that make them are not computed.
    """

    mapped: Mapping[str, "BinaryMapping"]
    packed: frozenset[str]
    spared: frozenset[str]

    @classmethod
    def of(cls, whole: MappingContext) -> "BinaryLayers":
        """What no tiling fits runs in int8."""
        refused: set[str] = set()
        while True:
            layers, packed, spared = _choose(whole.graph, whole.config, refused)
            mapped = {}
            for name, layer in layers.items():
                try:
                    mapped[name] = _map(layer, whole, packed_out=layer.layer.output in packed)
                except CompileError:
                    refused.add(name)
                    break
            else:
                return cls(mapped, packed, spared)


def _choose(graph: Graph, config: NpuConfig,
            refused: Collection[str]) -> tuple[dict[str, _OnUnit], frozenset[str], frozenset[str]]:
    """The layers that the unit can run, but for those ``refused``; packed and spared tensors as in `BinaryLayers`."""
    if not config.binary_rows:
        return {}, frozenset(), frozenset()
    # Of whole blocks of channels there is nothing beyond the last.
    beyond = {name: 0 for name, tensor in graph.tensors.items() if tensor.shape[0] % config.ic_lanes == 0}
    beyond |= padding_values(graph)
    makers = {layer.output: layer for layer in graph.layers}
    readers = count_readers(graph)
    layers: dict[str, _OnUnit] = {}
    for layer in graph.of(Conv):
        if layer.name in refused or not is_binary(layer, graph.tensors[layer.input]):
            continue
        maker = makers[layer.input]
        # Signs of an int8 tensor as it is are taken from there.
        tensor = maker.input if only_signs(maker) and maker.input in beyond else layer.input
        adapted = _on_unit(graph, layer, _source(layer, tensor, beyond[tensor], config), config)
        if adapted is not None:
            layers[layer.name] = adapted
    spared = frozenset(layer.output for layer in graph.layers
                       if only_signs(layer) and layer.input in beyond
                       and readers[layer.output] == _reading(graph, layer.output, layers))
    inputs = {tensor for tensor, _ in graph.inputs.values()}
    # Rows of packed bits are read from their beginning on, one pixel after the other.
    of_packed = {name: item for name, item in layers.items()
               if item.layer.stride[1] == 1 and item.signs.tensor == item.layer.input}
    packed = frozenset(name for name, tensor in graph.tensors.items()
                       if config.gather and tensor.signs and name not in inputs | spared
                       and readers[name] == _reading(graph, name, of_packed))
    layers = {name: replace(item, signs=replace(item.signs, packed=item.signs.tensor in packed))
              for name, item in layers.items()}
    return layers, packed, spared


def _map(item: _OnUnit, whole: MappingContext, *, packed_out: bool) -> "BinaryMapping":
    """The layer with a step for each tap, or with one for two of a row where that is faster."""
    layer, config, tensors = item.layer, whole.config, whole.graph.tensors
    source, target = tensors[layer.input], unscaled(layer, tensors[layer.output])
    geometry = Geometry.of(layer, source, target, packed_in=item.signs.packed, packed_out=packed_out)

    def planned(unit: _OnUnit, geometry: Geometry) -> BinaryMapping:
        tiles = slices_of_signs(layer, unit.signs, config)
        cost = _Cost(layer, tiles, geometry, config, input_blocks=unit.signs.blocks)
        cost.signs = unit.signs
        return BinaryMapping(layer=layer, source=source, target=target, config=config, requantize=unit.requantize,
                             plan=plan_conv(layer.name, cost), tiles=tiles, signs=unit.signs)
    single, columns = planned(item, geometry), geometry.kernel[1]
    paired = None
    if columns > 1 and item.signs.may_pair:
        paired = _with_stage(layer, replace(item.signs, columns=columns), config)
    if paired is None:
        return single
    try:
        return min(single, planned(paired, PairGeometry.of_pairs(geometry)), key=lambda mapping: mapping.cost)
    except CompileError:
        return single


def _reading(graph: Graph, tensor: str, layers: Collection[str]) -> int:
    """How many of ``layers`` read a tensor."""
    return sum(layer.input == tensor and layer.name in layers for layer in graph.layers)


def _source(layer: Conv, tensor: str, beyond: int, config: NpuConfig) -> SignSource:
    channels = layer.weights.shape[1]
    return SignSource(tensor, False, channels, -(-channels // config.ic_lanes), 1 if beyond >= 0 else -1)


def _on_unit(graph: Graph, layer: Conv, source: SignSource, config: NpuConfig) -> _OnUnit | None:
    """The layer as it requantises on the unit; None if the unit cannot run it, or gains nothing."""
    padding = layer.padding(graph.tensors[layer.input].zero_point)
    padded = any(layer.pads)
    partial = source.channels % config.ic_lanes
    if source.int8_blocks == 1:
        return None
    if padded and padding not in (-1, 0, 1):
        return None
    if padded and padding == 0 and source.channels % 2:
        return None
    if padded and padding and partial and padding != source.beyond:
        return None
    return _with_stage(layer, source, config)


def _with_stage(layer: Conv, source: SignSource, config: NpuConfig) -> _OnUnit | None:
    sizes, constant = sign_sizes(layer.weights), constant_of(layer, source, config)
    assert sizes is not None
    stage = _unit_stage(layer.requantize, sizes, constant)
    if stage is None or (np.abs(stage.bias) + (constant << COUNT_SHIFT) >= 1 << config.acc_width - 1).any():
        return None
    return _OnUnit(layer, source, stage)


def _unit_stage(stage: Requantize, sizes: np.ndarray, constant: int) -> Requantize | None:
    """What makes of ``A * 2^COUNT_SHIFT`` what ``stage`` makes of ``(2 * A - constant) * sizes``; None if nothing does.

    With ``P = 2^(COUNT_SHIFT - 1)`` the first is ``P * (2 * A - constant) + P * constant``, and
    ``(2^k * x * m + 2^(s+k-1)) >> (s+k)`` is ``(x * m + 2^(s-1)) >> s``.
    """
    doublings = COUNT_SHIFT - 1 - np.log2(sizes).astype(np.int64)
    shift = stage.shift + doublings
    if (shift > MAX_SHIFT).any():
        return None
    return replace(stage, bias=(stage.bias << doublings) - (constant << COUNT_SHIFT - 1), shift=shift)


class _Cost(ConvCost):
    """On the unit, from int8 feature maps or packed bits."""

    may_spread = False
    signs: SignSource

    def load(self, spatial: SpatialTile) -> float:
        signs, lanes, cycles = self.signs, self.config.pixel_lanes, 0.0
        for loaded in signs.loads(range(signs.blocks)):
            low, high = signs.int8_range(loaded)
            pixels = spatial.input_rows * Columns.of(self.geometry, spatial, loaded.start).width
            cycles += (high - low) * pixels / (lanes if signs.packed else 1)
            cycles += pixels / lanes if signs.fill(loaded.stop - 1, self.config) is not None else 0
        return cycles


@dataclass(frozen=True, eq=False, kw_only=True)
class BinaryMapping(ConvMapping):
    """A layer on the binary unit, whose sums are counts."""

    modes = {"binary": "signs multiplied by XNOR and counted"}
    multiplies = False

    signs: SignSource

    @property
    def mode(self) -> str:
        return "binary"

    @classmethod
    def propose(cls, context: LayerContext[Conv]) -> "BinaryMapping | None":
        return context.whole.analysis(BinaryLayers).mapped.get(context.layer.name)

    @property
    def demanded(self) -> bool:
        return True

    @property
    def input(self) -> str:
        return self.signs.tensor

    @property
    def input_blocks(self) -> int:
        return self.signs.blocks

    @cached_property
    def weights(self) -> PackedWeights:
        return PackedWeights(pack_weights(self.layer, self.signs, self.config), self.tiles)

    def loaded_slice(self, geometry: Geometry, spatial: SpatialTile, blocks: range) -> TensorSlice:
        start, row_pitch = data_of(geometry, spatial)
        end = start + (spatial.data_rows - 1) * row_pitch + spatial.data_cols
        # Beats of packed bits are read as a whole.
        around = MAP_PIXELS if self.signs.packed else 0
        return TensorSlice(self.input, self.signs.int8_range(blocks), (start - around, end + around))

    def load(self, emitter: Emitter, place: Placement, geometry: Geometry, spatial: SpatialTile, blocks: range,
             base: int, after: dict[Queue, int]) -> int:
        index = -1
        for loaded in self.signs.loads(blocks):
            index = self._load(emitter, place, geometry, spatial, loaded,
                               base + (loaded.start - blocks.start) * spatial.entries, after)
        return index

    def _load(self, emitter: Emitter, place: Placement, geometry: Geometry, spatial: SpatialTile, blocks: range,
              base: int, after: dict[Queue, int]) -> int:
        """Input blocks that one load brings."""
        signs, config, columns = self.signs, self.config, Columns.of(geometry, spatial, blocks.start)
        pair = signs.is_pair(blocks.start)
        padding = self.padding if any(self.layer.pads) else None
        low, high = signs.int8_range(blocks)
        row_beats = place.row_beats
        # Of a layer that is one long row (`Geometry.of`) the tensor's rows follow each other without a gap.
        row, col = divmod(spatial.row * geometry.input_size[1] + columns.col, place.shape[2])
        skip = geometry.row_skip * (row_beats if geometry.input_size[1] == place.shape[2] else 0)
        shared = {
            "row_pitch": skip if spatial.data_rows > 1 else 0, "block_pitch": place.shape[1] * row_beats,
            "buf_row_pitch": spatial.row_pitch, "buf_block_pitch": spatial.entries, "pad_zero": int(padding == 0),
        }
        fill = signs.fill(blocks.stop - 1, config)
        if fill is not None:
            self._fill(emitter, fill, spatial, base + (len(blocks) - 1) * spatial.entries, after)
        offset = place.offset + (low * place.shape[1] + row) * row_beats
        pixel = config.sign_bytes
        if signs.packed:
            first, start = divmod(col, MAP_PIXELS)
            beats = -(-(start + columns.data) // MAP_PIXELS)
            emitter.set_load(
                {**shared, "cols": beats, "pad_value": -1 if padding == 1 else 0, "stride": 1},
                Opcode.LOAD_GATHER, {
                    "outputs": columns.width - pair, "length": pixel * (1 + pair), "step": pixel,
                    "start": (start - columns.left) * pixel, "bytes": (start + columns.data) * pixel})
            offset += first
        else:
            emitter.set_load({
                **shared, "cols": columns.data, "pad_left": columns.left, "pad_right": columns.right,
                "pad_value": padding or 0, "stride": geometry.load_stride,
                "form": EntryForm.SIGN_PAIRS if pair else EntryForm.SIGNS})
            offset += col
        return emitter.emit(
            Opcode.LOAD_ACT, after=after, offset=offset, buf_base=base + spatial.buffer_row * spatial.row_pitch,
            blocks=high - low, rows=spatial.data_rows, pad_top=spatial.pad_top, pad_bottom=spatial.pad_bottom)

    def _fill(self, emitter: Emitter, used: int, spatial: SpatialTile, base: int, after: dict[Queue, int]) -> None:
        """Zero the bytes of a tile's last entries that no block comes to, from ``used`` on.

        A row's entries in all banks: which of them its columns are in depends on the stride.
        """
        emitter.set_load(
            {"cols": 1, "stride": 1, "buf_row_pitch": spatial.row_pitch},
            Opcode.LOAD_GATHER, {"outputs": spatial.row_pitch * self.config.banks,
                                 "length": self.config.beat_bytes - used, "place": used})
        rows = spatial.input_rows
        for first in range(0, rows, 2 * MAX_PAD_ROWS):
            count = min(rows - first, 2 * MAX_PAD_ROWS)
            emitter.emit(
                Opcode.LOAD_ACT, after=after, offset=0, buf_base=base + first * spatial.row_pitch, blocks=1, rows=0,
                pad_top=min(count, MAX_PAD_ROWS), pad_bottom=max(0, count - MAX_PAD_ROWS))
