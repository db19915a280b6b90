"""Which layers the binary unit runs, where they find the signs of their input, and their packed weights.

The unit counts equal bits, ``A`` of them, where the layer's sum is ``dot = 2 * A - constant``; `_unit_stage` puts that
into bias, multiplier and shift without changing a result. Bits without a channel are known on both sides, and one half
of them equals its weight, so that they cancel, and so does the padding that counts as half of an entry.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cores.arch.isa import Opcode, Queue
from cores.arch.numerics import MAP_PIXELS, MIN_SHIFT, MULTIPLIER_BITS, SIGN_BLOCKS
from cores.config import NpuConfig
from gen.ir.beyond import values_beyond
from gen.ir.errors import CompileError
from gen.ir.graph import Conv, Graph, Requantize, is_binary, pad_value, unscaled
from gen.ir.queries import count_readers, only_signs
from gen.lowering.emitter import Emitter
from gen.lowering.mapped import Region, data_of
from gen.mapping.base import Site, Survey
from gen.mapping.plain import ConvCost, ConvMapping, plan_conv
from gen.memory.placement import Placement
from gen.tiling.geometry import MAX_PAD_ROWS, Geometry, Window
from gen.tiling.weights import PackedWeights, Pass, Passes

__all__ = ["BinaryLayers", "BinaryMapping", "SignSource"]


@dataclass(frozen=True)
class SignSource:
    """Where a layer on the unit finds its input's signs.

    ``tensor``: in memory, a map of signs if ``packed``, else int8. ``channels`` of ``blocks`` entries are there;
    ``fill``: byte of the last entry from which on no load of a block writes, ``None`` if they fill it.
    """

    tensor: str
    packed: bool
    channels: int
    blocks: int
    int8_blocks: int
    fill: int | None
    #: What the channels beyond the last have in the tensor: +1 or -1.
    beyond: int

    def entry_blocks(self, low: int, high: int) -> tuple[int, int]:
        """The int8 blocks of entries ``low..high``."""
        return SIGN_BLOCKS * low, min(SIGN_BLOCKS * high, self.int8_blocks)


@dataclass(frozen=True, eq=False)
class _OnUnit:
    """A layer that the unit can run: where its signs are, what padding has there, and what makes activations."""

    layer: Conv
    signs: SignSource
    requantize: Requantize


@dataclass(frozen=True, eq=False)
class BinaryLayers:
    """The layers of a graph that run on the unit, by name.

    ``maps``: tensors that are stored as maps of signs. ``spared``: tensors of signs that nothing reads, as the unit
    takes them from what they are the signs of; the layers that make them are not computed.
    """

    mapped: Mapping[str, "BinaryMapping"]
    maps: frozenset[str]
    spared: frozenset[str]

    @classmethod
    def of(cls, survey: Survey) -> "BinaryLayers":
        """What no tiling fits runs in int8."""
        refused: set[str] = set()
        while True:
            layers, maps, spared = _choose(survey.graph, survey.config, refused)
            mapped = {}
            for name, layer in layers.items():
                try:
                    mapped[name] = _map(layer, survey, map_out=layer.layer.output in maps)
                except CompileError:
                    refused.add(name)
                    break
            else:
                return cls(mapped, maps, spared)


def _choose(graph: Graph, config: NpuConfig,
            refused: Collection[str]) -> tuple[dict[str, _OnUnit], frozenset[str], frozenset[str]]:
    """The layers that the unit can run, but for those ``refused``; maps and spared tensors as in `BinaryLayers`."""
    if not config.binary_rows:
        return {}, frozenset(), frozenset()
    beyond = values_beyond(graph)
    makers = {layer.output: layer for layer in graph.layers}
    readers = count_readers(graph)
    layers: dict[str, _OnUnit] = {}
    for layer in graph.layers:
        if not isinstance(layer, Conv) or layer.name in refused or not is_binary(layer, graph.tensors[layer.input]):
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
    # A map's rows are read from their beginning on, one pixel behind the other.
    of_maps = {name: item for name, item in layers.items()
               if item.layer.stride[1] == 1 and item.signs.tensor == item.layer.input}
    maps = frozenset(name for name, tensor in graph.tensors.items()
                     if config.gather and tensor.signs and name not in inputs | spared
                     and readers[name] == _reading(graph, name, of_maps))
    layers = {name: replace(item, signs=replace(item.signs, packed=item.signs.tensor in maps))
              for name, item in layers.items()}
    return layers, maps, spared


def _map(item: _OnUnit, survey: Survey, *, map_out: bool) -> "BinaryMapping":
    layer, config, tensors = item.layer, survey.config, survey.graph.tensors
    source, target = tensors[layer.input], unscaled(layer, tensors[layer.output])
    geometry = Geometry.of(layer, source, target, map_in=item.signs.packed, map_out=map_out)
    tiles = _passes(layer, item.signs, config)
    cost = _Cost(layer, tiles, geometry, config, input_blocks=item.signs.blocks)
    cost.signs = item.signs
    return BinaryMapping(layer=layer, source=source, target=target, config=config, requantize=item.requantize,
                         plan=plan_conv(layer.name, cost), tiles=tiles, signs=item.signs)


def _reading(graph: Graph, tensor: str, layers: Collection[str]) -> int:
    """How many of ``layers`` read a tensor."""
    return sum(layer.input == tensor and layer.name in layers for layer in graph.layers)


def _source(layer: Conv, tensor: str, beyond: int, config: NpuConfig) -> SignSource:
    channels = layer.weights.shape[1]
    int8_blocks = -(-channels // config.ic_lanes)
    blocks = -(-int8_blocks // SIGN_BLOCKS)
    used = int8_blocks % SIGN_BLOCKS
    return SignSource(tensor, False, channels, blocks, int8_blocks,
                      used * config.ic_lanes // SIGN_BLOCKS if used else None, 1 if beyond >= 0 else -1)


def _constant(layer: Conv, source: SignSource, config: NpuConfig) -> int:
    """``constant`` of ``dot = 2 * A - constant``."""
    # Of an odd number of bits without a channel one more than half equals its weight.
    return (config.binary_bits * source.blocks + source.channels % 2) * layer.weights[0, 0].size


def _on_unit(graph: Graph, layer: Conv, source: SignSource, config: NpuConfig) -> _OnUnit | None:
    """The layer as it requantises on the unit; None if the unit cannot run it, or gains nothing."""
    padding = pad_value(layer, graph.tensors[layer.input])
    padded = any(layer.pads)
    partial = source.channels % config.ic_lanes
    if source.blocks == source.int8_blocks or (source.fill is not None and not config.gather):
        return None
    if padded and padding not in (-1, 0, 1):
        return None
    if padded and padding == 0 and source.channels % 2:
        return None
    if padded and padding and partial and padding != source.beyond:
        return None
    stage = _unit_stage(layer.requantize, _constant(layer, source, config))
    if stage is None or (np.abs(stage.bias) + _constant(layer, source, config) >= 1 << config.acc_width - 1).any():
        return None
    return _OnUnit(layer, source, stage)


def _unit_stage(stage: Requantize, constant: int) -> Requantize | None:
    """What makes of ``A`` what ``stage`` makes of ``2 * A - constant``; None if nothing does.

    ``(2 * x * m + 2^(s-1)) >> s`` is ``(x * m + 2^(s-2)) >> (s-1)``.
    """
    bias = stage.bias - constant
    halved = stage.shift > MIN_SHIFT
    multiplier = np.where(halved, stage.multiplier, 2 * stage.multiplier)
    if (bias % 2).any() or (multiplier >= 1 << MULTIPLIER_BITS).any():
        return None
    return replace(stage, bias=bias // 2, multiplier=multiplier, shift=np.where(halved, stage.shift - 1, stage.shift))


def _passes(layer: Conv, source: SignSource, config: NpuConfig) -> Passes:
    """For each output tile one, of a beat for each entry, tap, group of lanes and lane."""
    outputs, _, height, width = layer.weights.shape
    beats = source.blocks * height * width * config.binary_groups * config.binary_rows
    return tuple((Pass(0, source.blocks, config.binary_groups, False, tile * beats, binary=True),)
                 for tile in range(-(-outputs // config.oc_lanes)))


def _pack(layer: Conv, source: SignSource, config: NpuConfig) -> np.ndarray:
    """A layer's weights for the unit: uint8 (beats, tn), as the passes have them."""
    outputs, channels, height, width = layer.weights.shape
    rows, bits, tm = config.binary_rows, config.binary_bits, config.oc_lanes
    tiles, taps = -(-outputs // tm), height * width
    padded = np.zeros((tiles * tm, source.blocks * bits, taps), np.uint8)
    padded[:outputs, :channels] = (layer.weights > 0).reshape(outputs, channels, taps)
    # Beyond the last channel of an int8 block the tensor's own values follow, then bits of no block, which are zeros.
    spare = np.zeros(source.blocks * bits - channels, np.uint8)
    spare[:-channels % config.ic_lanes] = source.beyond > 0
    spare[(len(spare) + 1) // 2:] ^= 1
    padded[:, channels:] = spare[:, None]
    lanes = padded.reshape(tiles, tm // rows, rows, source.blocks, bits, taps).transpose(0, 3, 5, 1, 2, 4)
    return np.packbits(np.ascontiguousarray(lanes), axis=-1, bitorder="little").reshape(-1, config.beat_bytes)


class _Cost(ConvCost):
    """On the unit, from int8 feature maps or maps of signs."""

    may_be_narrow = False
    signs: SignSource

    def load(self, window: Window) -> float:
        pixels, lanes = window.load_beats, self.config.pixel_lanes
        cycles = self.signs.int8_blocks * pixels / (lanes if self.signs.packed else 1)
        return cycles + (pixels / lanes if self.signs.fill is not None else 0)


@dataclass(frozen=True, eq=False, kw_only=True)
class BinaryMapping(ConvMapping):
    """A layer on the binary unit, whose sums are counts."""

    signs: SignSource

    @property
    def mode(self) -> str:
        return "binary"

    @classmethod
    def propose(cls, site: Site) -> "BinaryMapping | None":
        return site.survey.ask(BinaryLayers).mapped.get(site.layer.name)

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
        return PackedWeights(_pack(self.layer, self.signs, self.config), self.tiles)

    def region(self, geometry: Geometry, window: Window, blocks: range) -> Region:
        start, row_pitch = data_of(geometry, window)
        end = start + (window.data_rows - 1) * row_pitch + window.data_cols
        # Beats of a map are read as a whole.
        around = MAP_PIXELS if self.signs.packed else 0
        return Region(self.input, self.signs.entry_blocks(blocks.start, blocks.stop), (start - around, end + around))

    def load(self, emitter: Emitter, place: Placement, geometry: Geometry, window: Window, blocks: range, base: int,
             after: dict[Queue, int]) -> int:
        signs, config = self.signs, self.config
        padding = pad_value(self.layer, self.source) if any(self.layer.pads) else None
        low, high = signs.entry_blocks(blocks.start, blocks.stop)
        row_beats = place.row_beats
        # Of a layer that is one long row (`Geometry.of`) the tensor's rows follow each other without a gap.
        row, col = divmod(window.row * geometry.input_size[1] + window.col, place.shape[2])
        skip = geometry.row_skip * (row_beats if geometry.input_size[1] == place.shape[2] else 0)
        columns = window.pad_left + window.data_cols + window.pad_right
        shared = {
            "row_pitch": skip if window.data_rows > 1 else 0, "block_pitch": place.shape[1] * row_beats,
            "buf_row_pitch": window.row_pitch, "buf_block_pitch": window.entries, "pad_zero": int(padding == 0),
        }
        if signs.fill is not None and blocks.stop == signs.blocks:
            self._fill(emitter, signs.fill, window, base + (len(blocks) - 1) * window.entries, after)
        offset = place.offset + (low * place.shape[1] + row) * row_beats
        pixel = config.ic_lanes // MAP_PIXELS
        if signs.packed:
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

    def _fill(self, emitter: Emitter, used: int, window: Window, base: int, after: dict[Queue, int]) -> None:
        """Zero the bytes of a tile's last entries that no block comes to, from ``used`` on.

        A row's entries in all banks: which of them its columns are in depends on the stride.
        """
        emitter.set_load(
            {"cols": 1, "stride": 1, "buf_row_pitch": window.row_pitch},
            Opcode.LOAD_GATHER, {"outputs": window.row_pitch * self.config.banks,
                                 "length": self.config.beat_bytes - used, "place": used})
        rows = window.input_rows
        for first in range(0, rows, 2 * MAX_PAD_ROWS):
            count = min(rows - first, 2 * MAX_PAD_ROWS)
            emitter.emit(
                Opcode.LOAD_ACT, after=after, offset=0, buf_base=base + first * window.row_pitch, blocks=1, rows=0,
                pad_top=min(count, MAX_PAD_ROWS), pad_bottom=max(0, count - MAX_PAD_ROWS))
