"""What the handler of a node works with."""

from dataclasses import dataclass, replace
from math import prod

from gen.onnx.builder import GraphBuilder
from gen.onnx.edges import cropped
from gen.onnx.fold import Folder
from gen.onnx.model import Node, NodeError
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

    def activation(self, value: Value | None, what: str = "its input") -> Real:
        """``value`` as a dequantised tensor of the graph, all of it. Raises NodeError for any other.

        Rows and columns that are cut out of a tensor become one of their own.
        """
        if not isinstance(value, Real):
            raise refusal(value, what)
        real = replace(value, quantised=self.graph.tensor(value.quantised, value.scale, value.zero_point))
        tensor = self.graph.tensors[real.quantised.tensor]
        if not is_whole(real.order, prod(tensor.shape)):
            part = cropped(self.graph, real)
            if part is None:
                raise NodeError(f"{what} is only a part of tensor {tensor.name}, or repeats one; the machine moves no "
                                "data, so nothing but outputs of the model may follow", at=real.moved_by)
            return part
        return real

    def feature_map(self, value: Value | None) -> tuple[Real, tuple[int, int, int]]:
        """An activation whose arrangement is that of its tensor in memory, and its (C, H, W). Raises NodeError."""
        real = self.activation(value)
        tensor = self.graph.tensors[real.quantised.tensor]
        dims = channels_shape(real.order.shape)
        if dims is None or real.order.ndim < 3:
            raise NodeError(f"its input has shape {real.order.shape}; it needs channels and one or two spatial axes")
        if dims != tensor.shape or not is_plain(real.order):
            raise rearranged_in_front_of(self.node.name, tensor.name, real.moved_by)
        return real, tensor.shape
