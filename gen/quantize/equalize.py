"""Channels made equally large across layers, without changing what the model computes.

Between two layers with nothing but what commutes with a positive factor, channel c can leave the first one divided by
s and enter the second one multiplied by it. ``s = sqrt(r1 * r2) / r2``, with the ranges r1 of the channel after the
first layer and r2 of its weights in the second, makes both ``sqrt(r1 * r2)`` (Nagel et al., "Data-Free Quantization
Through Weight Equalization and Bias Correction", ICCV 2019, section 4.1). There r1 is of the first layer's weights.
Here it is of the activations on samples, as those have one scale, and weights one for each channel: of channels that
are little but a bias, weights say nothing. Where weights have one scale, too, it is the larger of both, as shares of
the largest channel. Of a depthwise layer with scales of its own for each channel r2 does not count.
"""

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import NodeProto, numpy_helper

from gen.onnx.index import GraphIndex
from gen.quantize.options import QuantizeOptions
from gen.quantize.prepare import initializers
from gen.quantize.sessions import Samples, values_of

__all__ = ["can_equalize", "equalize"]

#: What commutes with a positive factor for each channel. A Clip does not: its bound is one for all channels.
_HOMOGENEOUS = ("Relu", "LeakyRelu", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Identity")
_ROUNDS = 20
#: Factors as near to one as this change nothing any more.
_SETTLED = 1e-3
#: Samples for the ranges of activations, and the share of the largest channel below which one is as good as dead.
_SAMPLES = 64
_DEAD = 1e-4


@dataclass(frozen=True)
class _Pair:
    """Two layers, by their nodes, of which the second reads nothing but what the first makes."""

    first: NodeProto
    second: NodeProto

    @property
    def between(self) -> str:
        """The activation that the second one reads."""
        return self.second.input[0]


def equalize(model: onnx.ModelProto, samples: Samples, options: QuantizeOptions) -> onnx.ModelProto:
    """``model`` with its Convs, plain and depthwise, equalised pair by pair until the factors settle.

    Nodes that stay float stay as they are.
    """
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    pairs = [pair for pair in _pairs(copied)
             if options.keep_float.isdisjoint((pair.first.name, pair.second.name))]
    if not pairs:
        return copied
    ranges = _ranges(copied, [pair.between for pair in pairs], samples)
    constants = initializers(copied)
    arrays = {name: numpy_helper.to_array(constants[name]).astype(np.float64)
              for pair in pairs for node in (pair.first, pair.second) for name in node.input[1:] if name}
    for _ in range(_ROUNDS):
        if max(_equalized(pair, arrays, ranges, options) for pair in pairs) < _SETTLED:
            break
    for name, array in arrays.items():
        constants[name].CopyFrom(numpy_helper.from_array(array.astype(np.float32), name))
    return copied


def can_equalize(model: onnx.ModelProto, options: QuantizeOptions) -> bool:
    """Whether `equalize` changes anything."""
    return any(options.keep_float.isdisjoint((pair.first.name, pair.second.name)) for pair in _pairs(model))


def _pairs(model: onnx.ModelProto) -> list[_Pair]:
    index, pairs = GraphIndex(model), []
    for node in model.graph.node:
        if not _is_layer(node, index):
            continue
        name = node.input[0]
        while index.uses(name) == 1 and (between := index.made(name, *_HOMOGENEOUS)) is not None:
            name = between.input[0]
        first = index.made(name, "Conv")
        if index.uses(name) == 1 and first is not None and _is_layer(first, index):
            pairs.append(_Pair(first, node))
    return pairs


def _is_layer(node: NodeProto, index: GraphIndex) -> bool:
    """Whether a Conv, plain or depthwise, has weights and a bias that nobody else reads."""
    if node.op_type != "Conv" or not all(
            name in index.constants and index.uses(name) == 1 for name in node.input[1:] if name):
        return False
    return _groups(node) in (1, index.constants[node.input[1]].dims[0])


def _groups(node: NodeProto) -> int:
    return next((a.i for a in node.attribute if a.name == "group"), 1)


def _ranges(model: onnx.ModelProto, names: list[str], samples: Samples) -> dict[str, np.ndarray]:
    """The largest absolute value of each channel of activations (N, C, ...)."""
    found = dict.fromkeys(names, np.zeros(1))
    for values in values_of(model, names, {name: array[:_SAMPLES] for name, array in samples.items()}):
        for name in names:
            found[name] = np.maximum(found[name], _largest(values[name], 1))
    return found


def _equalized(pair: _Pair, arrays: dict[str, np.ndarray], ranges: dict[str, np.ndarray],
               options: QuantizeOptions) -> float:
    """Rescale the arrays of both layers; returns how far the factors are from one, as a logarithm."""
    first, second = pair.first.input[1], pair.second.input[1]
    depthwise = _groups(pair.second) > 1
    axis = 0 if depthwise else 1
    out, into = _shares(ranges[pair.between]), _shares(_largest(arrays[second], axis))
    if not options.per_channel:
        out = np.maximum(out, _shares(_largest(arrays[first], 0)))
    elif depthwise:
        into = np.ones_like(into)
    used = (out > _DEAD) & (into > _DEAD)
    factor = np.where(used, np.sqrt(np.where(used, out, 1.0) / np.where(used, into, 1.0)), 1.0)
    arrays[first] = arrays[first] / factor.reshape(-1, *[1] * (arrays[first].ndim - 1))
    for bias in filter(None, pair.first.input[2:]):
        arrays[bias] = arrays[bias] / factor
    ranges[pair.between] = ranges[pair.between] / factor
    column = [1] * arrays[second].ndim
    column[axis] = -1
    arrays[second] = arrays[second] * factor.reshape(column)
    return float(np.abs(np.log(factor)).max(initial=0.0))


def _largest(values: np.ndarray, axis: int) -> np.ndarray:
    """The largest absolute value for each entry of an axis."""
    return np.abs(np.moveaxis(values, axis, 0)).reshape(values.shape[axis], -1).max(axis=1)


def _shares(ranges: np.ndarray) -> np.ndarray:
    """Of the largest one; all of them 0 if that is."""
    return ranges / (ranges.max() or 1.0)
