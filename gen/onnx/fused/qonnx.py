"""QONNX's operators, as Brevitas exports them: numbers of any width, as QuantizeLinear and DequantizeLinear.

The equations are those of QONNX's definitions. Weights become integers with their scale; of activations of fewer bits
than eight what is beyond the least and the largest integer is clipped first.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from gen.onnx.fused.spread import Fused, Spreads, UnsupportedError

__all__ = ["DOMAINS", "SPREADS"]

#: What versions of QONNX, Brevitas and FINN call their domain.
DOMAINS = ("qonnx.custom_op.general", "onnx.brevitas", "finn.custom_op.general")

#: Bits of the integers that QuantizeLinear has.
_WIDEST = 8
#: How constants are rounded, by the attribute ``rounding_mode``; activations are rounded as QuantizeLinear does.
_ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "ROUND": np.rint, "HALF_EVEN": np.rint, "FLOOR": np.floor, "CEIL": np.ceil, "ROUND_TO_ZERO": np.trunc,
    "DOWN": np.trunc}
_EVEN = ("ROUND", "HALF_EVEN")


def _array(fused: Fused, position: int, what: str) -> np.ndarray:
    """Raises UnsupportedError for a value that is no constant."""
    array = fused.array(fused.given(position))
    if array is None:
        raise UnsupportedError(f"has {what} that is no constant, with which it is not taken apart")
    return array


def _axis(scale: np.ndarray) -> int | None:
    """The axis along which scales differ; None for a single one. Raises UnsupportedError for several axes."""
    axes = [axis for axis, size in enumerate(scale.shape) if size > 1]
    if len(axes) > 1:
        raise UnsupportedError("has scales along several axes, with which it is not taken apart")
    return axes[0] if axes else None


def _integers(fused: Fused) -> tuple[int, int, bool]:
    """Least and largest integer, and whether they are signed. Raises UnsupportedError for a number of bits that is
    none.
    """
    bits = _array(fused, 3, "a number of bits").ravel()
    if bits.size != 1 or bits[0] != int(bits[0]) or not 1 <= bits[0] <= 32:
        raise UnsupportedError("has a number of bits that is none from 1 to 32, with which it is not taken apart")
    count, signed = int(bits[0]), bool(fused.attributes.get("signed", 1))
    narrow = int(fused.attributes.get("narrow", 0))
    if signed:
        return -(1 << count - 1) + narrow, (1 << count - 1) - 1, True
    return 0, (1 << count) - 1 - narrow, False


def _grid(fused: Fused, scale: np.ndarray, zero_point: np.ndarray, axis: int | None
          ) -> tuple[dict[str, Any], tuple[str, str]]:
    """Attributes, and the inputs beside the first, of QuantizeLinear and DequantizeLinear."""
    return ({} if axis is None else {"axis": axis},
            (fused.constant(scale, "scale"), fused.constant(zero_point, "zero_point")))


def quant(fused: Fused) -> None:
    """``Quant(x, scale, zeropt, bitwidth)``: ``scale * (clip(round(x / scale + zeropt)) - zeropt)``."""
    scale, point = _array(fused, 1, "a scale"), _array(fused, 2, "a zero point")
    least, most, signed = _integers(fused)
    mode = fused.attributes.get("rounding_mode", b"ROUND").decode().upper()
    if mode not in _ROUNDINGS:
        raise UnsupportedError(f"rounds by {mode}, with which it is not taken apart")
    if not (scale > 0).all() or not np.isfinite(scale).all() or (point != np.rint(point)).any():
        raise UnsupportedError("has scales that are not positive, or zero points that are no integers, with which it "
                               "is not taken apart")
    constant = fused.array(fused.given(0))
    if constant is not None:
        integers = np.clip(_ROUNDINGS[mode](constant / scale + point), least, most)
        _weights(fused, integers, scale, point)
        return
    if mode not in _EVEN:
        raise UnsupportedError(f"rounds activations by {mode}, and not to even, with which it is not taken apart")
    kind, (low, high) = _kind(signed)
    if not low <= least <= most <= high or not ((low <= point) & (point <= high)).all():
        raise UnsupportedError(f"makes activations of more than {_WIDEST} bits, with which it is not taken apart")
    axis = _axis(scale)
    scale, zero_point = _along(scale, axis), _along(np.broadcast_to(point, scale.shape), axis).astype(kind)
    value = fused.given(0)
    if (least, most) != (low, high):
        if axis is not None:
            raise UnsupportedError("has a scale for each channel of activations, with which it is not taken apart")
        bounds = (np.array([least, most]) - float(zero_point)) * float(scale)
        value = fused.make("Clip", value, *(fused.constant(np.float32(bound), "bound") for bound in bounds),
                           what="clip")
    where, grid = _grid(fused, scale, zero_point, axis)
    quantised = fused.make("QuantizeLinear", value, *grid, what="quantised", **where)
    fused.make("DequantizeLinear", quantised, *grid, result=fused.node.output[0], what="dequantised", **where)


def _kind(signed: bool) -> tuple[type[np.int8 | np.uint8], tuple[int, int]]:
    """The type of its integers, and what that reaches from and to."""
    return (np.int8, (-128, 127)) if signed else (np.uint8, (0, 255))


def _along(array: np.ndarray, axis: int | None) -> np.ndarray:
    """float32, as QuantizeLinear has scales: a number, or (C,)."""
    flat = array.astype(np.float32).ravel()
    return flat[0] if axis is None else flat


def _weights(fused: Fused, integers: np.ndarray, scale: np.ndarray, point: np.ndarray) -> None:
    """A constant: integers, or numbers where those are of more bits, as biases are."""
    axes = [axis for axis, size in enumerate(scale.shape) if size > 1]
    zero = np.broadcast_to(point, scale.shape)
    signed = bool(integers.min(initial=0) < 0 or zero.min() < 0)
    kind, (low, high) = _kind(signed)
    reach = min(integers.min(initial=0), zero.min()), max(integers.max(initial=0), zero.max())
    if len(axes) > 1 or not low <= reach[0] <= reach[1] <= high:
        fused.make("Identity", fused.constant((scale * (integers - point)).astype(np.float32), "constant"),
                   result=fused.node.output[0], what="dequantised")
        return
    axis = _axis(scale)
    where, grid = _grid(fused, _along(scale, axis), _along(zero, axis).astype(kind), axis)
    fused.make("DequantizeLinear", fused.constant(integers.astype(kind), "integers"), *grid,
               result=fused.node.output[0], what="dequantised", **where)


def bipolar(fused: Fused) -> None:
    """``BipolarQuant(x, scale)``: ``scale``, with a minus where x is below zero."""
    scale = _array(fused, 1, "a scale")
    constant = fused.array(fused.given(0))
    if constant is not None:
        _weights(fused, np.where(constant < 0, -1, 1), scale, np.zeros(()))
        return
    below = fused.make("Less", fused.given(0), fused.constant(np.float32(0), "zero"), what="below")
    sign = fused.make("Where", below, fused.constant(np.float32(-1), "minus"), fused.constant(np.float32(1), "plus"),
                      what="sign")
    factor = fused.constant(scale.astype(np.float32), "scale")
    if scale.size > 1:
        fused.make("Mul", sign, factor, result=fused.node.output[0], what="scaled")
        return
    # Signs of an input are the processor's: what reads them needs them as integers.
    scaled = fused.make("Mul", sign, factor, what="scaled")
    grid = fused.constant(scale.astype(np.float32).reshape(()), "step"), fused.constant(np.int8(0), "zero_point")
    quantised = fused.make("QuantizeLinear", scaled, *grid, what="quantised")
    fused.make("DequantizeLinear", quantised, *grid, result=fused.node.output[0], what="dequantised")


SPREADS: Spreads = {(domain, op): make for domain in DOMAINS
                    for op, make in (("Quant", quant), ("IntQuant", quant), ("BipolarQuant", bipolar))}
