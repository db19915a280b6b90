"""Layers of a quantised model whose sums are those of streams (docs/stochastic.md), by the circuit AND-LOOP.

Its sum is that of all bits of all products, so it is the layer itself on more channels: a channel for each bit of each
value. Backwards the layer is what it was, a straight-through estimator.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch import Tensor

from cores.arch.stochastic import Sequence
from gen.prune.layers import ModelView
from gen.train.call import Call
from gen.train.errors import TrainError
from sim.stochastic.streams import Streams, offsets

__all__ = ["StreamLayers", "StreamScales"]

_VALUES = np.arange(-128, 128)
#: Bits that are computed at once.
_AT_ONCE = 32


@dataclass(frozen=True)
class StreamScales:
    """Names of the scales of a layer's input and weights."""

    source: str
    weights: str


class StreamLayers:
    """Those of a QDQ model that `gen compile --stochastic` has in streams: neither in groups nor reading an input.

    ``found``: node -> its scales. Raises TrainError where there are none, or one's input is not around 0; ValueError
    for ``bits`` that streams cannot have.
    """

    def __init__(self, view: ModelView, bits: int) -> None:
        self._streams = Streams(bits)
        sign = np.where(_VALUES < 0, -1, 1)[:, None]
        self._bits = [torch.tensor(sign * (offsets(_VALUES, bipolar=False)[:, None] > self._streams.thresholds(
            sequence, bipolar=False)), dtype=torch.float32) for sequence in (Sequence.ACTIVATIONS, Sequence.WEIGHTS)]
        self.found: Mapping[str, StreamScales] = {
            node.name: scales for node in view.model.graph.node
            if node.op_type in ("Conv", "Gemm", "MatMul") and (scales := _scales(view, node)) is not None}
        if not self.found:
            raise TrainError("no layer can be trained through streams: they are of models that `quantize --symmetric` "
                             "has made, and of layers that read no input of the model")

    def add_excess(self, result: Tensor, node: onnx.NodeProto, call: Call, apply: Callable[[Call], Tensor],
                   source: Tensor, weights: Tensor) -> Tensor:
        """``result`` of a layer that ``apply`` computes, with what streams add to it; its scales as they are now."""
        with torch.no_grad():
            by_channel = _along_outputs(node, weights, result)
            integers = [torch.round(call[0] / source), torch.round(call[1] / _along(_outputs(node), weights, call[1]))]
            axes = _reduced(node)

            def products(operands: list[Tensor]) -> Tensor:
                return apply(replace(call, inputs=list(operands)))

            sums = -products(integers)
            for begin in range(0, self._streams.made, _AT_ONCE):
                part = slice(begin, begin + _AT_ONCE)
                sums += self._streams.weight * products([
                    _as_channels(bits[:, part], values, axis)
                    for bits, values, axis in zip(self._bits, integers, axes, strict=True)])
            excess = sums * source * by_channel
        return result + excess


def _as_channels(bits: Tensor, values: Tensor, axis: int) -> Tensor:
    """``bits`` (256, made) of each of ``values``, along ``axis``."""
    axis %= values.ndim
    found = bits[values.long() + 128].movedim(-1, axis + 1)
    return found.flatten(axis, axis + 1)


def _attribute(node: onnx.NodeProto, name: str) -> int:
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), 0)


def _reduced(node: onnx.NodeProto) -> tuple[int, int]:
    """The axes of input and weights that products are summed along."""
    if node.op_type == "Conv":
        return 1, 1
    return -1, -1 if _attribute(node, "transB") else -2


def _outputs(node: onnx.NodeProto) -> int:
    """The axis of the weights that has the outputs."""
    return 0 if node.op_type == "Conv" or _attribute(node, "transB") else -1


def _along(axis: int, scale: Tensor, x: Tensor) -> Tensor:
    return scale.reshape(()) if scale.numel() == 1 else scale.reshape(
        [-1 if place == axis % x.ndim else 1 for place in range(x.ndim)])


def _along_outputs(node: onnx.NodeProto, scale: Tensor, result: Tensor) -> Tensor:
    return _along(1 if node.op_type == "Conv" else -1, scale, result)


def _scales(view: ModelView, node: onnx.NodeProto) -> StreamScales | None:
    """None for a layer that stays exact."""
    source, weights = (_dequantised(view, name) for name in node.input[:2])
    if source is None or weights is None or weights.input[0] not in view.constants:
        return None
    quantised = view.makers.get(source.input[0])
    inputs = {value.name for value in view.model.graph.input}
    if quantised is None or quantised.input[0] in inputs or _attribute(node, "group") > 1 or _attribute(node, "transA"):
        return None
    # Without one it is an unsigned 0; the machine's integers are signed.
    point = numpy_helper.to_array(view.constants[source.input[2]]) if len(source.input) > 2 else np.zeros((), np.uint8)
    if np.any(point != (128 if point.dtype == np.uint8 else 0)):
        raise TrainError(f"node {node.name}: its input has a zero point, and streams stand for numbers around 0; "
                         "quantise the model with --symmetric", node=node.name)
    return StreamScales(source.input[1], weights.input[1])


def _dequantised(view: ModelView, name: str) -> onnx.NodeProto | None:
    """The DequantizeLinear that a value is of, which may be moved after that."""
    maker = view.makers.get(name)
    while maker is not None and maker.op_type != "DequantizeLinear":
        maker = view.makers.get(maker.input[0]) if len(maker.input) == 1 or maker.op_type == "Reshape" else None
    return maker
