"""Which layers the binary unit runs, where they find the signs of their input, and their packed weights.

The unit counts equal bits, ``A`` of them, where the layer's sum is ``dot = 2 * A - constant``; `_unit_stage` puts that
into bias, multiplier and shift without changing a result. Bits without a channel are known on both sides, and one half
of them equals its weight, so that they cancel, and so does the padding that counts as half of an entry.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from cores.arch.numerics import MIN_SHIFT, MULTIPLIER_BITS, SIGN_BLOCKS
from cores.config import NpuConfig
from gen.ir.graph import Conv, Graph, Requantize, is_binary, pad_value
from gen.ir.queries import count_readers, only_signs
from gen.mapping.pack import PackedWeights, Pass
from sim.golden import requantize, residual_add

__all__ = ["BinaryLayers", "SignSource", "pack_binary"]


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
class BinaryLayers:
    """The layers of ``graph`` (without the copies that the unit saves) that run on the unit, by name.

    ``maps``: tensors that are stored as maps of signs. ``layers``, here and in ``graph``, have the unit's
    requantisation, and as their input the tensor whose signs they take.
    """

    graph: Graph
    sources: Mapping[str, SignSource]
    layers: Mapping[str, Conv]
    maps: frozenset[str]

    @classmethod
    def choose(cls, graph: Graph, config: NpuConfig, refused: Collection[str] = ()) -> "BinaryLayers":
        """The layers that the unit can run, but for those ``refused``."""
        if not config.binary_rows:
            return cls(graph, {}, {}, frozenset())
        beyond = _beyond(graph)
        makers = {layer.output: layer for layer in graph.layers}
        readers = count_readers(graph)
        sources: dict[str, SignSource] = {}
        layers: dict[str, Conv] = {}
        for layer in graph.layers:
            if not isinstance(layer, Conv) or layer.name in refused or not is_binary(layer, graph.tensors[layer.input]):
                continue
            maker = makers[layer.input]
            # Signs of an int8 tensor as it is are taken from there.
            tensor = maker.input if only_signs(maker) else layer.input
            source = _source(graph, layer, tensor, beyond[tensor], config)
            adapted = _on_unit(graph, layer, source, config)
            if adapted is not None:
                sources[layer.name], layers[layer.name] = source, adapted
        spared = {layer.output for layer in graph.layers
                  if only_signs(layer) and readers[layer.output] == _reading(graph, layer.output, layers)}
        inputs = {tensor for tensor, _ in graph.inputs.values()}
        maps = frozenset(
            name for name, tensor in graph.tensors.items()
            if config.gather and tensor.signs and name not in inputs | spared
            and readers[name] == _reading(graph, name, {n: x for n, x in layers.items() if x.stride[1] == 1
                                                        and sources[n].tensor == name}))
        sources = {name: replace(source, packed=source.tensor in maps) for name, source in sources.items()}
        kept = tuple(layers.get(layer.name, layer) for layer in graph.layers if layer.output not in spared)
        return cls(replace(graph, layers=kept), sources, layers, maps)


def _reading(graph: Graph, tensor: str, layers: Collection[str]) -> int:
    """How many of ``layers`` read a tensor."""
    return sum(layer.input == tensor and layer.name in layers for layer in graph.layers)


def _beyond(graph: Graph) -> dict[str, int]:
    """What each tensor in memory has in the channels beyond its last: their multiplier is zero."""
    values = {tensor: 0 for tensor, _ in graph.inputs.values()}

    def single(number: int) -> np.ndarray:
        return np.full((1, 1, 1), number)

    for layer in graph.layers:
        first, second = layer.requantize, layer.residual
        value = requantize(single(0), single(0)[0, 0], single(0)[0, 0], single(MIN_SHIFT)[0, 0], first.zero_point,
                           first.low, first.high)
        if second:
            value = residual_add(value, single(values[second.other]), second.multiplier_a, second.multiplier_b,
                                 second.constant, second.shift, second.zero_point, second.low, second.high)
        values[layer.output] = int(value.flat[0])
    return values


def _source(graph: Graph, layer: Conv, tensor: str, beyond: int, config: NpuConfig) -> SignSource:
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


def _on_unit(graph: Graph, layer: Conv, source: SignSource, config: NpuConfig) -> Conv | None:
    """The layer as it reads and requantises on the unit; None if the unit cannot run it, or gains nothing."""
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
    return replace(layer, input=source.tensor, pad_value=padding, requantize=stage)


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


def pack_binary(layer: Conv, source: SignSource, config: NpuConfig) -> PackedWeights:
    """Pack a layer's weights for the unit: for each output tile, entry, tap and group of lanes a beat for each lane."""
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
    data = np.packbits(np.ascontiguousarray(lanes), axis=-1, bitorder="little").reshape(-1, config.beat_bytes)
    beats = len(data) // tiles
    return PackedWeights(data, tuple(
        (Pass(0, source.blocks, config.binary_groups, False, tile * beats, binary=True),) for tile in range(tiles)))
