"""Normalisations over the channels of each pixel."""

import numpy as np

from gen.onnx.constants import constant
from gen.onnx.context import Context
from gen.onnx.model import NodeError
from gen.onnx.refusals import refusal
from gen.onnx.registry import Inputs, Registry, at
from gen.onnx.rows import normalised
from gen.onnx.values import Constant, Real, Value

__all__ = ["HANDLERS"]

HANDLERS = Registry()


@HANDLERS.handles("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization", conditions=(
    "over the last axis, which is that of the channels, or of each head's, at most 2,047, and of more than 1,024 in "
    "coarser steps, whose sums have room. Constant scales and biases; where scales are negative a depthwise layer "
    "negates the channels. With `--features rows`. Over all axes of (N, C, ...), or those after the channels, "
    "`quantize` makes layers in a float model, as of InstanceNormalization"))
def normalisation(context: Context, inputs: Inputs) -> Value:
    node, value = context.node, inputs[0]
    if not isinstance(value, Real):
        raise refusal(value, "its input")
    axes, size = value.order.ndim, value.order.shape[-1]
    if int(node.attributes.get("axis", -1)) % axes != axes - 1:
        raise NodeError("normalises several axes; the machine does the last one between quantised values, and "
                        "`quantize` makes layers of others in a float model", code="unsupported-form")
    gamma, beta = (np.broadcast_to(np.asarray(constant(given, what), np.float64).reshape(-1), size)
                   for given, what in ((inputs[1], "its scale"), (_bias(inputs), "its bias")))
    if not (np.isfinite(gamma).all() and np.isfinite(beta).all() and gamma.any()):
        raise NodeError("its scales and biases must be finite, and some scale other than zero", code="bad-scale")
    if not context.units.have("rows"):
        raise NodeError("normalises; --features rows does that on the accelerator", code="needs-unit", unit="rows")
    found = normalised(context, value, float(node.attributes.get("epsilon", 1e-5)), gamma, beta,
                       centred=node.op == "LayerNormalization")
    if found is None:
        raise NodeError("normalises an axis that is not that of the channels, at most 2,047 and whole",
                        code="rearranged")
    return found


def _bias(inputs: Inputs) -> Value:
    given = at(inputs, 2)
    return Constant(np.zeros(1)) if given is None else given
