"""What the handler of a node works with."""

from dataclasses import dataclass, replace
from math import prod

from gen.onnx.builder import GraphBuilder
from gen.onnx.channels import chosen, viewed
from gen.onnx.edges import cropped, enlarged
from gen.onnx.fold import Folder
from gen.onnx.functions import Functions
from gen.onnx.machine import Units
from gen.onnx.model import Node, NodeError
from gen.onnx.permuted import permuted
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
        if not isinstance(value, Real):
            raise refusal(value, what)
        real = replace(value, quantised=self.graph.tensor(value.quantised, value.scale, value.zero_point))
        tensor = self.graph.tensors[real.quantised.tensor]
        if is_whole(real.order, prod(tensor.shape)):
            return real
        part = chosen(self.graph, real)
        if part is not real:
            return part
        cut = cropped(self.graph, real) or enlarged(self.graph, real) or permuted(self.graph, real)
        if cut is None:
            raise NodeError(f"{what} is only a part of tensor {tensor.name} that cuts channels, or repeats one; the "
                            "machine takes whole channels, so nothing but outputs of the model may follow",
                            at=real.moved_by, code="rearranged")
        return cut

    def feature_map(self, value: Value | None) -> tuple[Real, tuple[int, int, int]]:
        """An activation whose arrangement is that of its tensor in memory, and its (C, H, W). Raises NodeError."""
        real = self.activation(value)
        dims = channels_shape(real.order.shape)
        if dims is None or real.order.ndim < 3:
            raise NodeError(f"its input has shape {real.order.shape}; it needs channels and one or two spatial axes",
                            code="bad-shape")
        if not self._lies(real, dims):
            # Perhaps its channels alone are in another order.
            real = viewed(self.graph, chosen(self.graph, real), dims)
        if not self._lies(real, dims):
            real = permuted(self.graph, real, (dims[1], dims[2])) or real
        tensor = self.graph.tensors[real.quantised.tensor]
        if not self._lies(real, dims):
            raise rearranged_in_front_of(self.node.name, tensor.name, real.moved_by)
        return real, tensor.shape

    def _lies(self, real: Real, dims: tuple[int, int, int]) -> bool:
        """Whether an activation of ``dims`` is arranged as its tensor is."""
        return (dims == self.graph.tensors[real.quantised.tensor].shape
                and is_plain(real.order))
