"""The narrow form of a layer, which rounds transformed tiles and weights to int8 (docs/numerics.md)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from cores.arch.numerics import POSITIONS
from gen.ir.errors import CompileError
from gen.ir.graph import Conv, Graph
from gen.ir.layers.conv import NarrowWinograd
from gen.ir.tensor import Requantize
from sim.golden import quantize_multiplier, winograd_input, winograd_weights

__all__ = ["SAFE_SHIFTS", "has_tiles", "narrow_graph", "narrow_layer"]

#: Shifts that lose no tile's high bits.
SAFE_SHIFTS = (2,) * POSITIONS


def has_tiles(layer: Conv) -> bool:
    """Whether a layer has a Winograd form at all."""
    return layer.weights.shape[2:] == (3, 3) and tuple(layer.stride) == (1, 1) and not layer.depthwise


def narrow_layer(layer: Conv, zero_point: int, shifts: Sequence[int] = SAFE_SHIFTS) -> Conv:
    """A layer in the narrow form; ``zero_point`` is its input's.

    The transformed weights of an output channel have one scale, so large that the largest is 127 once each position is
    weighted with ``2**shift``, which the tiles have lost: products then have the same scale at all positions. The bias
    takes back exactly what an input of nothing but zero points sums to.

    Raises ValueError for a layer whose multipliers become too large.
    """
    first = layer.requantize
    exact = winograd_weights(layer.weights)
    weighted = exact << np.asarray(shifts, np.int64).reshape(4, 4)
    largest = np.abs(weighted).max(axis=(1, 2, 3))
    largest = np.where(largest == 0, 127, largest)
    weights = np.rint(weighted * (127 / largest[:, None, None, None])).astype(np.int16)
    # Sums of the exact form are 4 * y; these are 127 / largest times those.
    gain = 127 / largest * 4
    constant = winograd_input(np.full((4, 4), zero_point), shifts).astype(np.int64)
    answer = (weights * constant).sum(axis=(1, 2, 3), dtype=np.int64)
    offset = first.bias + zero_point * layer.weights.sum(axis=(1, 2, 3), dtype=np.int64)
    live = first.multiplier > 0
    scale = first.scale / gain
    multiplier, shift = quantize_multiplier(np.where(live, scale, 1.0))
    requantize = Requantize(
        bias=np.rint(offset * gain).astype(np.int64) - answer, multiplier=np.where(live, multiplier, 0),
        shift=np.where(live, shift, first.shift), zero_point=first.zero_point, low=first.low, high=first.high)
    return replace(layer, requantize=requantize, winograd=NarrowWinograd(weights, tuple(int(s) for s in shifts)))


def narrow_graph(graph: Graph, shifts: Mapping[str, Sequence[int]]) -> Graph:
    """The graph with the named layers in the narrow Winograd form, with these shifts. Raises CompileError."""
    unknown = shifts.keys() - {layer.name for layer in graph.layers}
    if unknown:
        raise CompileError(f"model {graph.name}: has no layer {min(unknown)!r}", code="no-such-layer")
    unfit = shifts.keys() - {layer.name for layer in graph.of(Conv) if has_tiles(layer)}
    if unfit:
        raise CompileError(f"layer {min(unfit)}: only dense 3x3 convolutions of stride 1 have a Winograd form",
                           code="no-winograd-form")

    def narrow(layer: Conv) -> Conv:
        if layer.name not in shifts:
            return layer
        try:
            return narrow_layer(layer, graph.tensors[layer.input].zero_point, shifts[layer.name])
        except ValueError as error:
            raise CompileError(f"layer {layer.name}: {error}", code="no-winograd-form") from None

    return graph.changed(Conv, narrow) if shifts else graph
