"""Pruning by magnitude, to a density that the machine makes use of."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from cores.config import NpuConfig
from gen.ir.graph import Conv, Graph
from gen.ir.layers.conv import is_binary
from gen.ir.parts import origin

__all__ = ["groups_of", "prune", "prune_weights", "rounded_density"]


def groups_of(density: float, config: NpuConfig) -> int:
    """Steps of a block at the nearest density that the machine has. Raises ValueError unless ``0 < density <= 1``."""
    if not 0 < density <= 1:
        raise ValueError(f"density must be above 0 and at most 1, not {density}")
    return max(1, round(density * config.groups_dense))


def rounded_density(density: float, config: NpuConfig) -> float:
    """The nearest density that the machine has: so many of a dense block's steps. Raises ValueError as `groups_of`."""
    return groups_of(density, config) / config.groups_dense


def _ordered(weights: np.ndarray) -> np.ndarray:
    """Integers in the order of the weights' magnitudes, with room for a channel's number after each."""
    if weights.dtype == np.float32:
        return np.abs(weights).view(np.int32).astype(np.int64)      # floats without a sign count up as their bits do
    return np.abs(weights)


def prune_weights(weights: np.ndarray, groups: int, config: NpuConfig) -> np.ndarray:
    """Keep the largest weights of every window that fit ``groups`` steps; blocks of few channels are left alone.

    ``weights``: (OC, IC, KH, KW), int16 in -255..255 or float32.
    """
    oc, ic, *kernel = weights.shape
    fanin = config.select_fanin
    keep = groups * config.nnz_lanes * fanin // config.ic_lanes
    if keep >= fanin:
        return weights
    small = ic % config.ic_lanes
    pruned_channels = ic - small if small <= config.nnz_lanes else ic
    channels_end = -(-pruned_channels // fanin) * fanin
    result = weights.copy()
    # A hundred channels at a time: the arrays between are several times the weights.
    for start in range(0, oc, 128):
        part = weights[start:start + 128, :pruned_channels]
        padded = np.zeros((len(part), channels_end, *kernel), weights.dtype)
        padded[:, :pruned_channels] = part
        # Windows last, in (oc, window, taps, channel) order. Keys are unique: of equal weights the lower channels stay.
        windows = padded.reshape(len(part), -1, fanin, kernel[0] * kernel[1]).transpose(0, 1, 3, 2)
        order = _ordered(windows)
        keys = order * order.dtype.type(fanin) + np.arange(fanin - 1, -1, -1, dtype=order.dtype)
        threshold = np.partition(keys, fanin - keep, axis=-1)[..., fanin - keep, None]
        kept = np.where(keys >= threshold, windows, 0).transpose(0, 1, 3, 2)
        result[start:start + 128, :pruned_channels] = kept.reshape(padded.shape)[:, :pruned_channels]
    return result


def prune(graph: Graph, config: NpuConfig, density: float | Mapping[str, float],
          made_before: Collection[str] = ()) -> Graph:
    """The graph with its convolutions pruned by magnitude to ``density`` of each block; biases follow the weights.

    ``density``: of all layers, or of each by its name, where those that have none stay. Layers that read a model input,
    depthwise and binary layers stay in any case. ``made_before``: inputs of the graph that are none of the model.
    Raises ValueError unless ``0 < density <= 1``.
    """
    if isinstance(density, float | int):
        groups_of(density, config)      # even where no layer is pruned
        density = dict.fromkeys((layer.name for layer in graph.layers), density)
    entrances = {tensor for name, (tensor, _) in graph.inputs.items() if name not in made_before}

    def pruned(layer: Conv) -> Conv:
        if layer.name not in density or layer.depthwise:
            return layer
        if origin(graph.tensors, layer.input)[0] in entrances:
            return layer
        if is_binary(layer, graph.tensors[layer.input]):
            return layer
        weights = prune_weights(layer.weights, groups_of(density[layer.name], config), config)
        removed = layer.weights.sum(axis=(1, 2, 3), dtype=np.int64) - weights.sum(axis=(1, 2, 3), dtype=np.int64)
        # The bias holds -zero_point * sum(weights) of the weights that are there.
        bias = layer.requantize.bias + graph.tensors[layer.input].zero_point * removed
        return replace(layer, weights=weights, requantize=replace(layer.requantize, bias=bias))

    return graph.changed(Conv, pruned)
