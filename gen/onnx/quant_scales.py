"""What a pending result can be, and how finely its integers divide it: what the importer's roundings are chosen by."""

from dataclasses import replace

import numpy as np

from cores.arch.numerics import COUNT_SHIFT, FIRST_BITS, MIN_SHIFT, MULTIPLIER_BITS
from gen.ir.graph import Conv, Pool
from gen.ir.layers.conv import product_range, sign_sizes
from gen.ir.layers.pool import window_range
from gen.ir.ranges import Range
from gen.ir.tensor import Requantize, Tensor
from gen.onnx.builder import GraphBuilder, Result
from gen.onnx.values import Pending, Quantisation, Real
from sim.golden import quantize_multiplier

__all__ = [
    "as_convolution", "branch_quantisation", "coarser_scale", "exact_quantisation",
    "finer_scale", "multiplies_signs", "pending_sums", "reach", "real_range", "same",
]

#: Error of a bias, in LSBs of the output, that is not worth a finer scale.
_BIAS_ERROR = 1 / 64
#: LSBs of the output to one of the sums; a multiplier makes no more.
_LARGEST_SCALE = 2.0 ** (MULTIPLIER_BITS - MIN_SHIFT)
#: Weights of a byte; what is beyond takes two slots of a block.
_LARGEST_WEIGHT = 127
#: A finer scale must not make sums larger than this, which leaves room in any accumulator.
_LARGEST_SUM = 1 << 24
#: Biases, in LSBs of the sums, that fit any accumulator of the usual widths.
_LARGEST_BIAS = 1 << 25
#: The same in sums of signs, of which the binary unit has 64ths.
_LARGEST_SIGN_BIAS = _LARGEST_BIAS >> COUNT_SHIFT - 1
#: Steps of the sum to one of a branch at most: half of that is the branch's own rounding, and less than one step more
#: or less before the sum is rounded is at most one step after it.
_COARSEST_BRANCH = 2.0


def pending_sums(graph: GraphBuilder, value: Pending) -> Range:
    """Lowest and highest sum of each channel over all inputs that the tensor's clip bounds allow, int64 (C,)."""
    arguments, source = value.arguments, graph.tensors[value.arguments["input"]]
    low, high = graph.clip_bounds(source.name)
    if any(arguments["pads"]):
        around = arguments.get("pad_value")
        around = source.zero_point if around is None else around
        low, high = min(low, around), max(high, around)
    inputs = np.full(source.shape[0], low), np.full(source.shape[0], high)
    if value.layer is Conv:
        return product_range(arguments["weights"], arguments["depthwise"], inputs)
    return window_range(arguments["maximum"], arguments["kernel"], inputs)


def reach(graph: GraphBuilder, value: Pending) -> np.ndarray:
    """A bound of each channel's absolute sum, int64 (C,)."""
    low, high = pending_sums(graph, value)
    return np.maximum(np.abs(low), np.abs(high))


def real_range(graph: GraphBuilder, value: Pending | Real) -> tuple[float, float]:
    """Least and largest number that ``value`` can be, by its weights and the clip bounds of its tensor."""
    if isinstance(value, Real):
        low, high = graph.clip_bounds(value.quantised.tensor)
        return (low - value.zero_point) * value.scale, (high - value.zero_point) * value.scale
    lowest, highest = ((end + value.offset) * value.scale + value.bias for end in pending_sums(graph, value))
    low, high = np.clip([lowest.min(), highest.max()], value.low, value.high)
    return float(low), float(high)


def exact_quantisation(value: Pending, scale: float) -> tuple[float, int] | None:
    """Scale and zero point in which a copy of a tensor, perhaps negated or clipped, is exact: its own scale.

    None for other results, and for one of which a step is more steps of the sum, ``scale``, than a multiplier makes.
    """
    if not value.only_counts or value.bias.any() or np.ptp(value.scale) or np.ptp(value.offset):
        return None
    if value.scale[0] >= _LARGEST_SCALE * scale:
        return None
    return float(value.scale[0]), -int(value.offset[0])


def branch_quantisation(result: tuple[float, float], other: tuple[float, float], total: tuple[float, float],
                        scale: float, *, finest: float = 0.0, bits: int = FIRST_BITS) -> tuple[float, int] | None:
    """Scale and zero point for a ``result`` of so many bits that the model adds to ``other`` without quantising it.

    All are ranges of real numbers; ``total`` is that of the sum, half a step inside its quantisation's ends. What would
    put the sum beyond it whatever the other operand is may saturate, so the bits cover no more. Steps are not smaller
    than ``finest``. None where these are so coarse that the sum could be more than one
    step, ``scale``, from the exact one.
    """
    needed = total[0] - other[1], total[1] - other[0]
    low, high = np.clip(result, *needed)
    low, high = min(low, 0.0), max(high, 0.0)
    # Nothing is gained by steps far below those of the sum, or by steps that multipliers do not reach.
    levels = 1 << bits
    step = max((high - low) / (levels - 1), scale / 64, finest)
    if step >= _COARSEST_BRANCH * scale:
        return None
    # The outermost levels stand for half a step more to either side.
    return step, int(np.ceil(-(levels + 1) / 2 - low / step))


def same(tensor: Tensor, channels: int) -> Requantize:
    """The stage that leaves single values of ``tensor`` as they are."""
    multiplier, shift = quantize_multiplier(np.ones(channels))
    return Requantize(np.full(channels, -tensor.zero_point), multiplier, shift, tensor.zero_point, -128, 127)


def as_convolution(graph: GraphBuilder, value: Pending) -> Pending:
    """A pool as a depthwise convolution with weights of 1; after a maximum, which is a layer of its own."""
    arguments = {key: item for key, item in value.arguments.items() if key not in ("maximum", "kernel")}
    kernel = value.arguments["kernel"]
    if value.arguments["maximum"]:
        source = graph.tensors[value.arguments["input"]]
        pooled = graph.add_layer(replace(value, nodes=value.nodes[:1]), same(source, value.shape[0]),
                                 result=Result(None, Quantisation(source.scale, source.zero_point, False)))
        arguments = dict(input=pooled.tensor, stride=(1, 1), pads=(0, 0, 0, 0), pad_value=None)
        value, kernel = replace(value, nodes=value.nodes[1:]), (1, 1)
    weights = np.ones((value.shape[0], 1, *kernel), np.int16)
    return replace(value, layer=Conv, arguments={**arguments, "weights": weights, "depthwise": True})


def multiplies_signs(graph: GraphBuilder, value: Pending) -> bool:
    """Whether it is a binary layer."""
    return (value.layer is Conv and graph.tensors[value.arguments["input"]].signs and not value.arguments["depthwise"]
            and sign_sizes(value.arguments["weights"]) is not None)


def finer_scale(graph: GraphBuilder, value: Pending, scale: float) -> Pending:
    """``value`` with an accumulator scale so fine that rounding the bias does not show in an output of this ``scale``.

    The accumulator of a copy or a pool has its input's scale (or a fraction of it), as coarse as the output's own: half
    an LSB of the bias is up to half an LSB of the output there, and several where the scale grows. As a convolution
    with larger weights, a depthwise one in place of a pool, the layer has a finer one. So scales that are beyond the
    multipliers come within reach, too. Weights that are signs become a power of two, as the binary unit has it.
    """
    bias = value.bias / value.scale
    error = float((np.abs(bias - np.rint(bias)) * value.scale).max(initial=0)) / scale
    if error <= _BIAS_ERROR and value.scale.max() < _LARGEST_SCALE * scale:
        return value
    return _finer(graph, value)


def _finer(graph: GraphBuilder, value: Pending) -> Pending:
    """``value`` with an accumulator scale as fine as weights and sums have room for."""
    if value.layer is Pool:
        value = as_convolution(graph, value)
    weights = value.arguments["weights"]
    largest = int(np.abs(weights).max(initial=1))
    sums = max(int(np.abs(end).max()) for end in pending_sums(graph, value))
    room = min(_LARGEST_WEIGHT // max(1, largest), _LARGEST_SUM // max(1, sums))
    parts = 1 << max(0, room.bit_length() - 1)
    return replace(value, arguments={**value.arguments, "weights": weights * np.int16(parts)},
                   offset=value.offset * parts, scale=value.scale / parts)


def coarser_scale(graph: GraphBuilder, value: Pending, scale: float) -> Pending:
    """``value`` with a coarser accumulator scale in channels whose bias is beyond accumulators.

    Such channels died in training: their weights are next to zero, their constant is not. ``scale`` is the output's, of
    8 bits or `FIRST_BITS`. A bias is clipped where every sum saturates, so an LSB of the accumulator is a small
    fraction of the output's even where weights have few levels left. Results differ by the rounding of weights: in
    practice by one LSB at most, and rarely (a bound would grow with the taps). Channels whose result is the same for
    all inputs stay as they are while a bias of 32 bits holds it, as the mapper has an exact form for them.
    """
    if multiplies_signs(graph, value):
        return _coarser_signs(graph, value, scale)
    biases = np.abs(value.bias / value.scale) + np.abs(value.offset)
    if not (biases >= _LARGEST_BIAS).any():
        return value
    ends = [(end + value.offset) * value.scale for end in pending_sums(graph, value)]
    limit = (1 << FIRST_BITS) * scale
    bias = np.clip(value.bias, -limit - ends[1], limit - ends[0])
    constant = np.equal(*(np.rint(np.clip(end + value.bias, value.low, value.high) / scale) for end in ends))
    far = biases >= np.where(constant, 1 << 31, _LARGEST_BIAS)
    if not far.any():
        return value
    graph.coarser[value.name] = int(far.sum())
    value = as_convolution(graph, value) if value.layer is Pool else value
    over = np.where(far, np.abs(bias / value.scale) / _LARGEST_BIAS, 1)
    factor = 2.0 ** np.ceil(np.log2(np.maximum(over, 1)))
    weights = value.arguments["weights"]
    left = np.rint(weights / factor[:, None, None, None]).astype(np.int16)
    offset = np.where(far, -_zero(graph, value) * left.sum(axis=(1, 2, 3), dtype=np.int64), value.offset)
    return replace(value, arguments={**value.arguments, "weights": left}, offset=offset, scale=value.scale * factor,
                   bias=np.where(far, bias, value.bias))


def _coarser_signs(graph: GraphBuilder, value: Pending, scale: float) -> Pending:
    """`coarser_scale` of a binary layer, whose weights stay what they are. Sums count for more than they should then:
    each for less than a `_LARGEST_SIGN_BIAS`-th of the result.
    """
    sizes = sign_sizes(value.arguments["weights"])
    assert sizes is not None
    room, ends, limit = _LARGEST_SIGN_BIAS * sizes, pending_sums(graph, value), (1 << FIRST_BITS) * scale
    far = np.abs(value.bias / value.scale) >= room
    bias = np.clip(value.bias, -limit - ends[1] * value.scale, limit - ends[0] * value.scale)
    factor = np.where(far, np.maximum(np.abs(bias / value.scale) / room, 1), 1)
    if (factor > 1).any():
        graph.coarser[value.name] = int((factor > 1).sum())
    return replace(value, scale=value.scale * factor, bias=np.where(far, bias, value.bias)) if far.any() else value


def _zero(graph: GraphBuilder, value: Pending) -> int:
    """The integer that stands for zero in what a convolution reads."""
    sums = value.arguments["weights"].sum(axis=(1, 2, 3), dtype=np.int64)
    fullest = int(np.abs(sums).argmax())
    if sums[fullest]:
        return -int(value.offset[fullest]) // int(sums[fullest])
    padding = value.arguments.get("pad_value")
    return graph.tensors[value.arguments["input"]].zero_point if padding is None else int(padding)
