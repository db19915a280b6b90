"""Layers that a machine turned out not to be able to compute, as nodes of the model."""

from collections.abc import Collection

from gen.ir.errors import CompileError, UnfitError
from gen.ir.graph import Graph
from gen.ir.queries import read_by
from gen.onnx.model import PRODUCTS, Model

__all__ = ["UnfitNodesError"]

#: Operators that only convert a layer's ends.
_EDGES = ("QuantizeLinear", "DequantizeLinear")


class UnfitNodesError(CompileError):
    """``reasons``: nodes of the model that have to be left to the processor, and why. The message is that of ``error``.

    Where a layer has a convolution or a matrix product, that alone is too much for the machine: what is computed with
    its result may be a layer of its own. A layer that was added has no nodes: those that read its result have to go.
    """

    def __init__(self, error: UnfitError, graph: Graph, model: Model) -> None:
        super().__init__(str(error))
        ops = {node.name: node.op for node in model.nodes}
        self.reasons = {node: reason for layer, reason in error.reasons.items()
                        for node in _at_fault(layer, graph, ops)}


def _at_fault(name: str, graph: Graph, ops: dict[str, str]) -> Collection[str]:
    """The nodes of the layer called so, ``ops`` being the operators of all nodes."""
    waiting, seen = [layer for layer in graph.layers if layer.name == name], set[str]()
    while waiting:
        layer = waiting.pop(0)
        seen.add(layer.name)
        nodes = [node for node in layer.onnx_nodes if ops.get(node, _EDGES[0]) not in _EDGES]
        if nodes:
            return [node for node in nodes if ops[node] in PRODUCTS][:1] or nodes
        waiting += [reader for reader in graph.layers if reader.name not in seen and layer.output in read_by(reader)]
    return ()
