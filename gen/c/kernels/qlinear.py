"""onnxruntime's operators on quantised tensors: those for floats, between dequantising and quantising."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gen.c.context import Context
from gen.c.each import each
from gen.c.kernels.movement import axis_of, joined
from gen.c.kernels.quantisation import dequantised, quantised, round_helper
from gen.c.kernels.reductions import softmax_of
from gen.c.registry import OPERATORS, operator
from gen.c.text import literal
from gen.c.value import Value
from gen.onnx.model import MICROSOFT, Node

__all__: list[str] = []


def _numbers(c: Context, first: int) -> Value:
    """What the integers stand for that are input ``first``, followed by their scale and zero point."""
    return dequantised(c, c.input(first), c.input(first + 1), c.optional(first + 2))


def _integers(c: Context, value: Value, first: int, like: Value) -> Value:
    """With the scale and zero point that are input ``first`` and the next one."""
    zero = c.optional(first + 1)
    return quantised(c, value, c.input(first), zero, like.dtype if zero is None else zero.dtype)


#: As onnxruntime rounds these: after the zero point of the result is added, in single precision.
_PAIRS = {
    "QLinearAdd": "(((float)x0 - za) * ra + ((float)x1 - zb) * rb) + zc",
    "QLinearMul": "((float)x0 - za) * ((float)x1 - zb) * ra + zc",
}


@operator(*_PAIRS, domains=(MICROSOFT,))
def two(node: Node, c: Context) -> None:
    first, second = c.input(0), c.input(3)
    numbers = [np.float32(0 if array is None else array.item())
               for array in (c.constant(index) for index in (1, 2, 4, 5, 6, 7))]
    scale_a, zero_a, scale_b, zero_b, scale_c, zero_c = numbers
    factors = ((scale_a / scale_c, scale_b / scale_c) if node.op == "QLinearAdd"
               else (scale_a * scale_b / scale_c, np.float32(0)))
    given = dict(zip(("ra", "rb", "za", "zb", "zc"), (*factors, zero_a, zero_b, zero_c), strict=True))
    if node.op == "QLinearMul":
        del given["rb"]
    rounded = round_helper(first.dtype)
    c.result(each(c, node.op.lower(), f"{rounded.name}({_PAIRS[node.op]}, 0)", [first, second], first.dtype,
                  parameters={word: ("float", literal(number, number.dtype)) for word, number in given.items()},
                  needs=[rounded]))


def _plain(node: Node, c: Context, value: Value, op: str) -> Value:
    """What ONNX's operator ``op`` makes of a tensor, with the attributes of this node."""
    inner = replace(node, domain="", op=op, inputs=("value",), outputs=("result",))
    own = replace(c, values={"value": value}, node=inner)
    OPERATORS["", op](inner, own)
    c._count = own._count
    return own.values["result"]


@operator("QLinearSigmoid", "QLinearLeakyRelu", "QLinearAveragePool", "QLinearGlobalAveragePool",
          domains=(MICROSOFT,))
def function(node: Node, c: Context) -> None:
    if node.attributes.get("channels_last", 0):
        raise c.refusal("with channels last")
    c.result(_integers(c, _plain(node, c, _numbers(c, 0), node.op.removeprefix("QLinear")), 3, c.input(0)))


@operator("QLinearSoftmax", domains=(MICROSOFT,))
def softmax(node: Node, c: Context) -> None:
    value = _numbers(c, 0)
    older = int(node.attributes.get("opset", 13)) < 13
    c.result(_integers(c, softmax_of(c, value, axis_of(node, value.rank, -1), log=False, flat=older), 3, c.input(0)))


@operator("QLinearConcat", domains=(MICROSOFT,))
def concat(node: Node, c: Context) -> None:
    values: Sequence[Value] = [_integers(c, _numbers(c, first), 0, c.input(first))
                               for first in range(2, len(node.inputs), 3)]
    c.result(joined(c, values, axis_of(node, values[0].rank)))
