"""Names of nodes."""

import onnx

from gen.onnx.names import unique

__all__ = ["name_nodes"]


def name_nodes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Names for nodes without one, and others for those whose name an earlier node has: messages, reports and the
    comparison go by names.
    """
    nodes = model.graph.node
    taken, met = {node.name for node in nodes if node.name}, set[str]()
    for node in nodes:
        if not node.name or node.name in met:
            node.name = unique(node.name or next((n for n in node.output if n), node.op_type), taken)
            taken.add(node.name)
        met.add(node.name)
    return model
