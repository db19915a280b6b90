"""What passes ask about a graph."""

from collections import Counter, defaultdict

import numpy as np

from gen.ir.graph import Graph, Layer
from gen.ir.parts import origin, wholes
from gen.ir.tensor import Tensor

__all__ = ["count_readers", "only_clips", "only_signs", "used_tensors"]


def count_readers(graph: Graph) -> Counter[str]:
    """How often each tensor is read, or channels of it: by a layer, beside its input, or as an output of the graph."""
    reads = Counter(name for layer in graph.layers for name in layer.reads)
    reads.update(tensor for tensor, _ in graph.outputs.values())
    related: dict[str, list[tuple[str, range]]] = defaultdict(list)
    for name in graph.tensors:
        whole, channels = origin(graph.tensors, name)
        related[whole].append((name, channels))
    readers: Counter[str] = Counter()
    for several in related.values():
        for name, channels in several:
            readers[name] = sum(reads[other] for other, others in several
                                if channels.start < others.stop and others.start < channels.stop)
    return readers


def used_tensors(graph: Graph) -> dict[str, Tensor]:
    """The graph's tensors without those that no layer, input or output names, but for what these are parts of."""
    used = {tensor for tensor, _ in (*graph.inputs.values(), *graph.outputs.values())}
    for layer in graph.layers:
        used |= {layer.output, *layer.reads}
    used |= {whole for name in used for whole in wholes(graph.tensors, name)}
    return {name: tensor for name, tensor in graph.tensors.items() if name in used}


def only_signs(layer: Layer) -> bool:
    """Whether a layer gives the signs of its input's values as they are, +1 for 0."""
    if not layer.copies or layer.epilogue:
        return False
    stage = layer.requantize
    return ((stage.zero_point, stage.low, stage.high) == (1, -1, 1) and not stage.bias.any()
            and bool((stage.multiplier == np.int64(2) << stage.shift).all()))


def only_clips(layer: Layer) -> bool:
    """Whether a layer's first stage copies its input's values as they are, but for the bounds."""
    return layer.copies and layer.requantize.only_clips
