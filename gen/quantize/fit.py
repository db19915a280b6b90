"""Scales that fit what is beside them, where neither samples nor weights say any.

They are those of tensors that are zero on all samples, or so small beside what they are made of that this is rounding,
and of channels whose weights are nothing, or next to nothing.
Multipliers and biases have bounds, so such a scale is not free: beside the step of a sum 1 may be hundreds.
"""

from collections.abc import Mapping
from math import inf

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from gen.onnx.index import GraphIndex
from gen.quantize.options import QuantizeOptions
from gen.quantize.plan import AFFINE, AVERAGES, CLIPS, JOINS, PICKING, SHAPING, Layer, Plan
from gen.quantize.prepare import initializers
from gen.quantize.ranges import NOTHING

__all__ = ["fit_ranges", "fit_weights"]

#: A factor, and a summand after it: of each channel, or one of all.
_Line = tuple[np.ndarray, np.ndarray]

#: Operators whose result is of the size of what they read.
_LIKE = (*CLIPS, *AVERAGES, *JOINS, *PICKING, *SHAPING, "Neg", "LeakyRelu", "PRelu")
#: Positive levels of a weight, and steps of an activation.
_LEVELS, _STEPS = 127, 255
#: A tensor may be so much smaller than another that it is made of, and than the products that it is the sum of:
#: multipliers reach twice as far.
_SMALLER, _SMALLER_SUM = 16, 16 * _LEVELS
#: What is made of something so much larger, or is the average of it, is rounding, and no multiplier reaches as far.
_ROUNDING = 64 * _LEVELS
#: A constant in LSBs of the sums, half of what the importer takes as it is (`gen.onnx.quant_scales`).
_LARGEST_BIAS = 1 << 24
#: Of weights, for float32.
_LARGEST_SCALE = 1e36
#: Units of the sums in a step of the result, in channels without weights.
_UNITS = 1 << 10


# -- activations -----------------------------------------------------------------------------------------------------


def fit_ranges(model: onnx.ModelProto, plan: Plan, ranges: Mapping[str, tuple[float, float]]
               ) -> dict[str, tuple[float, float]]:
    """``ranges``, with a usable one for tensors whose own is 0..0 or smaller than rounding.

    The new range has the size that the tensor's reader asks for, or that of the tensors it is made of. If neither is
    known, the range stays as it is.
    """
    fitted = dict(ranges)
    known = {name: max(map(abs, ends)) for name, ends in ranges.items() if any(ends)}
    gains = _Gains(model, plan, known)
    for name in _rounding(model, gains):
        del known[name]
    if len(known) == len(ranges):
        return fitted
    wanted, made, least = _wanted(model, gains), dict(known), dict(known)

    def settle(name: str) -> None:
        if name not in ranges or name in known:
            return
        size = max(wanted.get(name, made.get(name, 0.0)), least.get(name, 0.0))
        if size:
            made[name] = size
            fitted[name] = -size * (128 / _LEVELS if name in plan.centred else 1), size
        least[name] = size / _SMALLER

    for name in ranges:
        least[name] = known.get(name, 0.0) / _SMALLER
        if not plan.tensors[name]:
            settle(name)
    for node in model.graph.node:
        found = gains.of(node)
        share = _SMALLER / _SMALLER_SUM if node.name in gains.layers else 1
        for output in node.output:
            if output not in known:
                made[output] = max((made.get(name, 0.0) * gain for name, gain in found.items()), default=0.0)
                least[output] = max((least.get(name, 0.0) * gain * share for name, gain in found.items()), default=0.0)
            settle(output)
    return fitted


def _rounding(model: onnx.ModelProto, gains: "_Gains") -> list[str]:
    """Results of layers and averages that are known, and next to nothing beside what they are made of."""
    sizes, found = dict(gains.known), list[str]()
    for node in model.graph.node:
        made = max((sizes.get(name, 0.0) * gain for name, gain in gains.of(node).items()), default=0.0)
        of_sums = node.name in gains.layers or node.op_type in AVERAGES
        for name in node.output:
            if of_sums and name in gains.known and gains.known[name] * _ROUNDING < made:
                found.append(name)
                sizes[name] = made
            sizes.setdefault(name, made)
    return found


def _wanted(model: onnx.ModelProto, gains: "_Gains") -> dict[str, float]:
    """Value -> its size that makes results of the sizes that are known."""
    wanted: dict[str, float] = {}
    for node in reversed(model.graph.node):
        sizes = [gains.known.get(name, wanted.get(name)) for name in node.output]
        asked = min((size for size in sizes if size), default=inf)
        for name, gain in gains.of(node).items():
            if asked < inf:
                wanted[name] = min(wanted.get(name, inf), asked / gain)
    return wanted


class _Gains:
    """How much larger results are than what nodes read, at most. ``known``: sizes of values."""

    def __init__(self, model: onnx.ModelProto, plan: Plan, known: Mapping[str, float]) -> None:
        self._constants = initializers(model)
        self.layers = {layer.node: layer for layer in plan.layers}
        self.known = known

    def of(self, node: NodeProto) -> dict[str, float]:
        """Inputs whose size has to do with that of the result -> the factor, which is not 0."""
        if node.name in self.layers:
            factor = float(np.abs(_array(self._constants, self.layers[node.name].weights)).max(initial=0))
            return {node.input[0]: factor} if factor > NOTHING else {}
        inputs = [name for name in node.input if name and name not in self._constants]
        if node.op_type in ("Mul", "Div", "BatchNormalization"):
            return self._multiplied(node, inputs)
        return dict.fromkeys(inputs, 1.0) if node.op_type in _LIKE else {}

    def _multiplied(self, node: NodeProto, inputs: list[str]) -> dict[str, float]:
        if len(inputs) == 1 and (line := _line(node, inputs[0], self._constants)) is not None:
            factor = float(np.abs(line[0]).max())
            return {inputs[0]: factor} if factor > NOTHING else {}
        if node.op_type != "Mul" or len(inputs) != 2:
            return {}
        return {name: self.known[other] for name, other in (inputs, inputs[::-1]) if other in self.known}


# -- weights ---------------------------------------------------------------------------------------------------------


def fit_weights(model: onnx.ModelProto, plan: Plan, ranges: Mapping[str, tuple[float, float]], options: QuantizeOptions
                ) -> dict[str, np.ndarray]:
    """Weights some of whose channels need a larger scale than their own -> the largest number that each channel is to
    represent, float32 (C,), or all of them, (1,).

    So a constant that is added fits accumulators, and a channel without weights has a scale.
    """
    constants, found = initializers(model), dict[str, np.ndarray]()
    follow = _Following(model, plan)
    for layer in plan.layers:
        weights = np.moveaxis(_array(constants, layer.weights), layer.axis, 0)
        own = np.abs(weights.reshape(len(weights), -1)).max(axis=1, initial=0).astype(np.float32)
        if not options.per_channel:
            own = own.max(keepdims=True)
        least = (follow.least_scales(layer, own / _LEVELS, ranges) * _LEVELS).astype(np.float32)
        if (least > own).any():
            found[layer.weights] = np.maximum(found.get(layer.weights, own), least)
    return found


class _Following:
    """What goes into a layer's scale and bias after it."""

    def __init__(self, model: onnx.ModelProto, plan: Plan) -> None:
        index = GraphIndex(model)
        self._constants, self._readers, self._plan = index.constants, index.readers, plan

    def least_scales(self, layer: Layer, own: np.ndarray, ranges: Mapping[str, tuple[float, float]]) -> np.ndarray:
        """Those that weights whose own scales are ``own`` should have at least, of the same shape."""
        bias = _array(self._constants, layer.bias).reshape(-1).astype(np.float64) if layer.bias else np.zeros(1)
        factor, summand, output = self._line(layer, bias)
        step = _step(ranges[layer.source]) * np.abs(factor)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            least, dead = (np.where(step > 0, np.minimum(unit / step, _LARGEST_SCALE), 0) for unit in (
                np.abs(summand) / _LARGEST_BIAS, _step(ranges.get(output, (0, 0))) / _UNITS))
        least, dead = (array.max(keepdims=True) if len(own) == 1 else np.broadcast_to(array, own.shape)
                       for array in (least, dead))
        return np.where(own < NOTHING, np.maximum(least, dead), least)

    def _line(self, layer: Layer, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray, str]:
        """Factor and summand, of each channel or of all, that make the quantised tensor of that name of a layer's
        sums.
        """
        name, factor, summand = layer.output, np.ones(1), bias
        while name not in self._plan.tensors and len(self._readers[name]) == 1:
            node = self._readers[name][0]
            line = _line(node, name, self._constants)
            if line is not None:
                factor, summand = factor * line[0], summand * line[0] + line[1]
            elif node.op_type not in (*CLIPS, *SHAPING):
                break
            name = node.output[0]
        return factor, summand, name


# -- constants -------------------------------------------------------------------------------------------------------


def _line(node: NodeProto, name: str, constants: Mapping[str, onnx.TensorProto]) -> _Line | None:
    """By what a node makes its result of ``name``; None for one that does so in another way."""
    names = [other for other in node.input if other != name]
    if node.op_type not in AFFINE or not constants.keys() >= set(names):
        return None
    others = [_array(constants, other).reshape(-1).astype(np.float64) for other in names]
    one, zero = np.ones(1), np.zeros(1)
    match node.op_type, others:
        case "Neg", []:
            return -one, zero
        case "BatchNormalization", [gamma, beta, mean, variance]:
            epsilon = next((helper.get_attribute_value(a) for a in node.attribute if a.name == "epsilon"), 1e-5)
            factor = gamma / np.sqrt(variance + epsilon)
            return factor, beta - mean * factor
        case "Mul", [other]:
            return other, zero
        case "Div", [other] if node.input[0] == name and other.all():
            return 1 / other, zero
        case "Add", [other]:
            return one, other
        case "Sub", [other]:
            return (one, -other) if node.input[0] == name else (-one, other)
    return None


def _array(constants: Mapping[str, onnx.TensorProto], name: str) -> np.ndarray:
    return numpy_helper.to_array(constants[name])


def _step(ends: tuple[float, float]) -> float:
    """The scale of a range; 1 for 0..0, as onnxruntime has it."""
    return (ends[1] - ends[0]) / _STEPS or 1.0
