"""Seeded random graphs whose weights have four bits."""

from dataclasses import replace

import numpy as np

from gen.ir.graph import Conv, Graph
from gen.ir.verify import verify
from tests.random_layers import random_graph

__all__ = ["random_int4", "with_int4"]


def with_int4(graph: Graph, seed: int, *, share: float = 0.7) -> Graph:
    """The graph with weights within -8..7 in a ``share`` of its convolutions; zeros stay."""
    rng = np.random.default_rng(seed)
    layers = [replace(layer, weights=np.clip(layer.weights, -8, 7))
              if isinstance(layer, Conv) and rng.random() < share else layer for layer in graph.layers]
    graph = replace(graph, layers=tuple(layers))
    verify(graph)
    return graph


def random_int4(seed: int, *, layers: int = 2, max_size: int = 14, grouped: float = 0.2) -> Graph:
    """Random layers, most of them with such weights."""
    return with_int4(random_graph(seed, layers=layers, max_size=max_size, grouped=grouped), seed)
