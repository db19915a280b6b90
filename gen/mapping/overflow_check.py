"""Proof that a layer's sums fit the accumulators, and the way out for channels whose sums cannot matter."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from cores.arch.numerics import MAX_SHIFT, MULTIPLIER_BITS
from cores.config import NpuConfig
from gen.ir.errors import LayerError
from gen.ir.graph import Conv, Layer
from gen.ir.ranges import Range
from gen.ir.tensor import Requantize
from sim.golden import round_shift

__all__ = ["fit_exact", "fit_sums"]

_L = TypeVar("_L", bound=Layer)

#: A scale of one.
_UNIT = (1 << MULTIPLIER_BITS - 1, MULTIPLIER_BITS - 1)


def _widths(reach: Range, bias: np.ndarray) -> np.ndarray:
    """Bits of each channel's sums, without the bias, as accumulators have them, and with it: the first stage adds it in
    as many. What a sum is on the way there may run over.
    """
    low, high = reach
    furthest = np.maximum(np.maximum(high, high + bias), -1 - np.minimum(low, low + bias))
    return np.array([int(end).bit_length() + 1 for end in furthest])


def _constant_channels(layer: _L, channels: np.ndarray, low: np.ndarray, high: np.ndarray) -> _L:
    """Replace channels whose result is the same for all inputs: sums of 0, the result as bias. Others stay."""
    first = layer.requantize
    ends = [np.clip(round_shift((end + first.bias) * first.multiplier, first.shift), first.low - first.zero_point,
                    first.high - first.zero_point) for end in (low, high)]
    constant = channels & (ends[0] == ends[1])
    silent = layer.without(constant)
    return layer if silent is None else replace(silent, requantize=replace(
        first, bias=np.where(constant, ends[0], first.bias),
        multiplier=np.where(constant, _UNIT[0], first.multiplier),
        shift=np.where(constant, _UNIT[1], first.shift)))


def fit_sums(layer: _L, config: NpuConfig, operands: Sequence[Range]) -> _L:
    """The layer, proven to fit: sums, with their bias and without, stay within ``acc_width`` bits.

    ``operands``: what it can read, as `gen.ir.ranges.input_ranges` says.

    Channels beyond that whose result does not depend on their input become constants: quantisers give channels that
    died in training huge biases at tiny scales. The layer computes the same values.

    Raises LayerError for sums that the machine has no room for.
    """
    if problem := layer.room_problem():
        reason, limit = problem
        raise LayerError(layer.name, reason, code="too-large", limit=limit)
    widths = _widths(layer.reach(operands), layer.requantize.bias)
    if (widths > config.acc_width).any():
        layer = _constant_channels(layer, widths > config.acc_width, *layer.reach(operands))
        widths = _widths(layer.reach(operands), layer.requantize.bias)
    channel, width = int(widths.argmax()), int(widths.max())
    if width > config.acc_width:
        low, high = (int(end[channel]) for end in layer.reach(operands))
        bias = int(layer.requantize.bias[channel])
        advice = (f"build and compile with --acc-width {width}" if width <= 32
                  else "no accumulator is wide enough: use smaller weights or fewer inputs")
        raise LayerError(layer.name, f"channel {channel} sums to {low}..{high} with bias {bias}, beyond "
                                     f"acc_width={config.acc_width}; {advice}",
                         code="acc-width", limit=config.acc_width)
    return layer


def fit_exact(layer: Conv, config: NpuConfig, operands: Sequence[Range]) -> Requantize | None:
    """Of a layer that fits (`fit_sums`) the parameters for sums of the exact Winograd form: four times its own.

    Partial sums may run over: they and their total are kept modulo ``2**acc_width``. None where the total or the
    parameters have no room.
    """
    first = layer.requantize
    if (first.shift > MAX_SHIFT - 2).any():
        return None
    requantize = replace(first, bias=4 * first.bias, shift=first.shift + 2)
    low, high = layer.reach(operands)
    return None if (_widths((4 * low, 4 * high), requantize.bias) > config.acc_width).any() else requantize
