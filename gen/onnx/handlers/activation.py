"""Activation functions."""

from dataclasses import replace

import numpy as np

from gen.ir.epilogue.leaky import Leaky
from gen.ir.tensor import Tensor
from gen.onnx.builder import Result
from gen.onnx.constants import constant, scalar
from gen.onnx.context import Context
from gen.onnx.handlers.affine import affine
from gen.onnx.model import NodeError
from gen.onnx.pooling import copy
from gen.onnx.quant_scales import same
from gen.onnx.refusals import refusal
from gen.onnx.registry import Inputs, Registry, at
from gen.onnx.values import (
    Pending,
    PendingAdd,
    PendingBend,
    PendingOperation,
    PendingTable,
    Quantisation,
    Real,
    Unquantised,
    Value,
)
from sim.golden import quantize_residual

__all__ = ["HANDLERS", "leaky_relu"]

HANDLERS = Registry()


@HANDLERS.handles("Relu", "Clip", conditions="in the layer in front of it, else as a copy; constant bounds")
def clip(context: Context, inputs: Inputs) -> Value:
    node, value = context.node, inputs[0]
    low, high = (0.0, np.inf) if node.op == "Relu" else (-np.inf, np.inf)
    if node.op == "Clip":
        low = scalar(at(inputs, 1), "the minimum", float(node.attributes.get("min", -np.inf)))
        high = scalar(at(inputs, 2), "the maximum", float(node.attributes.get("max", np.inf)))
        low = min(low, high)        # where they are the wrong way round, all is the maximum
    if isinstance(value, Real):
        return replace(copy(context, context.activation(value)), low=low, high=high)
    if isinstance(value, Unquantised) and not isinstance(value, PendingTable):
        return value.clipped(low, high, node.name)
    raise refusal(value, "its input")


@HANDLERS.handles("LeakyRelu", conditions=(
    "of a quantised tensor, in the layer in front of it if nothing else reads that and it adds nothing, else as a "
    "copy; two cycles of the store engine for each pixel of a block. Of a layer's unquantised result in that layer, "
    "which is there twice, once for what is negative, where nine bits do not hold both. The slope must not be "
    "negative"))
def leaky_relu(context: Context, inputs: Inputs) -> Value:
    return _bent(context, inputs[0], float(context.node.attributes.get("alpha", 0.01)), "alpha")


@HANDLERS.handles("PRelu", conditions=(
    "with one slope as LeakyRelu. With one for each channel, none above 1, as a sum of the tensor and what a slope "
    "takes from what is negative: a layer, three cycles of the store engine for each pixel of a block. Where slopes "
    "are above 1, or its result has much finer steps than what it reads, as copies of what is positive and of what is "
    "negative, the latter times the slopes, which are added: four cycles, six where a slope is negative"))
def prelu(context: Context, inputs: Inputs) -> Value:
    slopes = constant(at(inputs, 1), "the slope")
    if slopes.size == 1 or not np.ptp(slopes):
        return _bent(context, inputs[0], float(slopes.flat[0]), "the slope")
    if isinstance(inputs[0], Pending) and slopes.min() >= 0:
        return _bent_layer(context, inputs[0], slopes.astype(np.float64))
    real, slopes = context.activation(inputs[0]), slopes.astype(np.float64)
    return _bent_by_channel(context, real, slopes) if slopes.max() > 1 else _less_below_zero(context, real, slopes)


def _less_below_zero(context: Context, real: Real, slopes: np.ndarray) -> PendingAdd:
    """``real``, and what is negative of it times ``slopes - 1``, none of which is above zero."""
    name = context.node.name
    opposite = affine(context, real, slopes - 1, np.zeros(1), always=True)
    assert isinstance(opposite, Pending)
    return PendingAdd(name=name, nodes=(name,), order=real.order, b=real,
                      a=replace(opposite.clipped(0.0, np.inf, name), name=name, nodes=()),
                      instead=lambda: _bent_by_channel(context, real, slopes))


def _bent_by_channel(context: Context, real: Real, slopes: np.ndarray) -> PendingAdd:
    """What is positive of ``real``, and the rest times ``slopes``: of each value one is zero."""
    name, rest = context.node.name, real
    positive = _end(context, real, "positive", low=True)
    if slopes.min() < 0:        # what they make positive is not to be clipped
        rest = _end(context, real, "negative", low=False)
    scaled = affine(context, rest, slopes, np.zeros(1), always=True)
    assert isinstance(scaled, Pending)
    scaled = replace(scaled if rest is not real else scaled.clipped(-np.inf, 0.0, name), name=name, nodes=())
    return PendingAdd(name=name, nodes=(name,), order=real.order, a=scaled, b=positive, apart=True)


def _end(context: Context, real: Real, what: str, *, low: bool) -> Real:
    """The part of ``real`` above 0 if ``low``, else that below: a tensor of the same scale."""
    graph = context.graph
    source, point, unsigned = graph.tensors[real.quantised.tensor], real.zero_point, real.quantised.unsigned
    stage = same(replace(source, zero_point=point), source.shape[0])
    stage = replace(stage, low=point) if low else replace(stage, high=point)
    kept = Quantisation(real.scale, point + 128 * unsigned, unsigned)
    layer = replace(copy(context, real), name=f"{context.node.name}/{what}", nodes=())
    return replace(real, quantised=graph.add_layer(layer, stage, result=Result(None, kept)))


def _bent_layer(context: Context, value: Pending, slopes: np.ndarray) -> PendingBend:
    """A layer's unquantised result, times ``slopes``, none of which is negative, where that is."""
    name = context.node.name
    scaled = affine(context, value, slopes, np.zeros(1))
    assert isinstance(scaled, Pending)
    return PendingBend(name=name, nodes=(name,), order=value.order, moved_by=value.moved_by,
                       above=replace(value, name=f"{name}/positive", nodes=()),
                       below=replace(scaled, nodes=value.nodes), slope=float(slopes[0]) if slopes.size == 1 else None)


def _bent(context: Context, value: Value | None, slope: float, what: str) -> Value:
    """``value``, times ``slope`` where it is negative; rounded once, after the rounding of ``value``."""
    if not 0 <= slope < np.inf:
        raise NodeError(f"{what} must not be negative, not {slope:g}: the machine has no falling activation functions",
                        code="unsupported-form")
    if isinstance(value, Pending) and slope not in (0, 1):
        return _bent_layer(context, value, np.full(1, slope))
    node, real = context.node, value if isinstance(value, Pending) else context.activation(value)
    if slope == 1:
        return real
    if isinstance(real, Pending):
        return real.clipped(0.0, np.inf, node.name)
    if slope == 0:
        return replace(copy(context, real), low=0.0)

    def operation(middle: Tensor, result: Quantisation, bounds: tuple[int, int]) -> Leaky:
        factors = middle.scale / result.scale, slope * middle.scale / result.scale
        multiplier, negative, shift = quantize_residual(*factors)
        return Leaky(middle=middle, multiplier=multiplier, negative=negative, shift=shift, zero_point=result.internal,
                     low=bounds[0], high=bounds[1])

    return PendingOperation(name=node.name, nodes=(node.name,), order=real.order, real=real, operation=operation)
