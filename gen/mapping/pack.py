"""Weights and channel parameters as the machine reads them (docs/architecture.md, Computing and Storing).

A *block* of an output tile is one input block under all taps. Each block of each output tile gets as many steps
(``groups``) as its fullest row needs: dense blocks run without indices, blocks with few channels or few non-zeros with
them. Weights beyond ``weight_bits`` are split over several slots of the same index.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from cores.arch.numerics import MIN_SHIFT, PARAMETER_BYTES
from cores.config import NpuConfig
from gen.ir.graph import Conv, Graph, Layer, Requantize, is_binary

__all__ = ["PARAMETER_BEATS", "PackedWeights", "Pass", "is_narrow", "pack_conv", "pack_lanes",
           "pack_parameters", "prune", "prune_weights", "weight_parts"]

#: Beats of the parameters of one channel block: ``tn`` channels of PARAMETER_BYTES in beats of ``tn`` bytes.
PARAMETER_BEATS = PARAMETER_BYTES


@dataclass(frozen=True)
class Pass:
    """A run of input blocks that one COMPUTE can cover, and where its weights begin (beats from the layer's first).

    ``rows``: of a depthwise layer in windows, the kernel's rows of steps that it has; None for all.
    """

    block: int
    blocks: int
    groups: int
    indexed: bool
    offset: int
    rows: range | None = None
    #: The binary unit's: blocks have 8 * tn channels.
    binary: bool = False

    def step_beats(self, config: NpuConfig) -> int:
        """Beats of the weight ring that a step takes."""
        if self.binary:
            return config.binary_rows
        return config.weight_beats + (config.index_beats if self.indexed else 0)


@dataclass(frozen=True, eq=False)
class PackedWeights:
    """``data`` uint8 (beats, tn); ``tiles[o]`` the passes that make output channels ``o * tm`` and following."""

    data: np.ndarray
    tiles: tuple[tuple[Pass, ...], ...]


def is_narrow(layer: Conv, tile: int, config: NpuConfig) -> bool:
    """Whether an output tile has no more channels than one group of output lanes, so that the others can help it."""
    rest = layer.weights.shape[0] - tile * config.oc_lanes
    return bool(config.depthwise) and config.oc_groups > 1 and not layer.depthwise and rest <= config.ic_lanes


def _blocks_of_tile(layer: Conv, tile: int, config: NpuConfig) -> tuple[int, np.ndarray]:
    """First input block of an output tile, and its weights (blocks, taps, tm, tn) int16; zero where no channels are.

    All groups of output lanes have the weights of a narrow tile.
    """
    tm, tn = config.oc_lanes, config.ic_lanes
    weights = layer.weights[tile * tm:(tile + 1) * tm]
    rows, channels, kernel_h, kernel_w = weights.shape
    taps = kernel_h * kernel_w
    if layer.depthwise:
        blocks = -(-rows // tn)
        out = np.zeros((blocks, taps, tm, tn), np.int16)
        lane = np.arange(rows)
        out[lane // tn, :, lane, lane % tn] = weights.reshape(rows, taps)
        return tile * config.oc_groups, out
    blocks = -(-channels // tn)
    out = np.zeros((blocks, taps, tm, tn), np.int16)
    full = channels // tn
    flat = weights.reshape(rows, channels, taps)
    out[:full, :, :rows] = flat[:, :full * tn].reshape(rows, full, tn, taps).transpose(1, 3, 0, 2)
    if full < blocks:
        out[full, :, :rows, :channels - full * tn] = flat[:, full * tn:].transpose(2, 0, 1)
    if is_narrow(layer, tile, config):
        out = np.tile(out[:, :, :tn], (1, 1, config.oc_groups, 1))
    return 0, out


def _limits(config: NpuConfig) -> tuple[int, int]:
    """Least and largest weight of a lane."""
    half = 1 << config.weight_bits - 1
    return -half, half - 1


def weight_parts(weights: np.ndarray, config: NpuConfig) -> Iterator[np.ndarray]:
    """Arrays within a lane's limits that add up to ``weights``: one where those are, up to three otherwise."""
    rest = weights
    while True:
        part = np.clip(rest, *_limits(config))
        yield part
        rest = rest - part
        if not rest.any():
            return


def pack_lanes(steps: np.ndarray, config: NpuConfig) -> np.ndarray:
    """Weights (..., oc_lanes * nnz_lanes) of steps as their beats: uint8 (..., bytes)."""
    if config.weight_bits == 8:
        return np.ascontiguousarray(steps.astype(np.int8)).view(np.uint8)
    words = np.ascontiguousarray(steps.astype("<i2"))[..., None].view(np.uint8)
    bits = np.unpackbits(words, axis=-1, bitorder="little", count=config.weight_bits)
    packed = np.packbits(bits.reshape(*steps.shape[:-1], -1), axis=-1, bitorder="little")
    out = np.zeros((*steps.shape[:-1], config.weight_beats * config.beat_bytes), np.uint8)
    out[..., :packed.shape[-1]] = packed
    return out


def _slots(weights: np.ndarray, config: NpuConfig) -> np.ndarray:
    """Slots that each weight takes: 0, or as many as it has parts."""
    low, high = _limits(config)
    slots = (weights != 0).astype(np.int16)
    slots += (weights > high) | (weights < low)
    slots += (weights > 2 * high) | (weights < 2 * low)
    return slots


def _groups_needed(weights: np.ndarray, config: NpuConfig) -> np.ndarray:
    """Steps that each block (axis 0 of (blocks, taps, tm, tn)) needs with indices; 0 for a block of zeros."""
    windows = config.ic_lanes // config.select_fanin
    lanes = config.nnz_lanes // windows
    counts = _slots(weights, config).reshape(len(weights), -1, config.select_fanin).sum(2, dtype=np.int16).max(1)
    return -(-counts // lanes)


def _dense_steps(weights: np.ndarray, config: NpuConfig) -> np.ndarray:
    """Steps without indices: uint8 (blocks, taps, groups, bytes); step n, lane j is channel ``j * tn/dn + n``."""
    blocks, taps, tm, _ = weights.shape
    split = np.clip(weights, *_limits(config)).reshape(blocks, taps, tm, config.nnz_lanes, config.groups_dense)
    return pack_lanes(split.transpose(0, 1, 4, 2, 3).reshape(blocks, taps, config.groups_dense, -1), config)


def _indexed_steps(weights: np.ndarray, groups: int, config: NpuConfig) -> np.ndarray:
    """Steps with indices: uint8 (blocks, taps, groups, bytes), weights then indices.

    Every window of ``select_fanin`` channels fills the lanes that can reach it, in channel order; spare slots are zero.
    """
    blocks, taps, tm, tn = weights.shape
    fanin, dn = config.select_fanin, config.nnz_lanes
    windows = tn // fanin
    lanes = dn // windows
    rows = blocks * taps * tm * windows
    values = np.concatenate([part.reshape(rows, fanin) for part in weight_parts(weights, config)], axis=1)
    row, column = np.nonzero(values)
    starts = np.searchsorted(row, np.arange(rows))
    rank = np.arange(len(row)) - starts[row]
    slot_values = np.zeros((rows, groups * lanes), np.int16)
    slot_index = np.zeros((rows, groups * lanes), np.uint8)
    slot_values[row, rank] = values[row, column]
    slot_index[row, rank] = column % fanin

    def by_step(slots: np.ndarray) -> np.ndarray:
        split = slots.reshape(blocks, taps, tm, windows, groups, lanes)
        return np.ascontiguousarray(split.transpose(0, 1, 4, 2, 3, 5)).reshape(blocks, taps, groups, tm * dn)

    indices = by_step(slot_index)
    # Not by `count`, which cannot be 0.
    bits = np.unpackbits(indices[..., None], axis=-1, bitorder="little")[..., :config.index_bits]
    packed = np.packbits(bits.reshape(blocks, taps, groups, tm * dn * config.index_bits), axis=-1, bitorder="little")
    padding = np.zeros((blocks, taps, groups, config.index_beats * config.beat_bytes - packed.shape[-1]), np.uint8)
    return np.concatenate([pack_lanes(by_step(slot_values), config), packed, padding], axis=-1)


def _runs(keys: np.ndarray) -> Iterator[tuple[int, int]]:
    """(first, length) of the runs of equal values of a vector."""
    edges = np.flatnonzero(np.diff(keys)) + 1
    starts = [0, *edges.tolist()]
    for start, end in zip(starts, [*edges.tolist(), len(keys)], strict=True):
        yield start, end - start


def pack_conv(layer: Conv, config: NpuConfig) -> PackedWeights:
    """Pack a layer's weights in the order in which COMPUTEs consume them.

    For each output tile and block the cheaper of two forms is taken: all channels without indices (and, where weights
    exceed ``weight_bits``, an indexed pass with the excess), or only the non-zeros with indices.
    """
    tm = config.oc_lanes
    chunks: list[np.ndarray] = []
    tiles: list[tuple[Pass, ...]] = []
    offset = 0
    for tile in range(-(-layer.weights.shape[0] // tm)):
        first, weights = _blocks_of_tile(layer, tile, config)
        needed = _groups_needed(weights, config)
        excess = weights - np.clip(weights, *_limits(config))
        extra = _groups_needed(excess, config) if excess.any() else np.zeros_like(needed)
        if not needed.any():
            needed[0] = 1  # a tile of zeros still has to clear its accumulators
        dense = needed >= config.groups_dense + extra
        passes: list[Pass] = []

        def add(start: int, count: int, groups: int, indexed: bool, steps: np.ndarray,
                passes: list[Pass] = passes, first: int = first) -> None:
            nonlocal offset
            passes.append(Pass(first + start, count, groups, indexed, offset))
            chunks.append(steps.reshape(-1, config.beat_bytes))
            offset += len(chunks[-1])

        for start, count in _runs(np.where(dense, 0, needed + 1)):
            part = weights[start:start + count]
            if dense[start]:
                add(start, count, config.groups_dense, False, _dense_steps(part, config))
            elif needed[start]:
                groups = int(needed[start])
                add(start, count, groups, True, _indexed_steps(part, groups, config))
        for start, count in _runs(np.where(dense, extra, 0)):
            if dense[start] and extra[start]:
                groups = int(extra[start])
                add(start, count, groups, True, _indexed_steps(excess[start:start + count], groups, config))
        tiles.append(tuple(passes))
    return PackedWeights(np.concatenate(chunks), tuple(tiles))


def pack_parameters(requantize: Requantize, config: NpuConfig) -> np.ndarray:
    """Channel parameters: uint8 (blocks * PARAMETER_BEATS, tn). Channels beyond the last have multiplier 0."""
    channels, tn = len(requantize.bias), config.ic_lanes
    words = np.zeros((-(-channels // tn) * tn, 2), "<u4")
    words[:, 1] = MIN_SHIFT << 24
    words[:channels, 0] = requantize.bias.astype(np.int32).view(np.uint32)
    words[:channels, 1] = requantize.multiplier.astype(np.uint32) | requantize.shift.astype(np.uint32) << 24
    return words.view(np.uint8).reshape(-1, config.beat_bytes)


def prune_weights(weights: np.ndarray, groups: int, config: NpuConfig) -> np.ndarray:
    """Keep the largest weights of every window that fit ``groups`` steps; blocks of few channels are left alone."""
    oc, ic, *kernel = weights.shape
    fanin = config.select_fanin
    keep = groups * config.nnz_lanes * fanin // config.ic_lanes
    if keep >= fanin:
        return weights
    small = ic % config.ic_lanes
    pruned_channels = ic - small if small <= config.nnz_lanes else ic
    channels_end = -(-pruned_channels // fanin) * fanin
    result = weights.copy()
    # A hundred channels at a time: the arrays between are several times the weights.
    for start in range(0, oc, 128):
        part = weights[start:start + 128, :pruned_channels]
        padded = np.zeros((len(part), channels_end, *kernel), np.int16)
        padded[:, :pruned_channels] = part
        # Windows last, in (oc, window, taps, channel) order. Keys are unique: of equal weights the lower channels stay.
        windows = padded.reshape(len(part), -1, fanin, kernel[0] * kernel[1]).transpose(0, 1, 3, 2)
        keys = np.abs(windows) * np.int16(fanin) + np.arange(fanin - 1, -1, -1, dtype=np.int16)
        threshold = np.partition(keys, fanin - keep, axis=-1)[..., fanin - keep, None]
        kept = np.where(keys >= threshold, windows, 0).transpose(0, 1, 3, 2)
        result[start:start + 128, :pruned_channels] = kept.reshape(padded.shape)[:, :pruned_channels]
    return result


def prune(graph: Graph, config: NpuConfig, density: float) -> Graph:
    """The graph with its convolutions pruned by magnitude to ``density`` of each block; biases follow the weights.

    Layers that read a model input, depthwise and binary layers stay. Raises ValueError unless ``0 < density <= 1``.
    """
    if not 0 < density <= 1:
        raise ValueError(f"density must be above 0 and at most 1, not {density}")
    groups = max(1, round(density * config.groups_dense))
    entrances = {tensor for tensor, _ in graph.inputs.values()}

    def pruned(layer: Layer) -> Layer:
        if not isinstance(layer, Conv) or layer.depthwise or layer.input in entrances:
            return layer
        if is_binary(layer, graph.tensors[layer.input]):
            return layer
        weights = prune_weights(layer.weights, groups, config)
        removed = layer.weights.sum(axis=(1, 2, 3), dtype=np.int64) - weights.sum(axis=(1, 2, 3), dtype=np.int64)
        # The bias holds -zero_point * sum(weights) of the weights that are there.
        bias = layer.requantize.bias + graph.tensors[layer.input].zero_point * removed
        return replace(layer, weights=weights, requantize=replace(layer.requantize, bias=bias))

    return replace(graph, layers=tuple(pruned(layer) for layer in graph.layers))
