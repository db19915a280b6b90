"""Channels in front of convolutions in groups lie so that the groups share a machine's blocks evenly.

A lane of the array chooses among some channels of a block. Where neighbours are of one group, the lanes of an output
that reach the other groups' channels have nothing; and where groups are no blocks, an output block with channels of two
groups reads the inputs of both. If each block has as many channels of each group that it has any of, and each lane's
choice too, neither is so. It costs nothing: the layer that makes these channels makes them in that order.
"""

from dataclasses import replace
from math import lcm

import numpy as np

from cores.config import NpuConfig
from gen.ir.graph import Conv, Graph
from gen.ir.parts import related
from gen.ir.queries import count_readers, used_tensors
from gen.passes.costs import Steps

__all__ = ["arrange_groups"]


def arrange_groups(graph: Graph, config: NpuConfig, steps: Steps) -> Graph:
    """The same graph with the channels that convolutions in groups read in an order of fewer steps, where one layer
    alone makes them, and one alone reads them.
    """
    if not any(layer.groups > 1 for layer in graph.of(Conv)):
        return graph
    readers, makers = count_readers(graph), {layer.output: layer for layer in graph.of(Conv)}
    outside = {tensor for tensor, _ in (*graph.inputs.values(), *graph.outputs.values())}
    outside |= related(graph.tensors)
    changed: dict[str, Conv] = {}
    tensors = dict(graph.tensors)
    for layer in graph.of(Conv):
        name, maker = layer.input, makers.get(layer.input)
        if layer.groups == 1 or not layer.is_exact or maker is None or name in outside:
            continue
        if maker.depthwise or maker.groups > 1 or not maker.is_exact or maker.others or readers[name] > 1:
            continue
        if graph.tensors[name].signs or name in layer.others:
            continue
        order = _order(layer, graph.tensors[layer.output].shape[2], config, steps)
        if order is None:
            continue
        # Of another name: what is known of the model's tensor is not so of this.
        own = f"{name}/arranged"
        while own in tensors:
            own += "'"
        tensors[own] = replace(tensors[name], name=own, onnx_name="")
        first = maker.requantize
        stage = replace(first, bias=first.bias[order], multiplier=first.multiplier[order], shift=first.shift[order])
        changed[maker.name] = replace(maker, output=own, weights=maker.weights[order], requantize=stage)
        layer = changed.get(layer.name, layer)
        changed[layer.name] = replace(layer, input=own, weights=np.ascontiguousarray(layer.weights[:, order]))
    if not changed:
        return graph
    graph = replace(graph, layers=tuple(changed.get(layer.name, layer) for layer in graph.layers), tensors=tensors)
    return replace(graph, tensors=used_tensors(graph))


def _order(layer: Conv, width: int, config: NpuConfig, steps: Steps) -> np.ndarray | None:
    """Its input channels in the order of fewest steps; None if they lie well. ``width``: of its output."""
    outputs, channels = layer.weights.shape[:2]
    own, made, tn = channels // layer.groups, outputs // layer.groups, config.ic_lanes
    best, fewest = None, _cycles(layer, width, config, steps)
    # Groups that share blocks, or all that an output tile has channels of.
    for together in sorted({lcm(own, tn), lcm(lcm(made, config.oc_lanes) // made * own, tn)}):
        parts = [np.arange(first, min(first + together, channels)) for first in range(0, channels, together)]
        order = np.concatenate([part.reshape(-1, own).T.ravel() for part in parts])
        cycles = _cycles(replace(layer, weights=layer.weights[:, order]), width, config, steps)
        if cycles < fewest:
            best, fewest = order, cycles
    return best


def _cycles(layer: Conv, width: int, config: NpuConfig, steps: Steps) -> int:
    """Of the steps of a row of outputs, of all tiles, one tap each."""
    spread = config.groups_share and config.oc_groups > 1
    return min(steps(layer, narrow=narrow) * -(-width // config.word_columns(spread=narrow))
               for narrow in ((False, True) if spread else (False,)))
