"""Constants of convolutions and matrix products, and the layer that they make."""

from dataclasses import dataclass

import numpy as np

from gen.ir.graph import Conv
from gen.onnx.constants import constant
from gen.onnx.model import NodeError
from gen.onnx.values import Constant, Pending, QuantisedConstant, Real, Value
from gen.onnx.windows import Windows

__all__ = ["MAX_WEIGHTS", "Kernel", "bias_of", "convolved", "weights_of", "why_no_signs"]

#: Weights of a layer at most.
MAX_WEIGHTS = 1 << 28
#: How far sizes of weights may be from their channel's mean, as a share of it, and still be one number. Exporters write
#: ``(scale * sign(w) - clip(w)) + clip(w)`` in float32: two roundings, 2**-24 * (2 + largest / mean) of the mean. This
#: has room for weights 160 times as large as the mean, and moves a sum of 50,000 signs by half a unit at most.
_ONE_SIZE = 1e-5


@dataclass(frozen=True, eq=False)
class Kernel:
    """``weights`` int16, ``depthwise`` and ``groups`` as in `gen.ir.graph.Conv`; the weights' ``scale`` and the real
    ``bias``, both (OC,) float64.
    """

    weights: np.ndarray
    scale: np.ndarray
    bias: np.ndarray
    depthwise: bool = False
    groups: int = 1


def convolved(name: str, source: Real, kernel: Kernel, windows: Windows, order: np.ndarray,
              pad_value: int | None = None) -> Pending:
    """The result of node ``name``: ``source`` under ``kernel``."""
    weights = kernel.weights
    total = weights.sum(axis=(1, 2, 3), dtype=np.int64)
    return Pending(
        name=name, nodes=(name,), order=order, shape=(weights.shape[0], *windows.output), layer=Conv,
        arguments=dict(input=source.quantised.tensor, weights=weights, depthwise=kernel.depthwise, groups=kernel.groups,
                       stride=windows.stride, pads=windows.pads, pad_value=pad_value),
        scale=source.scale * kernel.scale, offset=-source.zero_point * total, bias=kernel.bias)


def why_no_signs(weights: np.ndarray, axis: int) -> str:
    """Why float ``weights`` are not plus or minus one number in each output channel (of ``axis``); "" if they are."""
    found = _sign_weights(np.moveaxis(weights, axis, 0))
    return found if isinstance(found, str) else ""


def _sign_weights(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray] | str:
    """Weights that are plus or minus one number in each output channel (axis 0) -> (-1 and 1 int16, the numbers).

    The number is the mean of the sizes; where they are equal, they themselves. Of other weights: why they are none.
    """
    size = np.abs(weights.reshape(len(weights), -1).astype(np.float64))
    if not size.size:
        return "there are none"
    if not np.isfinite(size).all():
        return "some are infinite or no numbers"
    if not weights.min() < 0 < weights.max():
        return "all have one sign" if size.any() else "all are zero"
    mean = size.mean(axis=1)
    nothing = size <= _ONE_SIZE * mean[:, None]
    if nothing.any():
        return f"{nothing.sum():,} of {size.size:,} are zero"
    apart = np.abs(size - mean[:, None]).max(axis=1) / mean
    channel = int(np.argmax(apart))
    if apart[channel] > _ONE_SIZE:
        least, most = size[channel].min(), size[channel].max()
        return f"those of output channel {channel} have sizes from {least:.6g} to {most:.6g}"
    return np.where(weights < 0, -1, 1).astype(np.int16), mean


def weights_of(value: Value | None, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights with output channels first -> (int16 with the zero point subtracted, their scale per output channel).

    ``axis`` is that of the output channels. Raises NodeError.
    """
    if isinstance(value, Constant):
        if value.array.dtype.kind != "f":
            raise NodeError(f"its weights are {value.array.dtype}; put a DequantizeLinear after them",
                            code="not-quantised")
        signs = _sign_weights(np.moveaxis(value.array, axis, 0))
        if not isinstance(signs, str):
            return signs
        raise NodeError("its weights are float; quantise them (DequantizeLinear after int8 weights)",
                        code="not-quantised")
    if not isinstance(value, QuantisedConstant):
        raise NodeError("its weights must be constants", code="not-constant")
    if value.array.dtype.itemsize > 1:
        raise NodeError(f"weights must have 8 bits at most, not {value.array.dtype}", code="value-type")
    if max(value.scale.size, value.zero_point.size) > 1 and value.axis != axis:
        raise NodeError("weights must be quantised per tensor or per output channel", code="bad-scale")
    if not (np.isfinite(value.scale).all() and (value.scale > 0).all()):
        raise NodeError("the scales of its weights must be positive", code="bad-scale")
    weights = np.moveaxis(value.integers, axis, 0)
    return weights, np.broadcast_to(value.scale.astype(np.float64), (weights.shape[0],)).copy()


def bias_of(value: Value | None, channels: int, *, broadcast: bool) -> np.ndarray:
    """A bias, one number for each output channel; with ``broadcast`` one that spreads over rows of them will do."""
    if value is None:
        return np.zeros(channels)
    bias = constant(value, "the bias").astype(np.float64)
    if bias.shape != (channels,) and not (broadcast and bias.shape in ((), (1,), (1, 1), (1, channels))):
        raise NodeError(f"its bias has shape {bias.shape}; it must be one number for each of the {channels} "
                        "output channels", code="bad-bias")
    if not np.isfinite(bias).all():
        raise NodeError("its bias must be finite", code="bad-bias")
    return np.broadcast_to(bias.reshape(-1), (channels,)).copy()
