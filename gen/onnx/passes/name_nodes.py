"""Names of nodes."""

from collections import Counter

import onnx

from gen.ir.errors import GraphError
from gen.onnx.names import unique

__all__ = ["name_nodes"]


def name_nodes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Names for nodes without one: messages, reports and the comparison go by names."""
    nodes = model.graph.node
    taken = Counter(node.name for node in nodes if node.name)
    twice = next((name for name, times in taken.items() if times > 1), None)
    if twice is not None:
        raise GraphError(f"not a valid ONNX model: two nodes have the name {twice}; give each its own, or none")
    for node in nodes:
        if not node.name:
            node.name = unique(next((n for n in node.output if n), node.op_type), taken)
            taken[node.name] += 1
    return model
