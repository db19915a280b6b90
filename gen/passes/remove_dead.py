"""Layers whose output nobody reads go."""

from dataclasses import replace

from gen.ir.graph import Graph
from gen.ir.parts import Present
from gen.ir.queries import used_tensors

__all__ = ["remove_dead"]


def remove_dead(graph: Graph) -> Graph:
    """Drop layers whose output nobody reads."""
    wanted = Present(graph.tensors)
    for tensor, _ in graph.outputs.values():
        wanted.add(tensor)
    layers = []
    for layer in reversed(graph.layers):
        if wanted.any_of(layer.output):
            layers.append(layer)
            for name in layer.reads:
                wanted.add(name)
    if len(layers) == len(graph.layers):
        return graph
    graph = replace(graph, layers=layers[::-1])
    return replace(graph, tensors=used_tensors(graph))
