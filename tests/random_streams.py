"""Random graphs whose convolutions can be computed by streams, and a choice of streams for them."""

from dataclasses import replace

import numpy as np

from cores.config import NpuConfig
from gen.ir.graph import Conv, Graph, Layer
from gen.ir.verify import verify
from gen.passes.streams import exact_layers
from sim.stochastic.streams import Streams
from tests.random_layers import random_graph

__all__ = ["centred", "random_choice"]


def centred(seed: int, **options: int) -> Graph:
    """`tests.random_layers.random_graph` with zero points of 0 and int8 weights."""
    def layer_of(layer: Layer) -> Layer:
        if not isinstance(layer, Conv):
            return layer
        return replace(layer, pad_value=None, weights=layer.weights.clip(-128, 127).astype(np.int16))

    graph = random_graph(seed, **options)
    tensors = {name: replace(tensor, zero_point=0) for name, tensor in graph.tensors.items()}
    graph = replace(graph, tensors=tensors, layers=tuple(map(layer_of, graph.layers)))
    verify(graph)
    return graph


def random_choice(graph: Graph, config: NpuConfig, rng: np.random.Generator, *, most: int = 64) -> dict[str, Streams]:
    """Streams of any kind for most of the layers that can have them, those that read an input too."""
    choice = {}
    reasons = exact_layers(graph, config)
    for layer in graph.layers:
        if "reads an input" in reasons.get(layer.name, "reads an input") and rng.random() < 0.8:
            length = 1 << int(rng.integers(3, most.bit_length()))
            choice[layer.name] = Streams(length, int(rng.choice([length, 8])))
    return choice
