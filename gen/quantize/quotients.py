"""Quotients, lengths and the Softmax of a map, as what a machine has: tables, averages and products.

A quotient is a product with a reciprocal, which is a table. What divides may be repeated by an Expand; the reciprocal
is in front of that. What divides and is guarded against zero stays float, but the mean of a vector by which that is
divided (ConvNeXt V2): a convolution makes it for each channel. A length (ReduceL2) is the root of an average of
squares. A Softmax over the pixels of one channel has no rows of channels: it is exponentials, divided by their sum.
"""

from collections.abc import Iterator, Mapping
from math import prod, sqrt

import numpy as np
import onnx
from onnx import NodeProto, numpy_helper

from gen.onnx.index import GraphIndex, depended_on
from gen.onnx.weights import MAX_WEIGHTS
from gen.quantize.opsets import opset_of
from gen.quantize.rewriting import WEIGHTED, Rewriting

__all__ = ["Quotients", "guards", "is_guard"]

#: What is smaller, and added to what divides, is there for a divisor of zero.
_GUARD = 1e-3


def guards(model: onnx.ModelProto) -> frozenset[str]:
    """The nodes that keep what divides from being zero. They stay float: an integer may be the zero that they prevent.
    """
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    divisors = {node.input[1] for node in model.graph.node if node.op_type == "Div"}
    return frozenset(node.name for node in model.graph.node
                     if node.output[0] in divisors and is_guard(node, constants))


def is_guard(node: NodeProto, constants: Mapping[str, onnx.TensorProto]) -> bool:
    """Whether a node adds a constant that is there for a sum of zero."""
    return node.op_type == "Add" and any(
        name in constants and bool((np.abs(numpy_helper.to_array(constants[name])) < _GUARD).all())
        for name in node.input)


class Quotients(Rewriting):
    """Replaces Div, ReduceL2 and Softmax where a layer with weights depends on the result."""

    OPERATORS = frozenset(("Div", "ReduceL2", "Softmax"))

    def __init__(self, index: GraphIndex) -> None:
        super().__init__(index)
        self._axes_attribute = opset_of(index.model) < 18
        self._wanted = depended_on(index.model, WEIGHTED, index.constants)

    def layers(self, node: NodeProto) -> Iterator[NodeProto]:
        if node.output[0] in self._wanted:
            made = {"Div": self.quotient, "ReduceL2": self.length, "Softmax": self.softmax}[node.op_type]
            yield from made(node)

    def quotient(self, node: NodeProto) -> Iterator[NodeProto]:
        one, other = node.input
        if one in self._constants or other in self._constants or node.output[0] in self._integers:
            return
        before = self._makers.get(other)
        if before is not None and is_guard(before, self._constants):
            yield from self._by_mean(node, before)
            return
        if before is None or before.op_type != "Expand":
            yield (inverse := self._node(node, "Reciprocal", other))
            yield self._node(node, "Mul", one, inverse.output[0], result=node.output[0])
            return
        yield (inverse := self._node(node, "Reciprocal", before.input[0]))
        yield (repeated := self._node(node, "Expand", inverse.output[0], before.input[1]))
        yield self._node(node, "Mul", one, repeated.output[0], result=node.output[0])

    def _by_mean(self, node: NodeProto, guard: NodeProto) -> Iterator[NodeProto]:
        """A vector of channels, (N, 1, ..., C) or (N, C, 1, ...), by the mean of all of them."""
        vector, shape = node.input[0], self._shapes.get(node.input[0], [])
        names = [name for name in guard.input if name not in self._constants]
        mean = self._made(names[0], "ReduceMean") if len(names) == 1 else None
        wide = [axis for axis, size in enumerate(shape) if axis and size != 1]
        if (mean is None or mean.input[0] != vector or len(wide) != 1 or not shape[wide[0]]
                or not self._attributes(mean).get("keepdims", 1)
                or [axis % len(shape) for axis in self._axes(mean)] != wide):
            return
        channels = shape[wide[0]]
        if channels**2 > MAX_WEIGHTS:
            return
        sizes = [self._constant(node.name, np.array(numbers, np.int64)) for numbers in (
            [-1, channels, 1, 1], [-1, *shape[1:]])]
        yield (flat := self._node(node, "Reshape", vector, sizes[0]))
        weights = self._constant(node.name, np.full((channels, channels, 1, 1), 1 / channels, np.float32))
        yield (whole := self._node(node, "Conv", flat.output[0], weights))
        tiny = next(name for name in guard.input if name in self._constants)
        guarding = self._constant(node.name, numpy_helper.to_array(self._constants[tiny]).reshape(-1)[:1])
        yield (total := self._node(node, "Add", whole.output[0], guarding))
        yield (inverse := self._node(node, "Reciprocal", total.output[0]))
        yield (made := self._node(node, "Mul", flat.output[0], inverse.output[0]))
        yield self._node(node, "Reshape", made.output[0], sizes[1], result=node.output[0])

    def length(self, node: NodeProto) -> Iterator[NodeProto]:
        axes, keep = self._axes(node), self._attributes(node).get("keepdims", 1)
        shape = self._shapes.get(node.input[0], [])
        if not axes or not all(-len(shape) <= axis < len(shape) and shape[axis] for axis in axes):
            return
        yield (square := self._node(node, "Mul", node.input[0], node.input[0]))
        yield (mean := self._mean(node, square.output[0], axes, keep))
        yield (root := self._node(node, "Sqrt", mean.output[0]))
        factor = self._constant(node.name, sqrt(prod(shape[axis] for axis in axes)))
        yield self._node(node, "Mul", root.output[0], factor, result=node.output[0])

    def softmax(self, node: NodeProto) -> Iterator[NodeProto]:
        shape = self._shapes.get(node.input[0], [])
        axis = self._attributes(node).get("axis", -1)
        if len(shape) != 4 or shape[1] != 1 or axis % 4 != 3 or not shape[3] or self._are_scores(node.input[0]):
            return
        yield (power := self._node(node, "Exp", node.input[0]))
        yield (mean := self._mean(node, power.output[0], [3], 1))
        yield (total := self._node(node, "Mul", mean.output[0], self._constant(node.name, shape[3])))
        yield (inverse := self._node(node, "Reciprocal", total.output[0]))
        size = self._constant(node.name, np.array([1, 1, 1, shape[3]], np.int64))
        yield (repeated := self._node(node, "Expand", inverse.output[0], size))
        yield self._node(node, "Mul", power.output[0], repeated.output[0], result=node.output[0])

    def _are_scores(self, name: str) -> bool:
        """Whether a value is a product of two activations, scaled, bounded and masked, perhaps in another shape: its
        rows are channels.
        """
        seen, waiting = set[str](), [name]
        while waiting:
            node = self._makers.get(waiting.pop())
            if node is None or node.output[0] in seen:
                continue
            if node.op_type == "MatMul" and node.input[1] not in self._constants:
                return True
            if node.op_type in ("Mul", "Div", "Add", "Sub", "Tanh", "Reshape"):
                seen.add(node.output[0])
                waiting += node.input
        return False

    def _axes(self, node: NodeProto) -> list[int]:
        if len(node.input) > 1 and (axes := self._number(node.input[1])) is not None:
            return [int(axis) for axis in axes.reshape(-1)]
        return list(self._attributes(node).get("axes", []))

    def _mean(self, node: NodeProto, source: str, axes: list[int], keep: int) -> NodeProto:
        if self._axes_attribute:
            return self._node(node, "ReduceMean", source, axes=axes, keepdims=keep)
        numbers = self._constant(node.name, np.array(axes, np.int64))
        return self._node(node, "ReduceMean", source, numbers, keepdims=keep)
