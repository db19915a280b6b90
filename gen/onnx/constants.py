"""Constant inputs of nodes as numbers. All raise NodeError where an input is no constant, or one of another kind."""

import numpy as np

from gen.onnx.model import Node, NodeError
from gen.onnx.values import Constant, QuantisedConstant, Value

__all__ = ["activation_scale", "axes", "constant", "float_scales", "integers", "parameter", "scalar"]


def constant(value: Value | None, what: str) -> np.ndarray:
    """The array of a constant (dequantised ones in float64)."""
    if isinstance(value, Constant):
        return value.array
    if isinstance(value, QuantisedConstant):
        return value.real
    raise NodeError(f"{what} must be a constant", code="not-constant")


def integers(value: Value | None, what: str) -> tuple[int, ...]:
    """A constant of whole numbers, flattened: axes, shapes and the like."""
    array = constant(value, what)
    if array.dtype.kind not in "iu":
        raise NodeError(f"{what} must be integers, not {array.dtype}", code="value-type")
    return tuple(array.reshape(-1).tolist())


def scalar(value: Value | None, what: str, default: float | None = None) -> float:
    if value is None and default is not None:
        return default
    array = constant(value, what)
    if array.size != 1:
        raise NodeError(f"{what} must be one number, not {array.size}; quantise activations per tensor",
                        code="bad-scale")
    return array.reshape(()).item()


def axes(node: Node, value: Value | None) -> tuple[int, ...]:
    """Axes from an attribute (older opsets) or from an input; none if the node has neither."""
    if value is not None:
        return integers(value, "the axes")
    return tuple(node.attributes.get("axes") or ())


def parameter(value: Value | None, what: str) -> np.ndarray:
    """A scale or zero point: one number, or one for each channel of a constant; onnxruntime takes no other."""
    array = constant(value, what)
    if array.ndim > 1:
        raise NodeError(f"{what} must be one number or a list, not of shape {array.shape}", code="bad-scale")
    return array


def float_scales(value: Value | None) -> np.ndarray:
    """One scale or several, as they are."""
    scales = parameter(value, "the scale")
    if scales.dtype not in (np.float32, np.float16):
        raise NodeError(f"the scale must be float32 or float16, not {scales.dtype}", code="bad-scale")
    return scales


def activation_scale(value: Value | None) -> float:
    float_scales(value)
    scale = float(scalar(value, "the scale"))
    if not (np.isfinite(scale) and scale > 0):
        raise NodeError(f"the scale must be positive, not {scale}", code="bad-scale")
    return scale
