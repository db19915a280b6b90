"""Operators that stand for several and that were not spread: why.

Those that can be are others before the model gets here (`gen.onnx.passes.spread_fused`).
"""

from gen.onnx.context import Context
from gen.onnx.fused import SPREADS, Fused, LaterError, UnsupportedError
from gen.onnx.fused.qonnx import DOMAINS
from gen.onnx.model import MICROSOFT, NodeError
from gen.onnx.registry import Inputs, Place, Registry
from gen.onnx.values import Constant, Value

__all__ = ["HANDLERS"]

HANDLERS = Registry()


@HANDLERS.handles("Attention", place=Place.COMPILER, conditions=(
    "is taken apart: MatMul, Mul, Add of masks, Softmax. Masks are constants, causal or windows, and leave each token "
    "a key. Past keys and values, of a number that is known, are joined with new ones (Concat). Without scores as a "
    "result"))
@HANDLERS.handles("Attention", "MultiHeadAttention", domains=[MICROSOFT], place=Place.COMPILER, conditions=(
    "is taken apart, as that of ONNX; constant weights, and an `attention_bias`. Queries, keys and values are not "
    "packed in one; without masks of tokens, and `do_rotary`; past keys and values of MultiHeadAttention alone"))
@HANDLERS.handles("RotaryEmbedding", domains=["", MICROSOFT], place=Place.COMPILER, conditions=(
    "is taken apart: Slice, Neg, Concat, Mul, Add. Angles and positions are constants, and all channels of a head "
    "turn"))
@HANDLERS.handles("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "BiasGelu", domains=[MICROSOFT],
                  place=Place.COMPILER, conditions="is taken apart: Add and what follows it")
@HANDLERS.handles("MatMulNBits", domains=[MICROSOFT], place=Place.COMPILER, conditions=(
    "is MatMul and Add of weights that are constants of 2, 4 or 8 bits; these get eight bits and a scale for each "
    "output. Zero points are integers, and inputs in their order"))
@HANDLERS.handles("Quant", "IntQuant", "BipolarQuant", domains=DOMAINS, place=Place.COMPILER, conditions=(
    "is QuantizeLinear and DequantizeLinear, with a Clip in front for fewer than eight bits; of constants integers "
    "with their scale. BipolarQuant is a Sign. Scales and zero points are constants; activations have one scale, at "
    "most eight bits, and are rounded to even"))
def whole(context: Context, inputs: Inputs) -> Value:
    node = context.node
    given = dict(zip(node.inputs, inputs, strict=True))
    constants = {name: value.array for name, value in given.items() if isinstance(value, Constant)}
    shapes = {name: tuple(value.order.shape) for name, value in given.items()
              if value is not None and hasattr(value, "order")}
    try:
        SPREADS[node.domain, node.op](Fused(node.proto, constants, shapes, set()))
    except UnsupportedError as error:
        raise NodeError(str(error), code="unsupported-form") from None
    except LaterError:
        pass
    raise NodeError("is not taken apart, as shapes in front of it are not known; give the model's inputs fixed shapes",
                    code="unsupported-form")
