"""Cycles of a network on a machine, estimated: searches ask for thousands of networks, most of them never trained.

`gen compile --stochastic` and `gen profile` give the exact number for one that is a model.
"""

import math

from cores.config import NpuConfig

from .backbone import Backbone, Product

__all__ = ["BASIS", "estimated_cycles", "stochastic_rows"]

#: How cycles are known; to be printed wherever they are.
BASIS = "estimated"

#: Output lanes for each row of the unit, and bits of a stream that it makes in a cycle.
_LANES_A_ROW, _BITS = 4, 1


def stochastic_rows(config: NpuConfig) -> int:
    """Output lanes that the unit computes at once."""
    return config.oc_lanes // _LANES_A_ROW


def estimated_cycles(backbone: Backbone, length: int | None, config: NpuConfig) -> int:
    """Of an inference: all layers on streams of ``length`` bits, or on int8 products where it is None.

    A step's weights stand while all words of the output pass; words of streams stay for their bits. The next step's
    weights come in meanwhile, a beat a cycle. Loads, stores and what is left over at a layer's end are not counted.
    """
    return sum(_cycles(layer, length, config) for layer in backbone.layers)


def _cycles(layer: Product, length: int | None, config: NpuConfig) -> int:
    words = layer.rows * math.ceil(layer.cols / config.pixel_lanes)
    blocks, tiles = math.ceil(layer.input.channels / config.ic_lanes), math.ceil(layer.outputs / config.oc_lanes)
    if length is None:
        steps, beats, each = config.ic_lanes // config.nnz_lanes, config.weight_beats, 1
    else:
        steps, beats, each = _LANES_A_ROW, stochastic_rows(config), length // _BITS
    return tiles * blocks * layer.taps * steps * max(words * each, beats)
