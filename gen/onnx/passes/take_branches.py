"""Branches whose condition is known: a model that branches by shapes has one form for one shape."""

import onnx
from onnx import NodeProto, helper

from gen.onnx.names import unique
from gen.onnx.passes.fold_sizes import computed_sizes
from gen.onnx.passes.report import nested

__all__ = ["take_branches"]

#: Branches in branches at most, for time.
_DEEPEST = 16


def take_branches(model: onnx.ModelProto) -> onnx.ModelProto:
    """The nodes of the branch that is taken in place of each If whose condition follows from constants and shapes, of
    one sample.

    PyTorch exports `squeeze` so, whose result depends on whether the axis is 1.
    """
    for _ in range(_DEEPEST):
        if not any(node.op_type == "If" for node in model.graph.node) or not _take(model):
            break
    return model


def _take(model: onnx.ModelProto) -> bool:
    """Whether there was any."""
    graph, known = model.graph, computed_sizes(model)
    taken = {name for node in nested(graph.node) for name in (node.name, *node.input, *node.output)}
    nodes: list[NodeProto] = []
    for node in graph.node:
        condition = known.get(node.input[0]) if node.op_type == "If" else None
        if condition is None or condition.size != 1:
            nodes.append(node)
            continue
        wanted = "then_branch" if condition.ravel()[0] else "else_branch"
        branch = next(attribute.g for attribute in node.attribute if attribute.name == wanted)
        nodes += _inlined(branch, node, taken)
        graph.initializer.extend(branch.initializer)
    changed = len(nodes) != len(graph.node) or any(a is not b for a, b in zip(nodes, graph.node, strict=True))
    if changed:
        del graph.node[:]
        graph.node.extend(nodes)
    return changed


def _inlined(branch: onnx.GraphProto, node: NodeProto, taken: set[str]) -> list[NodeProto]:
    """The nodes of a branch, and copies of what it gives, called as the results of ``node``."""
    nodes = list(branch.node)
    for value, name in zip(branch.output, node.output, strict=False):
        if name:
            title = unique(f"{node.name or name}/{value.name}", taken)
            taken.add(title)
            nodes.append(helper.make_node("Identity", [value.name], [name], name=title))
    return nodes
