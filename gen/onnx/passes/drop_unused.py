"""Nodes, initializers and inputs without use."""

from typing import Any

import onnx

from gen.onnx.passes.report import nested

__all__ = ["drop_unused"]


def drop_unused(model: onnx.ModelProto) -> onnx.ModelProto:
    """Only what an output needs is left; of the inputs all but those that such initializers stand for."""
    graph = model.graph
    needed, nodes = {output.name for output in graph.output}, []
    for node in reversed(graph.node):
        if not needed.isdisjoint(node.output):
            nodes.append(node)
            needed.update(name for inner in nested([node]) for name in inner.input)
    absent = {tensor.name for tensor in graph.initializer} - needed
    _keep(graph.node, nodes[::-1])
    _keep(graph.initializer, [tensor for tensor in graph.initializer if tensor.name not in absent])
    _keep(graph.input, [value for value in graph.input if value.name not in absent])
    return model


def _keep(field: Any, items: list[Any]) -> None:
    if len(items) < len(field):
        del field[:]
        field.extend(items)
