"""Graphs within nodes: the branches of an If, the bodies of Loop and Scan."""

from collections.abc import Iterator

from onnx import GraphProto, NodeProto

__all__ = ["all_graphs", "inner_graphs"]


def inner_graphs(node: NodeProto) -> Iterator[GraphProto]:
    """Those of a node's attributes, without those within them; one without nodes may have outputs."""
    for attribute in node.attribute:
        yield from (graph for graph in (attribute.g, *attribute.graphs) if graph.node or graph.output)


def all_graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """``graph``, and those within its nodes, at any depth."""
    yield graph
    for node in graph.node:
        for inner in inner_graphs(node):
            yield from all_graphs(inner)
