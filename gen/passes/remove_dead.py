"""Layers whose output nobody reads go."""

from dataclasses import replace

from gen.ir.graph import Graph
from gen.ir.queries import used_tensors

__all__ = ["remove_dead"]


def remove_dead(graph: Graph) -> Graph:
    """Drop layers whose output nobody reads."""
    wanted = {tensor for tensor, _ in graph.outputs.values()}
    layers = []
    for layer in reversed(graph.layers):
        if layer.output in wanted:
            layers.append(layer)
            wanted |= {layer.input} | ({layer.residual.other} if layer.residual else set())
    if len(layers) == len(graph.layers):
        return graph
    graph = replace(graph, layers=layers[::-1])
    return replace(graph, tensors=used_tensors(graph))
