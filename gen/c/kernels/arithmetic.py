"""Functions of one number, arithmetic, comparisons and logic."""

from collections.abc import Sequence
from functools import reduce

import numpy as np
from onnx import helper

from gen.c.context import Context
from gen.c.each import each
from gen.c.helper import Helper, instance
from gen.c.registry import operator
from gen.c.text import c_type, literal
from gen.c.value import Value
from gen.onnx.model import MICROSOFT, Node

__all__: list[str] = []

#: Functions of floats, $f standing for the suffix of C's functions and constants, and $T for the type.
_FUNCTIONS = {
    "Acos": "acos$f(x0)", "Acosh": "acosh$f(x0)", "Asin": "asin$f(x0)", "Asinh": "asinh$f(x0)", "Atan": "atan$f(x0)",
    "Atanh": "atanh$f(x0)", "Cos": "cos$f(x0)", "Cosh": "cosh$f(x0)", "Sin": "sin$f(x0)", "Sinh": "sinh$f(x0)",
    "Tan": "tan$f(x0)", "Tanh": "tanh$f(x0)", "Exp": "exp$f(x0)", "Log": "log$f(x0)", "Sqrt": "sqrt$f(x0)",
    "Erf": "erf$f(x0)", "Ceil": "ceil$f(x0)", "Floor": "floor$f(x0)", "Round": "rint$f(x0)",
    "Reciprocal": "1.0$f / x0",
    "Sigmoid": "x0 >= 0.0$f ? 1.0$f / (1.0$f + exp$f(-x0)) : 1.0$f - 1.0$f / (1.0$f + exp$f(x0))",
    "Softplus": "x0 > 0.0$f ? x0 + log1p$f(exp$f(-x0)) : log1p$f(exp$f(x0))",
    "Softsign": "x0 / (1.0$f + fabs$f(x0))",
    "HardSwish": "x0 * fmax$f(0.0$f, fmin$f(1.0$f, x0 / 6.0$f + 0.5$f))",
    "Mish": "x0 * tanh$f(x0 > 0.0$f ? x0 + log1p$f(exp$f(-x0)) : log1p$f(exp$f(x0)))",
}
#: The same with attributes, and what these are if they are left out.
_PARAMETRIC = {
    "LeakyRelu": ("x0 >= 0.0$f ? x0 : alpha * x0", {"alpha": 0.01}),
    "ThresholdedRelu": ("x0 > alpha ? x0 : 0.0$f", {"alpha": 1.0}),
    "Elu": ("x0 >= 0.0$f ? x0 : alpha * expm1$f(x0)", {"alpha": 1.0}),
    "Celu": ("fmax$f(0.0$f, x0) + fmin$f(0.0$f, alpha * expm1$f(x0 / alpha))", {"alpha": 1.0}),
    "Selu": ("gamma * (x0 > 0.0$f ? x0 : alpha * expm1$f(x0))",
             {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}),
    "HardSigmoid": ("fmax$f(0.0$f, fmin$f(1.0$f, alpha * x0 + beta))", {"alpha": 0.2, "beta": 0.5}),
    "Shrink": ("x0 < -lambd ? x0 + bias : x0 > lambd ? x0 - bias : 0.0$f", {"lambd": 0.5, "bias": 0.0}),
    "Swish": ("x0 / (1.0$f + exp$f(-alpha * x0))", {"alpha": 1.0}),
    "QuickGelu": ("x0 / (1.0$f + exp$f(-alpha * x0))", {"alpha": 1.702}),
}
_GELU = "0.5$f * x0 * (1.0$f + erf$f(x0 * 0.70710678118654752440$f))"
_GELU_TANH = "0.5$f * x0 * (1.0$f + tanh$f(0.79788456080286535588$f * (x0 + 0.044715$f * x0 * x0 * x0)))"
#: Of numbers of any type; integers wrap around in $W.
_ARITHMETIC = {
    "Add": ("x0 + x1", "($W)x0 + ($W)x1"),
    "Sub": ("x0 - x1", "($W)x0 - ($W)x1"),
    "Mul": ("x0 * x1", "($W)x0 * ($W)x1"),
}
_SIGNED_DIV = "x1 == 0 ? ($T)0 : x1 == -1 ? ($T)(($W)0 - ($W)x0) : ($T)(x0 / x1)"
_UNSIGNED_DIV = "x1 == 0 ? 0 : x0 / x1"
_COMPARISONS = {"Equal": "==", "Greater": ">", "GreaterOrEqual": ">=", "Less": "<", "LessOrEqual": "<="}
_LOGIC = {"And": "x0 && x1", "Or": "x0 || x1", "Xor": "x0 != x1"}
_BITS = {"BitwiseAnd": "x0 & x1", "BitwiseOr": "x0 | x1", "BitwiseXor": "x0 ^ x1"}
_FLOOR_MOD = """
/* The remainder that has the sign of the divisor. */
static $T $name($T a, $T b)
{
    const $T rest = ($T)(b == 0$minus ? 0 : a % b);
    return $adjusted;
}
"""
_FLOAT_MOD = """
/* The remainder that has the sign of the divisor. */
static $T $name($T a, $T b)
{
    const $T rest = fmod$f(a, b);
    if (rest == 0.0$f)
        return copysign$f(rest, b);
    return (rest < 0.0$f) != (b < 0.0$f) ? rest + b : rest;
}
"""


def spelled(text: str, dtype: np.dtype) -> str:
    """An expression for numbers of this type."""
    kind = c_type(dtype)
    return (text.replace("$f", "f" if dtype == np.float32 else "").replace("$T", kind.name)
            .replace("$W", kind.wide))


def float_input(c: Context, index: int = 0) -> Value:
    value = c.input(index)
    if value.dtype.kind != "f":
        raise c.refusal(f"of {value.dtype}")
    return value


@operator(*_FUNCTIONS)
def function(node: Node, c: Context) -> None:
    value = float_input(c)
    c.result(each(c, node.op.lower(), spelled(_FUNCTIONS[node.op], value.dtype), [value], value.dtype))


@operator(*(set(_PARAMETRIC) - {"QuickGelu"}))
@operator("QuickGelu", domains=(MICROSOFT,))
def parametric(node: Node, c: Context) -> None:
    value = float_input(c)
    text, defaults = _PARAMETRIC[node.op]
    kind = c_type(value.dtype).name
    given = {word: (kind, literal(node.attributes.get(word, default), np.dtype(np.float32)))
             for word, default in defaults.items()}
    c.result(each(c, node.op.lower(), spelled(text, value.dtype), [value], value.dtype, parameters=given))


@operator("Gelu", domains=("", MICROSOFT))
def gelu(node: Node, c: Context) -> None:
    value = float_input(c)
    tanh = node.attributes.get("approximate", b"none") in (b"tanh", "tanh")
    c.result(each(c, "gelu_tanh" if tanh else "gelu", spelled(_GELU_TANH if tanh else _GELU, value.dtype), [value],
                  value.dtype))


@operator("FastGelu", "BiasGelu", domains=(MICROSOFT,))
def gelu_of_sum(node: Node, c: Context) -> None:
    value = float_input(c)
    if c.optional(1) is not None:
        value = each(c, "add", "x0 + x1", [value, c.input(1)], value.dtype)
    fast = node.op == "FastGelu"
    c.result(each(c, "gelu_tanh" if fast else "gelu", spelled(_GELU_TANH if fast else _GELU, value.dtype), [value],
                  value.dtype))


@operator("Relu", "Abs", "Neg", "Sign")
def signs(node: Node, c: Context) -> None:
    value = c.input(0)
    if value.dtype.kind == "f":
        text = {"Relu": "x0 > 0 ? x0 : 0", "Abs": "fabs$f(x0)", "Neg": "-x0",
                "Sign": "($T)(x0 > 0) - ($T)(x0 < 0)"}[node.op]
        text = text.replace("0 ?", "0.0$f ?").replace(": 0", ": 0.0$f")
    elif value.dtype.kind == "u":
        text = {"Relu": "x0", "Abs": "x0", "Neg": "($W)0 - ($W)x0", "Sign": "x0 > 0"}[node.op]
    else:
        text = {"Relu": "x0 > 0 ? x0 : 0", "Abs": "x0 < 0 ? ($T)(($W)0 - ($W)x0) : x0",
                "Neg": "($W)0 - ($W)x0", "Sign": "(x0 > 0) - (x0 < 0)"}[node.op]
    c.result(each(c, node.op.lower(), spelled(text, value.dtype), [value], value.dtype))


@operator("IsNaN", "IsInf")
def classes(node: Node, c: Context) -> None:
    value = float_input(c)
    text = "isnan(x0) ? 1 : 0"
    name = "isnan"
    if node.op == "IsInf":
        low, high = node.attributes.get("detect_negative", 1), node.attributes.get("detect_positive", 1)
        signs_of = {(1, 1): "", (0, 1): " && x0 > 0", (1, 0): " && x0 < 0"}
        if (low, high) not in signs_of:
            raise c.refusal("that detects nothing")
        name = f"isinf{low}{high}"
        text = f"isinf(x0){signs_of[low, high]} ? 1 : 0"
    c.result(each(c, name, text, [value], np.bool_))


def sum_of(c: Context, first: Value, second: Value) -> Value:
    return arithmetic(c, "Add", first, second)


def arithmetic(c: Context, op: str, first: Value, second: Value) -> Value:
    """Raises NodeError for shapes that do not go together."""
    of_floats, of_integers = _ARITHMETIC[op]
    text = of_floats if first.dtype.kind == "f" else of_integers
    return each(c, op.lower(), spelled(text, first.dtype), [first, second], first.dtype)


@operator("Add", "Sub", "Mul")
def two(node: Node, c: Context) -> None:
    c.result(arithmetic(c, node.op, c.input(0), c.input(1)))


@operator("Div")
def divide(node: Node, c: Context) -> None:
    first = c.input(0)
    text = {"f": "x0 / x1", "i": _SIGNED_DIV, "u": _UNSIGNED_DIV}[first.dtype.kind]
    c.result(each(c, "div", spelled(text, first.dtype), [first, c.input(1)], first.dtype))


@operator("Mod")
def modulo(node: Node, c: Context) -> None:
    first = c.input(0)
    dtype = first.dtype
    kind = c_type(dtype)
    if dtype.kind == "f":
        text, needs = spelled("fmod$f(x0, x1)", dtype), []
        if not node.attributes.get("fmod", 0):
            needs = [instance(f"modulo_{kind.suffix}", spelled(_FLOAT_MOD, dtype))]
            text = f"{needs[0].name}(x0, x1)"
        c.result(each(c, "mod" if needs else "fmod", text, [first, c.input(1)], dtype, needs=needs))
        return
    signed = dtype.kind == "i"
    adjust = signed and not node.attributes.get("fmod", 0)
    remainder = instance(
        f"{'modulo' if adjust else 'remainder'}_{kind.suffix}", _FLOOR_MOD, T=kind.name,
        minus=" || b == -1" if signed else "",
        adjusted=f"rest != 0 && (rest < 0) != (b < 0) ? ({kind.name})(rest + b) : rest" if adjust else "rest")
    c.result(each(c, "mod" if adjust else "rem", f"{remainder.name}(x0, x1)", [first, c.input(1)], dtype,
                  needs=[remainder]))


@operator("Pow")
def power(node: Node, c: Context) -> None:
    first, second = c.input(0), c.input(1)
    if first.dtype == np.float32 and second.dtype == np.float32:
        if second.array is not None and second.array.size == 1 and second.array.item() == 2:
            c.result(c.alias(each(c, "square", "x0 * x0", [first], first.dtype),
                             (*[1] * (second.rank - first.rank), *first.shape)))
            return
        text = "powf(x0, x1)"
    else:
        text = spelled("($T)pow((double)x0, (double)x1)", first.dtype)
    c.result(each(c, "pow", text, [first, second], first.dtype))


@operator(*_COMPARISONS)
def compare(node: Node, c: Context) -> None:
    c.result(each(c, node.op.lower(), f"x0 {_COMPARISONS[node.op]} x1 ? 1 : 0", [c.input(0), c.input(1)],
                  np.bool_))


@operator(*_LOGIC)
def logic(node: Node, c: Context) -> None:
    c.result(each(c, node.op.lower(), f"{_LOGIC[node.op]} ? 1 : 0", [c.input(0), c.input(1)], np.bool_))


@operator("Not")
def negation(node: Node, c: Context) -> None:
    c.result(each(c, "not", "!x0", [c.input(0)], np.bool_))


@operator(*_BITS, "BitwiseNot")
def bits(node: Node, c: Context) -> None:
    first = c.input(0)
    operands = [first] if node.op == "BitwiseNot" else [first, c.input(1)]
    text = "~x0" if node.op == "BitwiseNot" else _BITS[node.op]
    c.result(each(c, node.op.lower(), text, operands, first.dtype))


@operator("Where")
def choose(node: Node, c: Context) -> None:
    second = c.input(1)
    c.result(each(c, "where", "x0 ? x1 : x2", [c.input(0), second, c.input(2)], second.dtype))


def _variadic(node: Node, c: Context) -> list[Value]:
    return [c.input(index) for index in range(len(node.inputs))]


@operator("Min", "Max")
def extremes(node: Node, c: Context) -> None:
    sign = "<" if node.op == "Min" else ">"
    nan = " || isnan(x0)" if c.input(0).dtype.kind == "f" else ""
    text = f"x0 {sign} x1{nan} ? x0 : x1"

    def pair(first: Value, second: Value) -> Value:
        return each(c, node.op.lower(), text, [first, second], first.dtype)

    c.result(reduce(pair, _variadic(node, c)))


@operator("Sum", "Mean")
def sums(node: Node, c: Context) -> None:
    values = _variadic(node, c)
    total = reduce(lambda first, second: sum_of(c, first, second), values)
    if node.op == "Mean":
        kind = c_type(total.dtype).name
        total = each(c, "scale", "x0 * factor", [total], total.dtype, parameters={
            "factor": (kind, literal(1 / len(values), total.dtype))})
    c.result(total)


@operator("PRelu")
def prelu(node: Node, c: Context) -> None:
    value = c.input(0)
    zero = spelled("0.0$f" if value.dtype.kind == "f" else "0", value.dtype)
    text = f"x0 < {zero} ? ({c_type(value.dtype).name})(x0 * x1) : x0"
    c.result(each(c, "prelu", text, [value, c.input(1)], value.dtype))


def clipped(c: Context, value: Value, low: Value | None, high: Value | None) -> Value:
    bounds: Sequence[tuple[str, Value | None, str]] = (("atleast", low, "x0 < x1 ? x1 : x0"),
                                                       ("atmost", high, "x0 > x1 ? x1 : x0"))
    for name, bound, text in bounds:
        if bound is not None:
            value = each(c, name, text, [value, c.alias(bound, ())], value.dtype)
    return value


@operator("Clip")
def clip(node: Node, c: Context) -> None:
    value = c.input(0)
    if c.opset < 11:
        low, high = (None if word not in node.attributes else
                     Value(value.dtype, (), array=np.array(node.attributes[word], value.dtype))
                     for word in ("min", "max"))
    else:
        low, high = c.optional(1), c.optional(2)
    c.result(clipped(c, value, low, high))


_CAST = """
/* As C does it, where that is defined; else the nearest bound, and 0 for what is no number. */
static $Y $name($X x)
{
    if (!(x > $low))
        return isnan(x) ? ($Y)0 : $bottom;
    return x < $high ? ($Y)x : $top;
}
"""


def _cast_helper(source: np.dtype, target: np.dtype) -> Helper:
    kind, to = c_type(source), c_type(target)
    info = np.iinfo(target)
    suffix = "f" if source == np.float32 else ""
    name = to.name.removesuffix("_t").upper()
    return instance(
        f"to_{to.suffix}_of_{kind.suffix}", _CAST, X=kind.name, Y=to.name,
        low=f"{float(info.min)}{suffix}", high=f"{float(info.max + 1)}{suffix}",
        bottom="0" if info.min == 0 else f"{name}_MIN", top=f"{name}_MAX")


def cast(c: Context, value: Value, dtype: np.dtype) -> Value:
    """The same numbers of another type."""
    if value.dtype == dtype:
        return value
    to = c_type(dtype)
    if dtype == np.bool_:
        zero = {"f": "0.0f" if value.dtype == np.float32 else "0.0"}.get(value.dtype.kind, "0")
        return each(c, "cast", f"x0 != {zero} ? 1 : 0", [value], dtype)
    if value.dtype.kind == "f" and dtype.kind in "iu":
        one = _cast_helper(value.dtype, dtype)
        return each(c, "cast", f"{one.name}(x0)", [value], dtype, needs=[one])
    return each(c, "cast", f"({to.name})x0", [value], dtype)


@operator("Cast", "CastLike")
def casts(node: Node, c: Context) -> None:
    if node.op == "CastLike":
        dtype = c.input(1).dtype
    else:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(node.attributes["to"]))
    try:
        c_type(dtype)
    except KeyError:
        raise c.refusal(f"to {dtype}") from None
    c.result(cast(c, c.input(0), dtype))
