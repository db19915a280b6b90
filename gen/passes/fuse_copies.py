"""A copy that only clips, upsamples, bends or looks up goes into the layer in front of it."""

from dataclasses import replace
from typing import TypeVar

import numpy as np

from gen.ir.graph import Bend, Conv, Graph, Layer, Requantize, Residual, Table, second_stage
from gen.ir.queries import count_readers, is_uniform, only_clips, used_tensors
from sim.golden import run_layer

__all__ = ["fuse_copies"]

Stage = TypeVar("Stage", Requantize, Residual, Bend)


def _clipped(stage: Stage, clip: Requantize) -> Stage:
    low, high = np.clip([stage.low, stage.high], clip.low, clip.high).tolist()
    return replace(stage, low=low, high=high)


def _takes(maker: Layer, copy: Layer) -> bool:
    """Whether a layer can do what a copy does, beside its own work; in its table, if it has one, that is anything.

    A store has one second stage, and one that adds would add a tensor of the larger size. Windows would be pooled again
    for each copy of a row.
    """
    if second_stage(maker) and copy.upsample != (1, 1):
        return False
    if maker.table:
        if not is_uniform(copy):
            return False
    elif not only_clips(copy):
        return False
    elif copy.bend and (second_stage(maker) or copy.upsample != (1, 1)
                        or copy.requantize.zero_point != maker.requantize.zero_point):
        return False
    return copy.upsample == (1, 1) or isinstance(maker, Conv) or maker.kernel == (1, 1)


def _merged(graph: Graph, maker: Layer, copy: Layer) -> Layer:
    down, across = (n * m for n, m in zip(maker.upsample, copy.upsample, strict=True))
    merged = replace(maker, output=copy.output, upsample=(down, across),
                     onnx_nodes=(*maker.onnx_nodes, *copy.onnx_nodes))
    if maker.table:
        return replace(merged, table=_behind(maker.table, copy))
    if copy.table:
        merged = replace(merged, table=replace(copy.table, middle=graph.tensors[copy.input]))
    if maker.residual:
        return replace(merged, residual=_clipped(maker.residual, copy.requantize))
    if maker.bend:
        return replace(merged, bend=_clipped(maker.bend, copy.requantize))
    merged = replace(merged, requantize=_clipped(maker.requantize, copy.requantize))
    if copy.bend:
        merged = replace(merged, bend=replace(copy.bend, middle=graph.tensors[copy.input]))
    return merged


def _behind(table: Table, copy: Layer) -> Table:
    """A table that does what ``table`` and, after it, a copy do."""
    first = copy.requantize
    of_one = replace(first, bias=first.bias[:1], multiplier=first.multiplier[:1], shift=first.shift[:1])
    values = run_layer(replace(copy, requantize=of_one, upsample=(1, 1)), table.values.reshape(1, 1, -1)).reshape(-1)
    return replace(table, values=values)


def fuse_copies(graph: Graph) -> Graph:
    """Merge a copy that only clips, upsamples, bends or looks up into the layer that made its input, if nobody else
    reads that; any copy into one that has a table.

    One that upsamples is a Resize, any other an activation function with a quantisation of its own.
    """
    readers = count_readers(graph)
    layers: list[Layer] = []
    for layer in graph.layers:
        made = next((i for i, earlier in enumerate(layers) if earlier.output == layer.input), None)
        if (made is None or readers[layer.input] != 1 or layer.residual or graph.tensors[layer.output].signs
                or not _takes(layers[made], layer)):
            layers.append(layer)
        else:
            layers[made] = _merged(graph, layers[made], layer)
    if len(layers) == len(graph.layers):
        return graph
    graph = replace(graph, layers=layers)
    return replace(graph, tensors=used_tensors(graph))
