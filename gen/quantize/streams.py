"""What streams of bits make of an int8 layer, and what ranges and biases can do about it (docs/stochastic.md).

Streams err by about a bit, whatever the product: small ones are the worse. And they do not err by chance, as all share
their sequences: number 0 of each is 0, so a product of two small numbers is one bit too much. A range that fits makes
products larger; what a channel's sums have too much in the mean goes into its bias.
"""

from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from cores.arch.stochastic import ACC_BLOCK, Circuit
from gen.onnx.windows import resolve
from gen.quantize.plan import Layer, Plan
from gen.quantize.prepare import initializers
from gen.quantize.sessions import Progress, Samples, values_of
from sim.stochastic.fast import accumulate
from sim.stochastic.streams import Streams

__all__ = ["correct_for_streams", "least_stream_error", "stream_layers"]

#: Samples that means are taken over.
_SAMPLES = 64
_VALUES = np.arange(-128, 128)
#: Of a layer's weights in int8, taken for normally distributed: a third of the range.
_DEVIATION = 127 / 3
#: Of the whole range, that are tried.
_SHARES = np.linspace(0.02, 1, 197)


def stream_layers(model: onnx.ModelProto, plan: Plan) -> list[Layer]:
    """Those of ``plan`` that `gen compile --stochastic` has in streams: neither depthwise nor reading an input."""
    nodes = {node.name: node for node in model.graph.node}
    return [layer for layer in plan.layers if plan.tensors[layer.source]
            and nodes[layer.node].op_type in ("Conv", "Gemm", "MatMul")
            and _attributes(nodes[layer.node]).get("group", 1) == 1]


@cache
def _sums(bits: int) -> np.ndarray:
    """(256, 256) what AND-LOOP makes of the product of an int8 activation and an int8 weight, of -128 first."""
    return accumulate(Circuit.AND_LOOP, _VALUES[:, None], _VALUES[:, None], Streams(bits), fan_in=ACC_BLOCK)


def least_stream_error(counts: np.ndarray, bits: int) -> float:
    """The share of the whole range whose products have the least squared error by streams.

    ``counts``: of absolute values, in equal bins from 0 to the largest one.
    """
    weighting = np.exp(-0.5 * (_VALUES / _DEVIATION) ** 2) * (_VALUES > -128)
    sums = _sums(bits)[128:]
    squares, mixed, plain = (sums ** 2 @ weighting, sums * _VALUES @ weighting, _VALUES ** 2 @ weighting)
    used = np.flatnonzero(counts)
    values = (used + 0.5) / len(counts)
    errors = []
    for share in _SHARES:
        step = share / 127
        q = np.minimum(np.rint(values / step).astype(int), 127)
        # Over all weights w the square of step * sum - value * w.
        errors.append(counts[used] @ (step ** 2 * squares[q] - 2 * step * values * mixed[q] + values ** 2 * plain))
    return float(_SHARES[int(np.argmin(errors))])


def correct_for_streams(model: onnx.ModelProto, plan: Plan, samples: Samples, bits: int,
                        progress: Progress) -> onnx.ModelProto:
    """The quantised ``model``, which is changed: what streams add to the mean of a channel is out of its bias.

    Each layer's inputs are those of the exact layers in front of it.
    """
    nodes = {node.name: node for node in model.graph.node}
    layers = [nodes[layer.node] for layer in stream_layers(model, plan) if layer.bias]
    makers = {name: node for node in model.graph.node for name in node.output}
    constants = initializers(model)

    def constant(node: onnx.NodeProto, operand: int, part: int = 0) -> np.ndarray:
        """Of what dequantises an operand, which may be moved after that: the integers, or the scale."""
        maker = makers[node.input[operand]]
        while maker.op_type != "DequantizeLinear":
            maker = makers[maker.input[0]]
        return numpy_helper.to_array(constants[maker.input[part]])

    weights = [_weights(node, constant(node, 1)) for node in layers]
    counts = [np.zeros((*one.shape[2:], one.shape[1], 256), np.int64) for one in weights]
    few = {name: array[:_SAMPLES] for name, array in samples.items()}
    total = len(next(iter(few.values())))
    for number, values in enumerate(values_of(model, [node.input[0] for node in layers], few) if layers else ()):
        progress(number, total, "correcting biases for streams")
        for node, found in zip(layers, counts, strict=True):
            found += _counted(node, np.rint(values[node.input[0]] / constant(node, 0, 1)).astype(np.int64), found.shape)
    for node, factors, found in zip(layers, weights, counts, strict=True):
        bias, attributes = constants[makers[node.input[2]].input[0]], _attributes(node)
        steps = np.rint(_excess(factors, found, bits) * attributes.get("alpha", 1.0) / attributes.get("beta", 1.0))
        corrected = (numpy_helper.to_array(bias) - steps).astype(np.int32)
        bias.CopyFrom(numpy_helper.from_array(corrected, bias.name))
    return model


def _excess(weights: np.ndarray, counts: np.ndarray, bits: int) -> np.ndarray:
    """(O,) by how much the sums of streams are above those of int8 (O, C, KH, KW) ``weights``, in the mean."""
    errors = _sums(bits) - np.multiply.outer(_VALUES, _VALUES)
    total = np.zeros(len(weights))
    for ky, kx in np.ndindex(weights.shape[2:]):
        by_weight = counts[ky, kx] @ errors     # (C, 256)
        total += by_weight[np.arange(len(by_weight)), weights[:, :, ky, kx] + 128].sum(axis=1)
    return total / counts[0, 0, 0].sum()


def _counted(node: onnx.NodeProto, x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """(KH, KW, C, 256) how often each tap has each int8 value, -128 first; ``x`` is a sample of the layer's input."""
    *taps, channels, _ = shape
    x = x.reshape(-1, channels, *(1,) * (4 - x.ndim), *x.shape[2:])
    attributes = _attributes(node)
    kernel = taps if len(attributes.get("kernel_shape", taps)) == 2 else taps[1:]
    windows = resolve(attributes if node.op_type == "Conv" else {}, x.shape[2:], kernel)
    top, left, bottom, right = windows.pads
    # A value's place among those of all channels.
    places = np.pad(x, [(0, 0), (0, 0), (top, bottom), (left, right)]) + 128
    places += 256 * np.arange(channels)[:, None, None]
    apart = [(extent - 1) // max(1, size - 1) for extent, size in zip(windows.kernel, taps, strict=True)]
    counts = np.empty(shape, np.int64)
    for ky, kx in np.ndindex(*taps):
        seen = places[:, :, ky * apart[0]::windows.stride[0], kx * apart[1]::windows.stride[1]]
        seen = seen[:, :, :windows.output[0], :windows.output[1]]
        counts[ky, kx] = np.bincount(seen.ravel(), minlength=256 * channels).reshape(channels, 256)
    return counts


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    found = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in found.items()}


def _weights(node: onnx.NodeProto, weights: np.ndarray) -> np.ndarray:
    """(O, C, KH, KW) int."""
    if node.op_type == "Gemm" and not _attributes(node).get("transB"):
        weights = weights.T
    rows = (1,) * (4 - weights.ndim)    # of a matrix, or of a convolution along one axis
    return weights.reshape(*weights.shape[:2], *rows, *weights.shape[2:]).astype(np.int64)
