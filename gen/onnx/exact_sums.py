"""Sums of a binary layer that leave the model as they are."""

from dataclasses import replace

import numpy as np

from gen.ir.graph import Conv
from gen.ir.host import HostStep
from gen.ir.layers.conv import sign_sizes
from gen.ir.tensor import Requantize
from gen.onnx.builder import GraphBuilder, Result
from gen.onnx.quant_scales import multiplies_signs, reach
from gen.onnx.values import Host, Pending, layout_steps

__all__ = ["exact_sums"]

#: Channels of int8 that one sum is spread over at most, and what each of them adds to the range.
_MAX_PARTS, _PART = 8, 255
#: Multipliers and shifts of 1, and of 1/2.
_ONE, _HALF = (1 << 16, 16), (1 << 16, 17)


def exact_sums(graph: GraphBuilder, value: Pending) -> Host | None:
    """The exact result of a binary layer that leaves the model unquantised; None if it is none or too large.

    The layer writes each sum several times, clipped to one int8 range after the other; the processor adds them up.
    """
    value = _of_ones(graph, value)
    odd, (low, high) = _parity(graph, value), (value.low, value.high)
    if np.isfinite([low, high]).any() or not graph.tensors[value.arguments["input"]].signs:
        return None
    channels, step = value.shape[0], 1 if odd is None else 2
    furthest = int(reach(graph, value).max())
    least, most = (end // step for end in (-furthest + (odd or 0), furthest + (odd or 0)))
    parts = max(1, -(-(most - least) // _PART))
    if parts > _MAX_PARTS or value.layer is not Conv:
        return None
    origins = least + 128 + _PART * np.arange(parts)
    bias = np.repeat((odd or 0) - step * origins, channels)
    multiplier, shift = (np.full(parts * channels, number) for number in (_HALF if step == 2 else _ONE))
    arguments = {**value.arguments, "weights": np.tile(value.arguments["weights"], (parts, 1, 1, 1)), "groups": 1}
    shape = (parts * channels, *value.shape[1:])
    order = np.arange(int(np.prod(shape))).reshape(1, *shape)
    output = graph.add_layer(replace(value, arguments=arguments, order=order, shape=shape),
                             Requantize(bias, multiplier, shift, 0, -128, 127), result=Result(None))
    constant = int(origins[0]) + 128 * (parts - 1)
    # In LSBs of the accumulator: step * sum + offset, with what makes its sums even.
    join = HostStep("join", {
        "parts": parts, "constant": constant, "scale": (value.scale * step).astype(np.float32),
        "bias": ((value.offset - (odd or 0)) * value.scale + value.bias).astype(np.float32)})
    steps = (join, *layout_steps(value.shape, value.order))
    return Host(output.tensor, steps, np.arange(value.order.size).reshape(value.order.shape))


def _of_ones(graph: GraphBuilder, value: Pending) -> Pending:
    """A binary layer with weights of plus and minus 1, whatever they are; any other as it is."""
    sizes = sign_sizes(value.arguments["weights"]) if multiplies_signs(graph, value) else None
    if sizes is None:
        return value
    weights = value.arguments["weights"] // sizes.astype(np.int16)[:, None, None, None]
    return replace(value, arguments={**value.arguments, "weights": weights}, scale=value.scale * sizes,
                   offset=value.offset // sizes)


def _parity(graph: GraphBuilder, value: Pending) -> int | None:
    """Whether all sums of a layer of `_of_ones` are even (0) or odd (1); None where neither or the layer is another."""
    if not multiplies_signs(graph, value):
        return None
    weights, around = value.arguments["weights"], value.arguments.get("pad_value")
    if any(value.arguments["pads"]) and around in (None, 0):
        return None if weights.shape[1] % 2 else 0
    return int(weights[0].size % 2)
