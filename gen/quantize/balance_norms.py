"""Channels made equal in front of normalisations over pixels, by what samples show of them.

What an InstanceNormalization makes of a channel is the same whatever factor and summand that has; of a group of
channels, whatever all of them have. So a convolution that nothing but such a normalisation reads can leave channels, or
groups, of equal size and around zero. Otherwise one scale for all channels leaves small ones few steps, and their
squares, of which variances are made, none. What anything else makes, or reads too, is multiplied by constants after its
mean is subtracted, if channels are far apart: a copy more.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from gen.onnx.index import GraphIndex
from gen.quantize.prepare import initializers
from gen.quantize.sessions import Samples, values_of

__all__ = ["balance_norms"]

#: Samples for means and deviations.
_SAMPLES = 16
#: Factors: a channel whose deviation is farther from the others is as good as dead, or alone.
_LARGEST = 2.0**16
#: Deviations that differ by more than this are worth a copy; by less, or a mean that is less beside the deviation, not
#: even other weights.
_APART, _ALIKE, _NEAR = 4.0, 1.25, 0.5
#: Layers in front -> the axis of the output channels in their weights.
_LAYERS = {"Conv": 0, "ConvTranspose": 1}
#: From squares to what they are divided by: of each channel, with a factor perhaps, and of groups.
_OF_CHANNELS = ["GlobalAveragePool", "Add", "Sqrt", "Reciprocal"]
_OF_GROUPS = ["GlobalAveragePool", "Conv", "Add", "Sqrt", "Reciprocal", "Conv"]


@dataclass(frozen=True)
class _Norm:
    """``layer`` makes what is normalised, and nothing else reads that; None where it is otherwise. ``mean``, of each
    channel, is subtracted from it, which gives ``less``; ``guard`` adds to the variances. ``groups``: that of each
    channel, int (C,).
    """

    layer: NodeProto | None
    mean: str
    less: str
    guard: NodeProto
    groups: np.ndarray


def balance_norms(model: onnx.ModelProto, samples: Samples, keep_float: Collection[str] = ()) -> onnx.ModelProto:
    """``model``, as `gen.quantize.prepare` makes it, or a copy of it with equal channels in front of normalisations;
    layers ``keep_float`` stay as they are.
    """
    if not any(node.op_type == "Sub" for node in model.graph.node):
        return model
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    norms = list(_Norms(copied, keep_float).found())
    if not norms:
        return model
    names = sorted({name for norm in norms for name in (norm.mean, norm.less)})
    means = defaultdict[str, list[np.ndarray]](list)
    squares = defaultdict[str, list[np.ndarray]](list)
    for values in values_of(copied, names, {name: array[:_SAMPLES] for name, array in samples.items()}):
        for norm in norms:
            means[norm.less].append(values[norm.mean].reshape(len(norm.groups)))
            less = values[norm.less].astype(np.float64)
            squares[norm.less].append((less**2).reshape(len(norm.groups), -1).mean(axis=1))
    changed = [_rescale(copied, norm, np.mean(means[norm.less], axis=0), np.mean(squares[norm.less], axis=0))
               for norm in norms]
    return copied if any(changed) else model


class _Norms:
    def __init__(self, model: onnx.ModelProto, keep_float: Collection[str]) -> None:
        index = GraphIndex(model, model.graph)
        self._graph, self._keep_float, self._reader = model.graph, keep_float, index.reader
        self._constants, self._makers, self._readers = index.constants, index.makers, index.readers
        self._channels = {name: shape[1] for name, shape in index.shapes.items() if len(shape) > 2}
        self._outputs = index.outputs

    def found(self) -> Iterator[_Norm]:
        for node in self._graph.node:
            if node.op_type == "Sub" and (norm := self._norm(node)) is not None:
                yield norm

    def _norm(self, less: NodeProto) -> _Norm | None:
        source, mean = less.input
        groups = self._groups(mean, source)
        guard = self._guard(less.output[0], groups) if groups is not None else None
        if groups is None or guard is None or less.output[0] not in self._channels:
            return None
        return _Norm(self._layer(source, mean), mean, less.output[0], guard, groups)

    def _layer(self, source: str, mean: str) -> NodeProto | None:
        layer = self._makers.get(source)
        if layer is None or layer.op_type not in _LAYERS or source in self._outputs or not all(
                name in self._constants for name in layer.input[1:] if name):
            return None
        grouped = any(a.name == "group" and a.i != 1 for a in layer.attribute)
        readers = sorted(node.op_type for node in self._readers[source])
        taken = (readers != ["GlobalAveragePool", "Sub"] or layer.op_type == "ConvTranspose" and grouped
                 or layer.name in self._keep_float)
        name = mean
        while not taken and name != source:     # the mean, which becomes zero, is for the difference alone
            taken, name = self._reader(name) is None, self._makers[name].input[0]
        return None if taken else layer

    def _between(self, name: str, end: NodeProto) -> list[NodeProto]:
        """The nodes from a value to what ``end`` reads, each of which alone reads what the one before it makes; none
        where it is otherwise.
        """
        steps = []
        while (node := self._reader(name)) is not None and node.output[0] != end.output[0]:
            steps.append(node)
            name = node.output[0]
        return steps if node is not None else []

    def _matrix(self, node: NodeProto | None) -> np.ndarray | None:
        """The weights, (outputs, inputs), of a 1x1 convolution without a bias; None of any other node."""
        if node is None or node.op_type != "Conv" or len(node.input) > 2 or node.input[1] not in self._constants:
            return None
        weights = numpy_helper.to_array(self._constants[node.input[1]])
        grouped = any(a.name == "group" and a.i != 1 for a in node.attribute)
        return None if grouped or prod(weights.shape[2:]) != 1 else weights.reshape(weights.shape[:2])

    def _groups(self, mean: str, source: str) -> np.ndarray | None:
        """Of which group's mean a value is for each channel; None for any other value."""
        channels = self._channels.get(source, 0)
        groups = np.arange(channels)
        spread = pool = self._makers.get(mean)
        if spread is not None and spread.op_type == "Conv":
            gathered = self._makers.get(spread.input[0])
            members, shares = self._matrix(spread), self._matrix(gathered)
            if gathered is None or members is None or shares is None or len(members) != channels:
                return None
            groups = (members != 0).argmax(axis=1)
            if not (_is_within(members, groups) and _is_within(shares.T, groups)
                    and np.allclose((members @ shares).sum(axis=1), 1, rtol=1e-4)):
                return None
            pool = self._makers.get(gathered.input[0])
        is_mean = pool is not None and pool.op_type == "GlobalAveragePool" and pool.input[0] == source
        return groups if channels and is_mean else None

    def _guard(self, less: str, groups: np.ndarray) -> NodeProto | None:
        """What adds a constant to the variances, of which the root is taken, by which ``less`` alone is divided."""
        readers = self._readers[less]
        squares = [node for node in readers if list(node.input) == [less, less] and node.op_type == "Mul"]
        others = [node for node in readers if node not in squares]
        # The one square reads it twice.
        if less in self._outputs or len(squares) != 2 or [node.op_type for node in others] != ["Mul"]:
            return None
        steps = self._between(squares[0].output[0], others[0])
        ops = [node.op_type for node in steps]
        if ops == _OF_GROUPS:
            sums, factors = self._matrix(steps[1]), self._matrix(steps[-1])
            fits = sums is not None and factors is not None and (
                _is_within(sums.T, groups) and _is_within(factors, groups))
        else:
            scaled = steps[len(_OF_CHANNELS):]
            fits = ops == [*_OF_CHANNELS, *["Mul" for _ in scaled]] and len(set(groups)) == len(groups) and not any(
                self._constants.keys().isdisjoint(node.input) for node in scaled)
        if not fits:
            return None
        guard = next(node for node in steps if node.op_type == "Add")
        constants = [self._constants[name] for name in guard.input if name in self._constants]
        return guard if len(constants) == 1 and numpy_helper.to_array(constants[0]).size == 1 else None


def _is_within(weights: np.ndarray, groups: np.ndarray) -> bool:
    """Whether weights (channels, groups) are zero for the groups that a channel is not of."""
    others = groups[:, None] != np.arange(weights.shape[1])
    return weights.shape[0] == len(groups) and groups.max() < weights.shape[1] and not weights[others].any()


def _rescale(model: onnx.ModelProto, norm: _Norm, mean: np.ndarray, square: np.ndarray) -> bool:
    """Whether that changed anything. ``mean`` and ``square``, (C,): of the channels of what is normalised, and of what
    is without its mean.
    """
    count = int(norm.groups.max()) + 1
    constants, guard = initializers(model), norm.guard
    place = next(number for number, name in enumerate(guard.input) if name in constants)
    epsilon = numpy_helper.to_array(constants[guard.input[place]]).item()
    # What is divided by: of a dead channel the root of what guards it.
    size = np.sqrt(np.array([square[norm.groups == group].mean() for group in range(count)]) + epsilon)
    if not (size > 0).all():
        return False
    apart = size.max() / size.min()
    off = np.array([np.abs(mean[norm.groups == group]).max() for group in range(count)]) / size
    if apart < _ALIKE and off.max() < _NEAR:
        return False
    factors = np.clip(np.exp(np.log(size).mean()) / size, 1 / _LARGEST, _LARGEST)
    factor = factors[norm.groups]
    own = GraphIndex(model)
    rank = next(len(value.type.tensor_type.shape.dim) for value in model.graph.value_info if value.name == norm.less)
    column = (-1, *(1,) * (rank - 2))
    if norm.layer is not None:
        _scale_layer(norm.layer, [numpy_helper.to_array(constants[name]) for name in norm.layer.input[1:] if name],
                     factor, mean, own)
    elif apart > _APART:
        _scale_less(own, norm.less, own.constant(f"{norm.less}/sizes", factor.reshape(column).astype(np.float32)))
    else:
        return False
    least = (epsilon * factors**2).reshape(column).astype(np.float32)
    guard.input[place] = own.constant(f"{guard.name}/balanced", least)
    return True


def _scale_layer(layer: NodeProto, arrays: list[np.ndarray], factor: np.ndarray, mean: np.ndarray, own: GraphIndex
                 ) -> None:
    """Of whose result each channel becomes ``(y - mean) * factor``."""
    weights, bias = arrays[0], arrays[1] if len(arrays) > 1 else np.zeros(1)
    column = np.ones(weights.ndim, np.int64)
    column[_LAYERS[layer.op_type]] = -1
    names = [own.constant(f"{layer.name}/{what}", array.astype(np.float32)) for what, array in (
        ("balanced", weights * factor.reshape(column)), ("centred", (bias - mean) * factor))]
    del layer.input[1:]
    layer.input.extend(names)


def _scale_less(index: GraphIndex, less: str, factor: str) -> None:
    """Put a Mul between ``less`` and what reads it."""
    graph, result = index.graph, index.name(f"{less}/equal")
    for node in graph.node:
        for place, given in enumerate(node.input):
            node.input[place] = result if given == less else given
    place = next(number for number, node in enumerate(graph.node) if less in node.output)
    graph.node.insert(place + 1, helper.make_node("Mul", [less, factor], [result], name=result))
    known = next(value for value in graph.value_info if value.name == less)
    graph.value_info.append(helper.make_tensor_value_info(result, TensorProto.FLOAT, None))
    graph.value_info[-1].type.CopyFrom(known.type)
