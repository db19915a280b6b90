"""Weights as the machine reads them (docs/architecture.md, Computing).

A *block* of an output tile is one input block under all taps. Each block of each output tile gets as many steps
(``groups``) as its fullest row needs: dense blocks run without indices, blocks with few channels or few non-zeros with
them. If the machine has such steps (`cores.config.units.int4`), weights have four bits in the dense blocks of a tile,
or in the others, where none of these is beyond -8..7. Weights beyond ``weight_bits`` are split over several slots of
the same index.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from cores.arch.isa import StepKind
from cores.config import NpuConfig
from cores.config.units.int4 import INT4_BITS
from gen.ir.graph import Conv
from gen.tiling.weights import ReductionSlice, TileSlices

__all__ = ["is_pruned", "is_spread", "pack", "pack_lanes", "slices_of", "steps_of", "weight_parts"]


def is_spread(layer: Conv, tile: int, config: NpuConfig) -> bool:
    """Whether an output tile has no more channels than a group of output lanes, so that others can help (SPREAD)."""
    rest = layer.weights.shape[0] - tile * config.oc_lanes
    return bool(config.depthwise) and config.oc_groups > 1 and not layer.depthwise and rest <= config.ic_lanes


def _blocks_of_tile(layer: Conv, tile: int, config: NpuConfig, narrow: bool) -> tuple[int, np.ndarray]:
    """First input block of an output tile, and its weights (blocks, taps, tm, tn) int16; zero where no channels are.

    All groups of output lanes have the weights of a spread tile.
    """
    tm, tn = config.oc_lanes, config.ic_lanes
    together = tn if narrow else tm
    weights = layer.weights[tile * together:(tile + 1) * together]
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
    if narrow or is_spread(layer, tile, config):
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


def _pack_int4(steps: np.ndarray) -> np.ndarray:
    """The same of weights of four bits: two to a byte, the first one low."""
    nibbles = steps.astype(np.uint8) & (1 << INT4_BITS) - 1
    return nibbles[..., ::2] | nibbles[..., 1::2] << INT4_BITS


def _slots(weights: np.ndarray, config: NpuConfig) -> np.ndarray:
    """Slots that each weight takes: 0, or as many as it has parts."""
    low, high = _limits(config)
    slots = (weights != 0).astype(np.int16)
    slots += (weights > high) | (weights < low)
    slots += (weights > 2 * high) | (weights < 2 * low)
    return slots


def _groups_needed(weights: np.ndarray, config: NpuConfig) -> np.ndarray:
    """Steps that each block (axis 0 of (blocks, taps, tm, tn)) needs with indices; 0 for a block of zeros."""
    spatial_tiles = config.ic_lanes // config.select_fanin
    lanes = config.nnz_lanes // spatial_tiles
    counts = _slots(weights, config).reshape(len(weights), -1, config.select_fanin).sum(2, dtype=np.int16).max(1)
    return -(-counts // lanes)


def _pack_weights(steps: np.ndarray, config: NpuConfig, kind: StepKind) -> np.ndarray:
    """Weights (..., oc_lanes * nnz_lanes) of steps of a kind as their beats: uint8 (..., bytes)."""
    return _pack_int4(steps) if kind.is_int4 else pack_lanes(steps, config)


def _dense_steps(weights: np.ndarray, config: NpuConfig, kind: StepKind) -> np.ndarray:
    """Steps without indices: uint8 (blocks, taps, groups, bytes); step n, lane j is channel ``j * tn/dn + n``."""
    blocks, taps, tm, _ = weights.shape
    split = np.clip(weights, *_limits(config)).reshape(blocks, taps, tm, config.nnz_lanes, config.groups_dense)
    steps = split.transpose(0, 1, 4, 2, 3).reshape(blocks, taps, config.groups_dense, -1)
    return _pack_weights(steps, config, kind)


def _indexed_steps(weights: np.ndarray, groups: int, config: NpuConfig, kind: StepKind) -> np.ndarray:
    """Steps with indices: uint8 (blocks, taps, groups, bytes), indices then weights.

    Every window of ``select_fanin`` channels fills the lanes that can reach it, in channel order; spare slots are zero.
    """
    blocks, taps, tm, tn = weights.shape
    fanin, dn = config.select_fanin, config.nnz_lanes
    spatial_tiles = tn // fanin
    lanes = dn // spatial_tiles
    rows = blocks * taps * tm * spatial_tiles
    values = np.concatenate([part.reshape(rows, fanin) for part in weight_parts(weights, config)], axis=1)
    row, column = np.nonzero(values)
    starts = np.searchsorted(row, np.arange(rows))
    rank = np.arange(len(row)) - starts[row]
    slot_values = np.zeros((rows, groups * lanes), np.int16)
    slot_index = np.zeros((rows, groups * lanes), np.uint8)
    slot_values[row, rank] = values[row, column]
    slot_index[row, rank] = column % fanin

    def by_step(slots: np.ndarray) -> np.ndarray:
        split = slots.reshape(blocks, taps, tm, spatial_tiles, groups, lanes)
        return np.ascontiguousarray(split.transpose(0, 1, 4, 2, 3, 5)).reshape(blocks, taps, groups, tm * dn)

    indices = by_step(slot_index)
    # Not by `count`, which cannot be 0.
    bits = np.unpackbits(indices[..., None], axis=-1, bitorder="little")[..., :config.index_bits]
    packed = np.packbits(bits.reshape(blocks, taps, groups, tm * dn * config.index_bits), axis=-1, bitorder="little")
    padding = np.zeros((blocks, taps, groups, config.index_beats * config.beat_bytes - packed.shape[-1]), np.uint8)
    return np.concatenate([packed, padding, _pack_weights(by_step(slot_values), config, kind)], axis=-1)


def _runs(keys: np.ndarray) -> Iterator[tuple[int, int]]:
    """(first, length) of the runs of equal values of a vector."""
    edges = np.flatnonzero(np.diff(keys)) + 1
    starts = [0, *edges.tolist()]
    for start, end in zip(starts, [*edges.tolist(), len(keys)], strict=True):
        yield start, end - start


def slices_of(layer: Conv, config: NpuConfig, *, narrow: bool = False) -> TileSlices:
    """The reduction slices of a layer's output tiles, whose weights follow each other in that order.

    ``narrow``: each channel block of the output is a tile, which is spread; otherwise as many as the output lanes have.
    For each output tile and block the cheaper of two forms is taken: all channels without indices (and, where weights
    exceed ``weight_bits``, an indexed slice with the excess), or only the non-zeros with indices.
    """
    tiles: list[tuple[ReductionSlice, ...]] = []
    taps = layer.weights[0, 0].size
    offset = 0
    for tile in range(-(-layer.weights.shape[0] // (config.ic_lanes if narrow else config.oc_lanes))):
        first, weights = _blocks_of_tile(layer, tile, config, narrow)
        needed = _groups_needed(weights, config)
        excess = _excess(weights, config)
        extra = np.zeros_like(needed) if excess is None else _groups_needed(excess, config)
        if not needed.any():
            needed[0] = 1  # a tile of zeros still has to clear its accumulators
        dense = needed >= config.groups_dense + extra
        whole = StepKind.INT4 if config.int4 and _are_int4(weights[dense]) else StepKind.DENSE
        chosen = StepKind.INT4_INDEXED if config.int4 and _are_int4(weights[~dense]) else StepKind.INDEXED
        slices: list[ReductionSlice] = []
        # -1 stands for a dense block, 0 for one without weights; after them comes what dense blocks leave over.
        for keys, some in ((np.where(dense, -1, needed), chosen), (np.where(dense, extra, 0), StepKind.INDEXED)):
            for start, count in _runs(keys):
                if keys[start]:
                    indexed = bool(keys[start] > 0)
                    groups = int(keys[start]) if indexed else config.groups_dense
                    kind = some if indexed else whole
                    slices.append(ReductionSlice(first + start, count, groups, kind, offset))
                    offset += count * taps * groups * slices[-1].step_beats(config)
        tiles.append(tuple(slices))
    return tuple(tiles)


def pack(layer: Conv, tiles: TileSlices, config: NpuConfig, *, narrow: bool = False) -> np.ndarray:
    """A layer's weights as its slices (`slices_of`, of the same ``narrow``) take them: uint8 (beats, tn)."""
    chunks: list[np.ndarray] = []
    for tile, slices in enumerate(tiles):
        first, weights = _blocks_of_tile(layer, tile, config, narrow)
        excess = _excess(weights, config)
        whole = {block for reduction in slices if not reduction.kind.has_indices
                 for block in range(reduction.block, reduction.block + reduction.blocks)}
        for reduction in slices:
            blocks = slice(reduction.block - first, reduction.block - first + reduction.blocks)
            if not reduction.kind.has_indices:
                steps = _dense_steps(weights[blocks], config, reduction.kind)
            else:
                rest = excess if excess is not None and reduction.block in whole else weights
                steps = _indexed_steps(rest[blocks], reduction.groups, config, reduction.kind)
            chunks.append(steps.reshape(-1, config.beat_bytes))
    return np.concatenate(chunks)


def _are_int4(weights: np.ndarray) -> bool:
    half = 1 << INT4_BITS - 1
    return bool(weights.min(initial=0) >= -half and weights.max(initial=0) < half)


def is_pruned(layer: Conv, tiles: TileSlices, config: NpuConfig, *, narrow: bool = False) -> bool:
    """Whether slices of a layer (`slices_of`, of the same ``narrow``) take fewer steps than if all of its weights were
    there: those within its groups, and of channels that it has any of.
    """
    if layer.groups > 1 or layer.counted is not None:
        outputs, inputs = layer.weights.shape[:2]
        read = layer.weights.reshape(layer.groups, -1, inputs, layer.weights[0, 0].size).any(axis=(1, 3))
        within = read.repeat(outputs // layer.groups, axis=0).astype(np.int16)
        full = steps_of(slices_of(replace(layer, weights=within[:, :, None, None]), config, narrow=narrow))
    else:
        whole, rest = divmod(layer.weights.shape[1], config.ic_lanes)
        full = len(tiles) * (whole * config.groups_dense + -(-rest // config.nnz_lanes))
    return steps_of(tiles) < full


def steps_of(tiles: TileSlices) -> int:
    """Steps of a tap, in all output tiles."""
    return sum(reduction.blocks * reduction.groups for tile in tiles for reduction in tile)


def steps_on(config: NpuConfig) -> Callable[..., int]:
    """`steps_of` the `slices_of` a layer on a machine: layer, ``narrow`` -> steps."""
    return lambda layer, *, narrow=False: steps_of(slices_of(layer, config, narrow=narrow))


def _excess(weights: np.ndarray, config: NpuConfig) -> np.ndarray | None:
    """What a lane has no room for; None if that is nothing."""
    low, high = _limits(config)
    if weights.min(initial=0) >= low and weights.max(initial=0) <= high:
        return None
    return weights - np.clip(weights, low, high)
