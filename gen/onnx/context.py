"""What the handler of a node works with."""

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from gen.onnx.builder import GraphBuilder
from gen.onnx.channels import chosen, viewed
from gen.onnx.edges import cropped, enlarged
from gen.onnx.fold import Folder
from gen.onnx.functions import Functions
from gen.onnx.joined import joined, moved_pixels
from gen.onnx.machine import Units
from gen.onnx.model import Node, NodeError
from gen.onnx.permuted import selected
from gen.onnx.refusals import rearranged_in_front_of, refusal
from gen.onnx.values import Real, Value, channels_shape, is_plain, is_whole

__all__ = ["Context"]


@dataclass(frozen=True)
class Context:
    """One node, and the graph as far as it is built."""

    node: Node
    graph: GraphBuilder
    #: Evaluates nodes, here those that only move elements.
    folder: Folder
    opset: int
    #: What values are functions of others.
    functions: Functions
    units: Units

    def activation(self, value: Value | None, what: str = "its input") -> Real:
        """``value`` as a dequantised tensor of the graph, all of it, which may be part of another.

        Rows and columns that are cut out of a tensor, or repeated, and other pixels of it, become one of their own.
        Raises NodeError for any other.
        """
        real = self._placed(value, what)
        found = self._whole(real) or selected(self.graph, real) or joined(self.graph, real)
        if found is None:
            raise NodeError(f"{what} is a part of tensor {real.quantised.tensor} that cuts channels, or repeats one; "
                            "the machine takes whole channels, so such a part can only be an output of the model",
                            at=real.moved_by, code="rearranged")
        return found

    def _placed(self, value: Value | None, what: str) -> Real:
        """``value`` with its tensor of the graph."""
        if not isinstance(value, Real):
            raise refusal(value, what)
        return replace(value, quantised=self.graph.tensor(value.quantised, value.scale, value.zero_point))

    def _whole(self, real: Real) -> Real | None:
        """All of a tensor, or channels of one, or rows and columns at fixed distances, cut or repeated."""
        if is_whole(real.order, prod(self.graph.tensors[real.quantised.tensor].shape)):
            return real
        part = chosen(self.graph, real)
        return part if part is not real else cropped(self.graph, real) or enlarged(self.graph, real)

    def feature_map(self, value: Value | None) -> tuple[Real, tuple[int, int, int]]:
        """An activation whose arrangement is that of its tensor in memory, and its (C, H, W). Raises NodeError."""
        real = self._placed(value, "its input")
        dims = channels_shape(real.order.shape)
        if dims is None or real.order.ndim < 3:
            raise NodeError(f"its input has shape {real.order.shape}; it needs channels and one or two spatial axes",
                            code="bad-shape")
        real = self._whole(real) or self._moved(real, dims) or self.activation(real)
        if not self._lies(real, dims) and self._has_pixels_in_order(real, dims):
            real = viewed(self.graph, chosen(self.graph, real), dims)
        if not self._lies(real, dims):
            real = self._moved(real, dims) or real
        tensor = self.graph.tensors[real.quantised.tensor]
        if not self._lies(real, dims):
            raise rearranged_in_front_of(self.node.name, tensor.name, real.moved_by)
        return real, tensor.shape

    def _moved(self, real: Real, dims: tuple[int, int, int]) -> Real | None:
        """`moved_pixels` of an activation of ``dims``."""
        found = moved_pixels(self.graph, _of_shape(real, (1, *dims)))
        return None if found is None else _of_shape(found, real.order.shape)

    def _has_pixels_in_order(self, real: Real, dims: tuple[int, int, int]) -> bool:
        """Whether its channels alone may be in another order than in its tensor."""
        count = prod(self.graph.tensors[real.quantised.tensor].shape[1:])
        return bool(prod(dims[1:]) == count and (real.order.reshape(-1, count) % count == np.arange(count)).all())

    def _lies(self, real: Real, dims: tuple[int, int, int]) -> bool:
        """Whether an activation of ``dims`` is arranged as its tensor is."""
        return (dims == self.graph.tensors[real.quantised.tensor].shape
                and is_plain(real.order))


def _of_shape(real: Real, shape: tuple[int, ...]) -> Real:
    return replace(real, quantised=replace(real.quantised, order=real.order.reshape(shape)))
