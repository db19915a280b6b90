"""Padding of images."""

from dataclasses import replace
from math import prod

import numpy as np

from gen.onnx.arrangement import possible, rearranged
from gen.onnx.channels import widened
from gen.onnx.constants import axes, constant, scalar
from gen.onnx.context import Context
from gen.onnx.edges import pad_integer, stored
from gen.onnx.model import NodeError
from gen.onnx.refusals import refusal
from gen.onnx.registry import Inputs, Registry, at
from gen.onnx.values import Constant, Padded, QuantisedConstant, Real, Value

__all__ = ["HANDLERS"]

HANDLERS = Registry()

#: Modes that put values of the tensor itself around it, as NumPy calls them, too.
_OWN = ("reflect", "edge", "wrap")


@HANDLERS.handles("Pad", conditions=(
    "as the padding of the Conv after it, also with QuantizeLinear and DequantizeLinear in between, else, and where "
    "the channels are last, a copy; of spatial axes, up to 63 rows and 15 columns a side, and of channels, by a 1x1 "
    "convolution that copies them. Mode constant, with any number that the tensor has a value for; modes reflect, edge "
    "and wrap by a layer that moves pixels. Negative padding cuts, as Slice does"))
def pad(context: Context, inputs: Inputs) -> Value:
    node = context.node
    mode = node.attributes.get("mode", "constant")
    if mode not in ("constant", *_OWN):
        raise NodeError(f"pads with mode {mode}; there are constant, {', '.join(_OWN)}", code="unsupported-form",
                        attribute="mode")
    value = inputs[0]
    if value is None or isinstance(value, Constant | QuantisedConstant):
        raise refusal(value, "its input")
    rank = value.order.ndim
    listed = node.attributes.get("pads")
    pads = np.zeros((2, rank), np.int64)
    named = np.array(listed) if listed is not None else constant(at(inputs, 1), "the padding")
    padded = axes(node, at(inputs, 3)) or range(rank)
    pads[:, [axis % rank for axis in padded]] = named.astype(np.int64).reshape(2, -1)
    if not pads.any():
        return value
    if mode != "constant":
        if rank < 3 or pads[:, 0].any():
            raise NodeError(f"pads channels or samples with mode {mode}; a layer moves whole pixels alone, so that of "
                            "spatial axes is one", code="unsupported-form", attribute="pads")
        return rearranged(node, value, lambda order: _bordered(order, pads, mode))
    real = context.activation(value)
    if rank in (3, 4) and _has_channels_last(context, real):
        moved, _ = context.feature_map(replace(real, quantised=replace(
            real.quantised, order=np.moveaxis(real.order, -1, 1))))
        around = _padded(context, inputs, moved, np.insert(pads[:, :-1], 1, pads[:, -1], 1))
        made = stored(context.graph, around) if isinstance(around, Padded) else around
        assert isinstance(made, Real)
        return replace(made, quantised=replace(made.quantised, order=np.moveaxis(made.order, 1, -1)))
    return _padded(context, inputs, real, pads)


def _bordered(order: np.ndarray, pads: np.ndarray, mode: str) -> np.ndarray:
    """An arrangement with its own values around it."""
    cut = np.maximum(-pads, 0)
    kept = tuple(slice(begin, size - end) for begin, end, size in zip(*cut, order.shape, strict=True))
    widths = [(int(begin), int(end)) for begin, end in np.maximum(pads, 0).T]
    return possible(np.pad(order[kept], widths, mode=mode))  # type: ignore[call-overload]


def _has_channels_last(context: Context, real: Real) -> bool:
    """Of three or four axes; the pixels of a single channel have it first."""
    channel = real.order // prod(context.graph.tensors[real.quantised.tensor].shape[1:])
    of_a_pixel = channel[(slice(None), *(slice(1),) * (channel.ndim - 2))]
    return bool(of_a_pixel.min() < of_a_pixel.max() and (channel == of_a_pixel).all())


def _padded(context: Context, inputs: Inputs, real: Real, pads: np.ndarray) -> Padded | Real:
    """``pads``: (2, axes), of which the second one has channels."""
    node, rank = context.node, real.order.ndim
    if rank not in (3, 4) or pads[:, 0].any():
        raise NodeError("pads samples, or what has no rows and columns; the machine pads channels and one or two "
                        "spatial axes", code="unsupported-form", attribute="pads")
    cut = np.maximum(-pads, 0)
    if cut.any():
        kept = tuple(slice(begin, size - end) for begin, end, size in zip(*cut, real.order.shape, strict=True))
        real = context.activation(rearranged(node, real, lambda order: possible(order[kept])))
        pads = np.maximum(pads, 0)
    number = scalar(at(inputs, 2), "the value", float(node.attributes.get("value", 0.0)))
    if pads[:, 1].any():
        real, _ = context.feature_map(real)
        counts = int(pads[0, 1]), int(pads[1, 1])
        real = widened(context.graph, real, counts, pad_integer(Padded(node.name, real, (0, 0, 0, 0), number)),
                       node.name)
        if not pads[:, 2:].any():
            return real
    begin, end = ([0] * (4 - rank) + row[2:].tolist() for row in pads)
    return Padded(node.name, real, (begin[0], begin[1], end[0], end[1]), number)
