"""What passes ask about a graph."""

from collections import Counter, defaultdict

import numpy as np

from gen.ir.graph import Graph, Layer, Pool, Tensor, second_stage
from gen.ir.parts import origin, wholes

__all__ = ["count_readers", "is_uniform", "only_clips", "only_signs", "read_by", "used_tensors"]


def read_by(layer: Layer) -> tuple[str, ...]:
    """What a layer reads: its input, and what it adds or multiplies with."""
    return (layer.input, layer.residual.other) if layer.residual else (layer.input,)


def count_readers(graph: Graph) -> Counter[str]:
    """How often each tensor is read, or channels of it: by a layer, as a residual, or as an output of the graph."""
    reads = Counter(name for layer in graph.layers for name in read_by(layer))
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
        used |= {layer.output, *read_by(layer)}
    used |= {whole for name in used for whole in wholes(graph.tensors, name)}
    return {name: tensor for name, tensor in graph.tensors.items() if name in used}


def _reads_single(layer: Layer) -> bool:
    """Whether a layer is a copy: each value is made of one."""
    return isinstance(layer, Pool) and (layer.kernel, layer.stride, layer.pads) == ((1, 1), (1, 1), (0, 0, 0, 0))


def only_signs(layer: Layer) -> bool:
    """Whether a layer gives the signs of its input's values as they are, +1 for 0."""
    if not _reads_single(layer) or layer.upsample != (1, 1):
        return False
    stage = layer.requantize
    return ((stage.zero_point, stage.low, stage.high) == (1, -1, 1) and not second_stage(layer)
            and layer.table is None and not stage.bias.any()
            and bool((stage.multiplier == np.int64(2) << stage.shift).all()))


def is_uniform(layer: Layer) -> bool:
    """Whether a layer is a copy that does the same with all channels."""
    stage = layer.requantize
    return _reads_single(layer) and not any(np.ptp(numbers) for numbers in (stage.bias, stage.multiplier, stage.shift))


def only_clips(layer: Layer) -> bool:
    """Whether a layer's first stage copies its input's values as they are, but for the bounds, perhaps upsampled."""
    if not _reads_single(layer):
        return False
    requantize = layer.requantize
    return (bool((requantize.multiplier == np.int64(1) << requantize.shift).all())
            and bool((requantize.bias == -requantize.zero_point).all()))
