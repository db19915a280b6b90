"""Between numbers and the integers that stand for them, to the bit as onnxruntime does it."""

from collections.abc import Sequence

import numpy as np
from onnx import helper as onnx_helper

from gen.c.context import Context
from gen.c.each import each
from gen.c.helper import Helper, instance
from gen.c.registry import operator
from gen.c.text import c_type
from gen.c.value import Dim, Value, product, strides_of
from gen.c.walk import broadcast
from gen.onnx.model import MICROSOFT, Node

__all__ = ["dequantised", "quantised", "round_helper"]

_ROUND = """
/* The nearest integer, halves to the even one, plus the zero point, within the type. What is no number is the least. */
static $T $name($X x, int32_t zero_point)
{
    const $X low = ($X)($MIN - zero_point), high = ($X)($MAX - zero_point);
    $X bounded = x > low ? x : low;
    bounded = bounded < high ? bounded : high;
    return ($T)((int32_t)rint$f(bounded) + zero_point);
}
"""
_RANGES = {"int8": "INT8", "uint8": "UINT8", "int16": "INT16", "uint16": "UINT16"}
_DYNAMIC = """
/* The scale and zero point with which all of x fits 8 bits. */
static void $name(size_t count, const float *x, float *scale, uint8_t *zero_point)
{
    float low = 0.0f, high = 0.0f;
    for (size_t i = 0u; i < count; ++i) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    *scale = high == low ? 1.0f : (high - low) / 255.0f;
    *zero_point = (uint8_t)rintf(fmaxf(0.0f, fminf(255.0f, 0.0f - low / *scale)));
}
"""


def round_helper(dtype: np.dtype, source: np.dtype | type = np.float32) -> Helper:
    kind, number = c_type(dtype), c_type(np.dtype(source))
    word = _RANGES[dtype.name]
    return instance(f"round_{number.suffix}_{kind.suffix}", _ROUND, T=kind.name, X=number.name,
                    f="f" if number.name == "float" else "",
                    MIN="0" if dtype.kind == "u" else f"{word}_MIN", MAX=f"{word}_MAX")


def _parameter(c: Context, value: Value, parameter: Value, axis: int, block: int) -> tuple[list[Dim], list[Dim]]:
    """A shape of ``value`` and the steps of a scale or zero point in it: one, one an axis, or one a block."""
    shape = list(value.shape)
    if parameter.rank == 0 or product(parameter.shape) == 1 and not block:
        return shape, [0] * len(shape)
    steps = strides_of(parameter.shape)
    if not block:
        if parameter.rank != 1:
            raise c.refusal(f"with a scale of shape {parameter.shape}")
        return shape, [1 if at == axis else 0 for at in range(len(shape))]
    size = c.known(value)[axis]
    if size % block:
        raise c.refusal("in blocks, the last of which is not full")
    shape[axis:axis + 1] = [size // block, block]
    return shape, [*steps[:axis + 1], 0, *steps[axis + 1:]]


def _with_parameters(c: Context, node: Node | None, value: Value, scale: Value, zero: Value | None, name: str,
                     text: str, dtype: np.dtype, needs: Sequence[Helper]) -> Value:
    attributes = {} if node is None else node.attributes
    axis = int(attributes.get("axis", 1)) % max(value.rank, 1)
    block = int(attributes.get("block_size", 0))
    shape, steps = _parameter(c, value, scale, axis, block)
    operands, along = [value, scale], [broadcast(shape, shape), steps]
    if zero is not None:
        operands.append(zero)
        along.append(_parameter(c, value, zero, axis, block)[1])
    result = each(c, name, text, operands, dtype, shape=shape, steps=along, needs=needs)
    return c.alias(result, value.shape)


def quantised(c: Context, value: Value, scale: Value, zero: Value | None, dtype: np.dtype | type,
              node: Node | None = None) -> Value:
    found = np.dtype(dtype)
    if found.name not in _RANGES:
        raise c.refusal(f"to {found}")
    rounded = round_helper(found, value.dtype)
    zero = _unless_zero(zero)
    text = f"{rounded.name}(x0 / x1, {'x2' if zero is not None else '0'})"
    return _with_parameters(c, node, value, scale, zero, "quantize" if zero is not None else "quantize0", text, found,
                            [rounded])


def dequantised(c: Context, value: Value, scale: Value, zero: Value | None, node: Node | None = None) -> Value:
    kind = c_type(scale.dtype).name
    zero = _unless_zero(zero)
    wide = "int32_t" if value.dtype.itemsize < 4 else "int64_t"
    text = f"({kind})x0 * x1" if zero is None else f"({kind})(({wide})x0 - ({wide})x2) * x1"
    return _with_parameters(c, node, value, scale, zero, "dequantize" if zero is not None else "dequantize0", text,
                            scale.dtype, ())


def _unless_zero(zero: Value | None) -> Value | None:
    return None if zero is not None and zero.array is not None and not zero.array.any() else zero


@operator("QuantizeLinear", domains=("", MICROSOFT))
def quantize(node: Node, c: Context) -> None:
    value, zero = c.input(0), c.optional(2)
    dtype = np.dtype(np.uint8)
    if zero is not None:
        dtype = zero.dtype
    elif node.attributes.get("output_dtype"):
        dtype = np.dtype(onnx_helper.tensor_dtype_to_np_dtype(node.attributes["output_dtype"]))
    if value.dtype.kind != "f" or node.attributes.get("precision", 0) not in (0, 1):
        raise c.refusal(f"of {value.dtype}, or with such a precision")
    c.result(quantised(c, value, c.input(1), zero, dtype, node))


@operator("DequantizeLinear", domains=("", MICROSOFT))
def dequantize(node: Node, c: Context) -> None:
    c.result(dequantised(c, c.input(0), c.input(1), c.optional(2), node))


@operator("DynamicQuantizeLinear")
def dynamic_quantize(node: Node, c: Context) -> None:
    value = c.input(0)
    scale, zero = c.new(np.float32, ()), c.new(np.uint8, ())
    c.call(instance("dynamic_scale", _DYNAMIC), product(value.shape), value, scale, zero)
    c.result(quantised(c, value, scale, zero, np.uint8))
    c.result(scale, 1)
    c.result(zero, 2)
