"""Matrix products over more pixels than a kernel can have, as 1x1 convolutions.

A kernel that covers its input has one output. Blocks and pixels of such a tensor lie one after the other in memory, so
each pixel of a block is a block of a tensor of one pixel: no window is needed, however many there are.
"""

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from cores.config import NpuConfig
from gen.ir.graph import Conv
from gen.ir.tensor import Tensor
from gen.lowering.mapped import TensorSlice
from gen.mapping.base import LayerContext
from gen.mapping.pack import pack, slices_of
from gen.mapping.plain import ConvCost, ConvMapping, plan_conv
from gen.tiling.geometry import MAX_KERNEL, Geometry, SpatialTile
from gen.tiling.weights import PackedWeights

__all__ = ["MatrixMapping"]

#: Weights with the lanes that no channel has, for memory.
_MAX_WEIGHTS = 1 << 28


def _as_channels(layer: Conv, config: NpuConfig) -> Conv:
    """The layer as a 1x1 convolution: its channels are block, pixel, channel in the block."""
    outputs, channels, height, width = layer.weights.shape
    blocks, tn = -(-channels // config.ic_lanes), config.ic_lanes
    weights = np.zeros((outputs, blocks * tn, height * width), np.int16)
    weights[:, :channels] = layer.weights.reshape(outputs, channels, -1)
    weights = weights.reshape(outputs, blocks, tn, -1).transpose(0, 1, 3, 2).reshape(outputs, -1, 1, 1)
    return replace(layer, weights=np.ascontiguousarray(weights), stride=(1, 1))


def _covers(layer: Conv, source: Tensor) -> bool:
    """Whether a layer has one window, which is its input."""
    return not layer.depthwise and layer.weights.shape[2:] == source.shape[1:] and not any(layer.pads)


@dataclass(frozen=True, eq=False, kw_only=True)
class MatrixMapping(ConvMapping):
    """The layer as a 1x1 convolution of the pixels of its input's blocks; for those that have no other way.

    As it is taken wherever it is proposed, weights are packed at once: in this form they may be 512 MiB.
    """

    modes = {"matrix": "fully connected, the pixels as channels"}

    packed: PackedWeights

    @property
    def mode(self) -> str:
        return "matrix"

    @classmethod
    def propose(cls, context: LayerContext[Conv]) -> "MatrixMapping | None":
        layer, config, source = context.layer, context.config, context.source
        if (not layer.is_exact or source.signs or context.packed_out or not _covers(layer, source)
                or max(source.shape[1:]) <= MAX_KERNEL):
            return None
        blocks = -(-source.shape[0] // config.ic_lanes) * prod(source.shape[1:])
        if blocks * config.ic_lanes * len(layer.weights) > _MAX_WEIGHTS:
            return None
        form = _as_channels(context.fitted, config)
        tiles = slices_of(form, config)
        geometry = Geometry((1, 1), (1, 1), (0, 0, 0, 0), (1, 1), (1, 1), repeats=layer.repeats)
        plan = plan_conv(layer.name, ConvCost(form, tiles, geometry, config, input_blocks=blocks))
        return cls.at(context, plan, tiles=tiles, packed=PackedWeights(pack(form, tiles, config), tiles))

    @property
    def input_blocks(self) -> int:
        return -(-self.source.shape[0] // self.config.ic_lanes) * prod(self.source.shape[1:])

    @property
    def weights(self) -> PackedWeights:
        return self.packed

    def loaded_slice(self, geometry: Geometry, spatial: SpatialTile, blocks: range) -> TensorSlice:
        pixels = prod(self.source.shape[1:])
        first, last = blocks.start // pixels, (blocks.stop - 1) // pixels
        whole = (0, pixels) if last > first else (blocks.start % pixels, (blocks.stop - 1) % pixels + 1)
        return TensorSlice(self.input, (first, last + 1), whole)
