"""Cycles of a network on a machine, estimated: searches ask for thousands of networks, most of them never trained.

`gen compile --stochastic` and `gen profile` give the exact number for one that is a model.
"""

import math

from cores.config import NpuConfig

from .backbone import Backbone, Product

__all__ = ["BASIS", "estimated_cycles", "layer_cycles", "stochastic_rows"]

#: How cycles are known; to be printed wherever they are.
BASIS = "estimated"


def _unit(config: NpuConfig) -> tuple[int, int]:
    """Rows, and bits of a stream in a cycle, of the machine's unit, or of what it would have as a feature."""
    fields = config.to_dict() if config.stochastic_rows else config.feature_fields(["stochastic"])
    return fields["stochastic_rows"], fields["stochastic_bits"]


def stochastic_rows(config: NpuConfig) -> int:
    """Output lanes that the unit computes at once."""
    return _unit(config)[0]


def estimated_cycles(backbone: Backbone, length: int | None, config: NpuConfig) -> int:
    """Of an inference: all layers on streams of ``length`` bits, or on int8 products where it is None.

    A step's weights stand while all words of the output pass; words of streams stay for their bits. The next step's
    weights come in meanwhile, a beat a cycle. Loads, stores and what is left over at a layer's end are not counted.
    """
    return sum(layer_cycles(layer, length, config) for layer in backbone.layers)


def layer_cycles(layer: Product, length: int | None, config: NpuConfig) -> int:
    """Of one layer, as `estimated_cycles`."""
    words = layer.rows * math.ceil(layer.cols / config.pixel_lanes)
    blocks, tiles = math.ceil(layer.input.channels / config.ic_lanes), math.ceil(layer.outputs / config.oc_lanes)
    if length is None:
        steps, beats, each = config.ic_lanes // config.nnz_lanes, config.weight_beats, 1
    else:
        rows, bits = _unit(config)
        steps, beats, each = config.oc_lanes // rows, rows, length // bits
    return tiles * blocks * layer.taps * steps * max(words * each, beats)
