"""Proof that a layer's sums fit the accumulators, and the way out for channels whose sums cannot matter."""

from dataclasses import replace

import numpy as np

from cores.arch.numerics import MAX_SHIFT, MULTIPLIER_BITS, POOL_WIDTH
from cores.arch.stochastic import LENGTH_BITS
from cores.config import NpuConfig
from gen.ir.errors import LayerError
from gen.ir.graph import Conv, Layer
from gen.ir.ranges import Range, any_values, sum_range
from gen.ir.tensor import Requantize
from sim.golden import round_shift, winograd_output
from sim.stochastic.layers import largest_sums

__all__ = ["fit_exact", "fit_sums"]

#: A scale of one.
_UNIT = (1 << MULTIPLIER_BITS - 1, MULTIPLIER_BITS - 1)


def _reach(layer: Layer, inputs: Range | None) -> Range:
    """Lowest and highest sum of each channel; ``inputs`` as in `fit_sums`."""
    if isinstance(layer, Conv) and layer.winograd:
        # Of each of a tile's four pixels. Tiles may hold anything here, which is more than they do.
        signs = winograd_output(np.eye(16, dtype=np.int64).reshape(16, 4, 4)).reshape(16, 4)
        weights = layer.winograd.weights.reshape(*layer.weights.shape[:2], 16)
        positive = np.maximum(weights, 0).sum(1, dtype=np.int64)
        negative = np.minimum(weights, 0).sum(1, dtype=np.int64)
        up = positive @ (signs > 0) - negative @ (signs < 0)
        down = negative @ (signs > 0) - positive @ (signs < 0)
        return (127 * down - 128 * up).min(axis=1), (127 * up - 128 * down).max(axis=1)
    if isinstance(layer, Conv) and layer.stochastic:
        form = layer.stochastic
        # Of streams of any length that `stream_shift` leaves.
        most = np.max([largest_sums(layer.weights, form.circuit, form.streams.shortened(shift), form.fan_in)
                       for shift in range(1 << LENGTH_BITS)], axis=0)
        return -most, most
    return sum_range(layer, any_values(layer) if inputs is None else inputs)


def _widths(reach: Range, bias: np.ndarray) -> np.ndarray:
    """Bits of each channel's sums, without the bias, as accumulators have them, and with it: the first stage adds it in
    as many. What a sum is on the way there may run over.
    """
    low, high = reach
    furthest = np.maximum(np.maximum(high, high + bias), -1 - np.minimum(low, low + bias))
    return np.array([int(end).bit_length() + 1 for end in furthest])


def _constant_channels(layer: Conv, channels: np.ndarray, low: np.ndarray, high: np.ndarray) -> Conv:
    """Replace channels whose result is the same for all inputs: no weights, the result as bias. Others stay."""
    first = layer.requantize
    ends = [np.clip(round_shift((end + first.bias) * first.multiplier, first.shift), first.low - first.zero_point,
                    first.high - first.zero_point) for end in (low, high)]
    constant = channels & (ends[0] == ends[1])
    dead = constant[:, None, None, None]
    winograd = layer.winograd and replace(
        layer.winograd, weights=np.where(dead, 0, layer.winograd.weights).astype(np.int16))
    return replace(
        layer,
        weights=np.where(dead, 0, layer.weights).astype(np.int16), winograd=winograd,
        requantize=replace(
            first, bias=np.where(constant, ends[0], first.bias),
            multiplier=np.where(constant, _UNIT[0], first.multiplier),
            shift=np.where(constant, _UNIT[1], first.shift)))


def _require_room(layer: Layer) -> None:
    """Raises LayerError for a window that the pool unit cannot sum."""
    if not isinstance(layer, Conv) and not layer.maximum:
        rows, cols = layer.kernel
        largest = (1 << POOL_WIDTH - 1) // 128
        if rows * cols > largest:
            raise LayerError(layer.name, f"windows of at most {largest:,} pixels can be summed, not {rows}x{cols}; "
                                         "average in two layers, one after the other", code="too-large", limit=largest)


def fit_sums(layer: Layer, config: NpuConfig, inputs: Range | None = None) -> Layer:
    """The layer, proven to fit: sums, with their bias and without, stay within ``acc_width`` bits.

    ``inputs``: what it can read, as `gen.ir.ranges.input_ranges` says; None for any int8.

    Channels beyond that whose result does not depend on their input become constants: quantisers give channels that
    died in training huge biases at tiny scales. The layer computes the same values.

    Raises LayerError for sums that the machine has no room for.
    """
    _require_room(layer)
    widths = _widths(_reach(layer, inputs), layer.requantize.bias)
    if isinstance(layer, Conv) and not layer.stochastic and (widths > config.acc_width).any():
        layer = _constant_channels(layer, widths > config.acc_width, *_reach(layer, inputs))
        widths = _widths(_reach(layer, inputs), layer.requantize.bias)
    channel, width = int(widths.argmax()), int(widths.max())
    if width > config.acc_width:
        low, high = (int(end[channel]) for end in _reach(layer, inputs))
        bias = int(layer.requantize.bias[channel])
        advice = (f"build and compile with --acc-width {width}" if width <= 32
                  else "no accumulator is wide enough: use smaller weights or fewer inputs")
        raise LayerError(layer.name, f"channel {channel} sums to {low}..{high} with bias {bias}, beyond "
                                     f"acc_width={config.acc_width}; {advice}",
                         code="acc-width", limit=config.acc_width)
    return layer


def fit_exact(layer: Conv, config: NpuConfig, inputs: Range | None = None) -> Requantize | None:
    """Of a layer that fits (`fit_sums`) the parameters for sums of the exact Winograd form: four times its own.

    Partial sums may run over: they and their total are kept modulo ``2**acc_width``. None where the total or the
    parameters have no room.
    """
    first = layer.requantize
    if (first.shift > MAX_SHIFT - 2).any():
        return None
    requantize = replace(first, bias=4 * first.bias, shift=first.shift + 2)
    low, high = _reach(layer, inputs)
    return None if (_widths((4 * low, 4 * high), requantize.bias) > config.acc_width).any() else requantize
