"""How far results may be from onnxruntime's: what the arithmetic allows, value by value.

Both round where the model quantises. Numbers that are at most ``d`` steps apart in front of that are at most
``floor(d) + 1`` apart after it: one where a layer has the inputs that onnxruntime has, as halves go up here and to even
there. ``d`` is more than 0 after a tensor that the model does not have: what it is rounded by here, half a step, goes
on through the layers after it, times what they multiply by.
"""

from collections.abc import Collection, Mapping
from math import ceil

import numpy as np

from gen.ir.graph import Bend, Conv, Graph, Layer, Requantize, Residual, Table, Tensor, repeated_by, second_stage
from gen.ir.parts import ByChannel, origin, wholes
from sim.golden import conv2d_accumulate, look_up, pool_accumulate, upsample

__all__ = ["Bounds", "thinned"]

#: Distances in front of a layer count in such parts of a step, upwards: the golden sums are of integers.
_PARTS = 64
#: What multipliers of 17 bits and integer biases are off in front of a rounding, in steps: not enough to be seen alone.
_NEXT_TO_NOTHING = 1 / 64

#: Nowhere apart.
_EQUAL = np.zeros(())


class Bounds:
    """Of all results of a ``graph`` on ``values``: tensor, or middle result of a layer, -> (N, C, H, W) integers.

    Tensors that stand for one of the model are given to onnxruntime as they are here.
    """

    def __init__(self, graph: Graph, values: Mapping[str, np.ndarray]) -> None:
        self._graph, self._values = graph, values
        #: Of results inside a layer, and of tensors where it is more than one.
        self._middles: dict[str, np.ndarray] = {}
        self._tensors = _Sparse(graph.tensors)
        #: Of tensors that the model does not have: how far the number is that onnxruntime has there.
        self._apart = _Sparse(graph.tensors)
        for layer in graph.layers:
            self._follow(layer)

    def __getitem__(self, name: str) -> np.ndarray:
        """The largest difference of each value, integers that broadcast to the values (N, C, H, W)."""
        found = self._middles[name] if name in self._middles else self._tensors[name]
        return np.maximum(found, 1)

    def _follow(self, layer: Layer) -> None:
        distance, exact = self._first(layer), _is_exact(layer.requantize)
        if second := second_stage(layer):
            distance = self._second(layer, second, self._middle(layer, second.middle, distance, exact))
            exact = False
        if layer.table:
            distance = self._looked_up(layer, layer.table, self._middle(layer, layer.table.middle, distance, exact))
            exact = False
        target, shape = self._graph.tensors[layer.output], self._values_of(layer.output).shape
        if target.onnx_name or any(self._graph.tensors[name].onnx_name
                                   for name in wholes(self._graph.tensors, layer.output)):
            self._tensors.put(layer.output, _rounded(distance), shape)
        else:
            self._apart.put(layer.output, distance + (0 if exact else 0.5), shape)

    def _middle(self, layer: Layer, middle: Tensor, distance: np.ndarray, exact: bool) -> np.ndarray:
        """How far onnxruntime's number is from a result inside a layer, ``distance`` in front of its rounding."""
        distance = thinned(distance, middle, self._graph.tensors[layer.output]) if distance.ndim else distance
        if not middle.onnx_name:
            return distance + (0 if exact else 0.5)
        self._middles[middle.name] = _rounded(distance)
        return _EQUAL

    def _values_of(self, name: str) -> np.ndarray:
        """Of a tensor, or of the part of one."""
        if name in self._values:
            return self._values[name]
        whole, channels = origin(self._graph.tensors, name)
        return self._values[whole][:, channels.start:channels.stop]

    def _first(self, layer: Layer) -> np.ndarray:
        """In front of the first rounding, in steps of its result."""
        if not (apart := self._apart[layer.input]).any():
            return _EQUAL
        parts = np.ceil(apart * _PARTS).astype(np.int64)
        if isinstance(layer, Conv):
            sums = conv2d_accumulate(parts, np.abs(layer.weights), layer.depthwise, layer.stride, layer.pads, 0)
        else:
            sums = pool_accumulate(parts, layer.maximum, layer.kernel, layer.stride, layer.pads, 0)
        stage = layer.requantize
        factor = stage.multiplier / 2.0 ** stage.shift / _PARTS
        return upsample(sums * factor[:, None, None], layer.upsample)

    def _second(self, layer: Layer, stage: Residual | Bend, apart: np.ndarray) -> np.ndarray:
        """Before the second rounding, ``apart`` after the first."""
        unit = 2.0 ** -stage.shift
        if isinstance(stage, Bend):
            return apart * max(abs(stage.multiplier_a), abs(stage.multiplier_b)) * unit
        others = self._apart[stage.other]
        if not stage.product:
            return (apart * abs(stage.multiplier_a) + others * abs(stage.multiplier_b)) * unit
        if not (apart.any() or others.any()):
            return _EQUAL
        if not (factor := stage.multiplier_b):
            return _EQUAL
        mine = np.abs(self._values[stage.middle.name].astype(np.float64) - layer.requantize.zero_point)
        theirs = np.abs(self._values_of(stage.other).astype(np.float64) - stage.constant / factor)
        return (mine * others + theirs * apart + apart * others) * factor * unit

    def _looked_up(self, layer: Layer, table: Table, apart: np.ndarray) -> np.ndarray:
        """Of entries of a table, ``apart`` in front of it."""
        if not apart.any():
            return _EQUAL
        values = self._values[table.middle.name].astype(np.int64)
        here, most = look_up(values, table.values).astype(np.int64), np.zeros(values.shape)
        for steps in range(1, ceil(float(apart.max())) + 1):
            reached = apart > steps - 1
            for side in (-steps, steps):
                there = look_up(np.clip(values + side, -128, 127), table.values)
                most = np.where(reached, np.maximum(most, np.abs(there - here)), most)
        return upsample(most, repeated_by(table.middle, self._graph.tensors[layer.output]))


def thinned(array: np.ndarray, middle: Tensor, target: Tensor) -> np.ndarray:
    """Of a result (N, C, H, W) in the size of a layer's output that of a middle result, each value once."""
    down, across = repeated_by(middle, target)
    return array[..., ::down, ::across]


class _Sparse:
    """Numbers of tensors, of parts and wholes as in `ByChannel`; 0 where none were put."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors, self._arrays = tensors, ByChannel(tensors)
        self._there: set[str] = set()

    def put(self, name: str, numbers: np.ndarray, shape: Collection[int]) -> None:
        if numbers.max(initial=0) > 0:
            self._there.add(origin(self._tensors, name)[0])
            self._arrays[name] = np.broadcast_to(numbers, tuple(shape))

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name] if origin(self._tensors, name)[0] in self._there else _EQUAL


def _rounded(distance: np.ndarray) -> np.ndarray:
    """Integers that are so far apart in front of their rounding, which is both's."""
    return np.floor(distance + _NEXT_TO_NOTHING).astype(np.int64) + 1


def _is_exact(stage: Requantize) -> bool:
    """Whether a stage rounds nothing, as of a copy."""
    return not (stage.multiplier % (np.int64(1) << stage.shift)).any()
