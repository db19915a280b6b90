"""How far results may be from onnxruntime's: what the arithmetic allows, value by value.

Both round where the model quantises. If two numbers are at most ``d`` steps apart before rounding, they are at most
``floor(d) + 1`` apart after it. With the same inputs ``d`` is 0 and the bound is one step, as halves go up here and to
even numbers there. After a tensor that the model does not have, ``d`` is more than 0: the rounding of that tensor, half
a step, passes through the layers after it, times their factors.
"""

from collections.abc import Collection, Mapping

import numpy as np

from gen.ir.epilogue.base import EQUAL, Setting
from gen.ir.graph import Graph, Layer, before_windows
from gen.ir.parts import ByChannel, origin, wholes
from gen.ir.tensor import Requantize, Tensor, repeated_by

__all__ = ["Bounds", "thinned"]

#: Distances in front of a layer count in such parts of a step, upwards: the golden sums are of integers.
_PARTS = 64
#: What multipliers of 17 bits and integer biases are off in front of a rounding, in steps: not enough to be seen alone.
_NEXT_TO_NOTHING = 1 / 64


class Bounds:
    """How far the results of a ``graph`` may be from onnxruntime's, in LSBs.

    ``values``: tensor, or result inside a layer, -> (N, C, H, W) integers. onnxruntime computes each layer from these
    values too, so differences do not add up over tensors that the model has.
    """

    def __init__(self, graph: Graph, values: Mapping[str, np.ndarray]) -> None:
        self._graph, self._values = graph, values
        #: Of results inside a layer, and of tensors where it is more than one.
        self._middles: dict[str, np.ndarray] = {}
        self._tensors = _Sparse(graph.tensors)
        #: Of tensors that the model does not have: how far the number is that onnxruntime has there.
        self._apart = _Sparse(graph.tensors)
        for name in graph.constants:
            self._apart.put(name, np.array(graph.tensors[name].value_off), self.values(name).shape)
        for layer in graph.layers:
            self._follow(layer)

    def __getitem__(self, name: str) -> np.ndarray:
        """The largest difference of each value, integers that broadcast to the values (N, C, H, W)."""
        found = self._middles[name] if name in self._middles else self._tensors[name]
        return np.maximum(found, 1)

    def _follow(self, layer: Layer) -> None:
        distance, exact = self._first(layer), _is_exact(layer.requantize)
        tensors = self._graph.tensors
        target = before_windows(layer, tensors[layer.input], tensors[layer.output])
        setting = Setting(layer.requantize, target, layer.repeats, tensors)
        for op in layer.epilogue:
            if op.source is not None:
                distance = self._middle(target, op.source, distance, exact)
            distance, exact = op.distance(distance, self, setting), op.keeps_values and exact
        target, shape = self._graph.tensors[layer.output], self.values(layer.output).shape
        if target.onnx_name or any(self._graph.tensors[name].onnx_name
                                   for name in wholes(self._graph.tensors, layer.output)):
            self._tensors.put(layer.output, _rounded(distance), shape)
        else:
            self._apart.put(layer.output, distance + (0 if exact else 0.5), shape)

    def _middle(self, target: Tensor, middle: Tensor, distance: np.ndarray, exact: bool) -> np.ndarray:
        """How far onnxruntime's number is from a result inside a layer, ``distance`` in front of its rounding.
        ``target``: the layer's output.
        """
        distance = thinned(distance, middle, target) if distance.ndim else distance
        if not middle.onnx_name:
            return distance + (0 if exact else 0.5)
        self._middles[middle.name] = _rounded(distance)
        return EQUAL

    def values(self, name: str) -> np.ndarray:
        """Of a tensor, of the part of one, or of a result inside a layer."""
        if name in self._values:
            return self._values[name]
        whole, channels = origin(self._graph.tensors, name)
        return self._values[whole][:, channels.start:channels.stop]

    def apart(self, name: str) -> np.ndarray:
        """How far onnxruntime's numbers are from a tensor that the model does not have, in its steps."""
        return self._apart[name]

    def _first(self, layer: Layer) -> np.ndarray:
        """In front of the first rounding, in steps of its result."""
        scale = layer.requantize.scale[:, None, None]
        bias = layer.requantize.bias_off * scale if layer.requantize.bias_off else EQUAL
        apart = [self._apart[name] for name in layer.operands]
        if not any(numbers.any() for numbers in apart):
            return bias
        parts = [np.broadcast_to(np.ceil(numbers * _PARTS).astype(np.int64), self.values(name).shape)
                 for name, numbers in zip(layer.operands, apart, strict=True)]
        return np.asarray(layer.sum_distance(parts) * (scale / _PARTS)) + bias


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
        return self._arrays[name] if origin(self._tensors, name)[0] in self._there else EQUAL


def _rounded(distance: np.ndarray) -> np.ndarray:
    """Integers that are so far apart in front of their rounding, which is both's."""
    return np.floor(distance + _NEXT_TO_NOTHING).astype(np.int64) + 1


def _is_exact(stage: Requantize) -> bool:
    """Whether a stage rounds nothing, as of a copy."""
    return not (stage.multiplier % (np.int64(1) << stage.shift)).any()
