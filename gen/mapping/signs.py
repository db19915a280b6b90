"""Entries of signs: where a layer on the binary unit finds its input, how its taps share entries, its packed weights.

An entry has room for the signs of eight int8 blocks. A layer of four blocks at most can have two neighbouring pixels in
an entry, so that one step of the unit does two taps of a row of the kernel. Such a layer has one column of taps. Its
input blocks are pairs of the kernel's columns, and the last column by itself where their number is odd.
"""

from dataclasses import dataclass, fields, replace

import numpy as np

from cores.arch.isa import StepKind
from cores.arch.numerics import SIGN_BLOCKS
from cores.config import NpuConfig
from gen.ir.graph import Conv
from gen.tiling.geometry import Geometry, SpatialTile, input_range
from gen.tiling.weights import ReductionSlice, TileSlices

__all__ = ["Columns", "PairGeometry", "SignSource", "constant_of", "pack_weights", "slices_of_signs"]


@dataclass(frozen=True)
class SignSource:
    """Where a layer on the unit finds its input's signs.

    ``tensor``: in memory, packed bits if ``packed``, else int8. ``channels`` of ``int8_blocks`` are there.
    """

    tensor: str
    packed: bool
    channels: int
    int8_blocks: int
    #: What the channels beyond the last have in the tensor: +1 or -1.
    beyond: int
    #: Columns of the kernel that are taken in pairs; 0: each tap has entries of its own.
    columns: int = 0

    @property
    def blocks(self) -> int:
        """Input blocks of a tile: entries of a tap, or of a row of taps."""
        return -(-self.columns // 2) if self.columns else -(-self.int8_blocks // SIGN_BLOCKS)

    @property
    def may_pair(self) -> bool:
        """Whether an entry has room for two pixels."""
        return 2 * self.int8_blocks <= SIGN_BLOCKS

    def is_pair(self, block: int) -> bool:
        return 2 * block + 1 < self.columns

    def fill(self, block: int, config: NpuConfig) -> int | None:
        """Byte of the entries of an input block from which on no load of signs writes; None if they fill it."""
        if not self.columns and block < self.blocks - 1:
            return None
        used = self.int8_blocks * (2 if self.is_pair(block) else 1)
        return used % SIGN_BLOCKS * config.sign_bytes or None

    def int8_range(self, blocks: range) -> tuple[int, int]:
        """The int8 blocks of input blocks, which are several only where all of them are loaded alike."""
        if self.columns:
            return 0, self.int8_blocks
        return SIGN_BLOCKS * blocks.start, min(SIGN_BLOCKS * blocks.stop, self.int8_blocks)

    def loads(self, blocks: range) -> list[range]:
        """Input blocks that one load brings."""
        return [range(block, block + 1) for block in blocks] if self.columns else [blocks]


@dataclass(frozen=True)
class Columns:
    """Columns of a tile's input: the first that holds data, how many do, padding before and after them."""

    col: int
    data: int
    left: int
    right: int

    @property
    def width(self) -> int:
        return self.left + self.data + self.right

    @classmethod
    def of(cls, geometry: Geometry, spatial: SpatialTile, block: int) -> "Columns":
        """Those that an input block has."""
        if isinstance(geometry, PairGeometry):
            return geometry.part(spatial, block)
        return cls(spatial.col, spatial.data_cols, spatial.pad_left, spatial.pad_right)


@dataclass(frozen=True)
class PairGeometry(Geometry):
    """The loops of a layer whose taps are taken in pairs: one column of them; ``columns`` are the kernel's."""

    columns: int = 0

    @classmethod
    def of_pairs(cls, geometry: Geometry) -> "PairGeometry":
        own = {field.name: getattr(geometry, field.name) for field in fields(Geometry)}
        return cls(**{**own, "kernel": (geometry.kernel[0], 1)}, columns=geometry.kernel[1])

    def part(self, spatial: SpatialTile, block: int) -> Columns:
        """Columns of a tile's input that input block ``block`` has."""
        first, width = 2 * block, min(2, self.columns - 2 * block)
        return self._columns(spatial.x, spatial.cols, first, width)

    def _columns(self, x: int, cols: int, first: int, width: int) -> Columns:
        """What ``width`` columns of the kernel from ``first`` on see."""
        start = x * self.stride[1] - self.pads[1] + first
        return Columns(*input_range(start, (cols - 1) * self.stride[1] + width, self.input_size[1]))

    def spatial_tile(self, y: int, rows: int, x: int, cols: int, config: NpuConfig) -> SpatialTile:
        seen = self._columns(x, cols, 0, self.columns)
        return replace(super().spatial_tile(y, rows, x, cols, config), col=seen.col, data_cols=seen.data,
                       pad_left=seen.left, pad_right=seen.right)

    def loads(self, spatial: SpatialTile) -> bool:
        # A load has a column of data at least.
        return super().loads(spatial) and all(self.part(spatial, block).data for block in range(-(-self.columns // 2)))


def constant_of(layer: Conv, source: SignSource, config: NpuConfig) -> int:
    """``constant`` of ``dot = 2 * A - constant``, the sum of products of signs, where A is what the unit counts."""
    taps = layer.weights[0, 0].size
    rows = layer.weights.shape[2] if source.columns else taps
    # Of an odd number of bits without a channel one more than half equals its weight.
    return config.binary_bits * source.blocks * rows + source.channels % 2 * taps


def slices_of_signs(layer: Conv, source: SignSource, config: NpuConfig) -> TileSlices:
    """For each output tile one, of a beat for each input block, tap, group of lanes and lane."""
    outputs, _, height, width = layer.weights.shape
    taps = height if source.columns else height * width
    beats = source.blocks * taps * config.binary_groups * config.binary_rows
    return tuple((ReductionSlice(0, source.blocks, config.binary_groups, StepKind.BINARY, tile * beats),)
                 for tile in range(-(-outputs // config.oc_lanes)))


def _spare(source: SignSource, bits: int, config: NpuConfig) -> np.ndarray:
    """Weights of those of ``bits`` bits that no channel has: half of them equal what is there.

    Beyond the last channel of an int8 block the tensor's own values follow, then bits of no block, which are zeros.
    """
    spare = np.zeros(bits - source.channels, np.uint8)
    spare[:-source.channels % config.ic_lanes] = source.beyond > 0
    spare[(len(spare) + 1) // 2:] ^= 1
    return spare


def _with_spare(weights: np.ndarray, source: SignSource, bits: int, config: NpuConfig) -> np.ndarray:
    """Bits of channels (..., channels), and after them those of no channel: (..., bits)."""
    spare = np.broadcast_to(_spare(source, bits, config), (*weights.shape[:-1], bits - source.channels))
    return np.concatenate([weights, spare], axis=-1)


def pack_weights(layer: Conv, source: SignSource, config: NpuConfig) -> np.ndarray:
    """A layer's weights for the unit: uint8 (beats, tn), as the slices have them."""
    outputs, _, height, width = layer.weights.shape
    rows, bits, tm = config.binary_rows, config.binary_bits, config.oc_lanes
    tiles = -(-outputs // tm)
    signs = np.zeros((tiles * tm, source.channels, height, width), np.uint8)
    signs[:outputs] = layer.weights > 0
    signs = signs.transpose(0, 2, 3, 1)
    if source.columns:
        # (outputs, height, bits) of each input block; of a pair both pixels' int8 blocks take turns.
        entries = []
        for block in range(source.blocks):
            first = signs[:, :, 2 * block]
            if source.is_pair(block):
                halves = [_with_spare(taps, source, bits // 2, config).reshape(
                    *taps.shape[:2], SIGN_BLOCKS // 2, config.ic_lanes) for taps in (first, signs[:, :, 2 * block + 1])]
                entries.append(np.stack(halves, axis=-2).reshape(*first.shape[:2], bits))
            else:
                entries.append(_with_spare(first, source, bits, config))
        padded = np.stack(entries, axis=1)
    else:
        whole = _with_spare(signs.reshape(tiles * tm, height * width, source.channels), source, source.blocks * bits,
                            config)
        padded = whole.reshape(tiles * tm, height * width, source.blocks, bits).transpose(0, 2, 1, 3)
    # Output, input block, tap, bit.
    lanes = padded.reshape(tiles, tm // rows, rows, source.blocks, -1, bits).transpose(0, 3, 4, 1, 2, 5)
    return np.packbits(np.ascontiguousarray(lanes), axis=-1, bitorder="little").reshape(-1, config.beat_bytes)
