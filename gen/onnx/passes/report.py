"""What onnx's own errors say, on one line; and the nodes that they and ours are about."""

import re
from collections.abc import Iterable, Iterator

from onnx import NodeProto

from gen.onnx.inner import inner_graphs

__all__ = ["nested", "sentence", "title"]

#: What onnx's type inference says of a node, and of a type.
_NODE = re.compile(r"\(op_type:(?P<op>[^,]*), node name: (?P<name>.*?)\): (?:\[\w+\] )?(?P<what>[^\n]*)", re.DOTALL)
_UNSUPPORTED = re.compile(r"(\w+) typestr: [^,]+, has unsupported type: (?:sparse_)?tensor\((\w+)\)")
_UNKNOWN = re.compile(r"No Op registered for (\w+) with domain_version of (\d+)")
_INCONSISTENT = re.compile(r"(\w+) has inconsistent type (?:sparse_)?tensor\((\w+)\)")


def sentence(error: Exception) -> str:
    """What one of onnx's errors says, on one line and without its own labels."""
    found = _NODE.search(str(error))
    if found:
        what = _UNSUPPORTED.sub(r"its input \1 is \2, which the operator does not take", found["what"])
        what = _INCONSISTENT.sub(r"its input \1 is \2, which does not go with the types of the others", what)
        return f"node {found['name']} ({found['op']}): {what}"
    if (unknown := _UNKNOWN.search(str(error))) is not None:
        return (f"not a valid ONNX model: it has no operator {unknown[1]} in opset {unknown[2]}; tf2onnx leaves so, "
                "with a warning, what it cannot convert: write the layer in another way (docs/export.md)")
    text = re.sub(r"\[\w*Error\]\s*", "", str(error).split("==> Context")[0])
    return f"not a valid ONNX model: {' '.join(text.split())[:300]}"


def title(node: NodeProto) -> str:
    return f"node {node.name or next(iter(node.output), 'without a name')} ({node.op_type})"


def nested(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Nodes, and those of their subgraphs."""
    for node in nodes:
        yield node
        for graph in inner_graphs(node):
            yield from nested(graph.node)
