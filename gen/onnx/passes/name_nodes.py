"""Names of nodes."""

from collections import Counter
from itertools import count

import onnx

from gen.ir.graph import GraphError

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
            wanted = next((n for n in node.output if n), node.op_type)
            node.name = wanted if wanted not in taken else next(
                n for n in (f"{wanted}_{i}" for i in count(2)) if n not in taken)
            taken[node.name] += 1
    return model
