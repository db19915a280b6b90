"""Pruning by magnitude, to a density that the machine makes use of."""

from dataclasses import replace

import numpy as np

from cores.config import NpuConfig
from gen.ir.graph import Conv, Graph, Layer, is_binary
from gen.ir.parts import origin

__all__ = ["prune", "prune_weights"]


def prune_weights(weights: np.ndarray, groups: int, config: NpuConfig) -> np.ndarray:
    """Keep the largest weights of every window that fit ``groups`` steps; blocks of few channels are left alone."""
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
        padded = np.zeros((len(part), channels_end, *kernel), np.int16)
        padded[:, :pruned_channels] = part
        # Windows last, in (oc, window, taps, channel) order. Keys are unique: of equal weights the lower channels stay.
        windows = padded.reshape(len(part), -1, fanin, kernel[0] * kernel[1]).transpose(0, 1, 3, 2)
        keys = np.abs(windows) * np.int16(fanin) + np.arange(fanin - 1, -1, -1, dtype=np.int16)
        threshold = np.partition(keys, fanin - keep, axis=-1)[..., fanin - keep, None]
        kept = np.where(keys >= threshold, windows, 0).transpose(0, 1, 3, 2)
        result[start:start + 128, :pruned_channels] = kept.reshape(padded.shape)[:, :pruned_channels]
    return result


def prune(graph: Graph, config: NpuConfig, density: float) -> Graph:
    """The graph with its convolutions pruned by magnitude to ``density`` of each block; biases follow the weights.

    Layers that read a model input, depthwise and binary layers stay. Raises ValueError unless ``0 < density <= 1``.
    """
    if not 0 < density <= 1:
        raise ValueError(f"density must be above 0 and at most 1, not {density}")
    groups = max(1, round(density * config.groups_dense))
    entrances = {tensor for tensor, _ in graph.inputs.values()}

    def pruned(layer: Layer) -> Layer:
        if not isinstance(layer, Conv) or layer.depthwise or origin(graph.tensors, layer.input)[0] in entrances:
            return layer
        if is_binary(layer, graph.tensors[layer.input]):
            return layer
        weights = prune_weights(layer.weights, groups, config)
        removed = layer.weights.sum(axis=(1, 2, 3), dtype=np.int64) - weights.sum(axis=(1, 2, 3), dtype=np.int64)
        # The bias holds -zero_point * sum(weights) of the weights that are there.
        bias = layer.requantize.bias + graph.tensors[layer.input].zero_point * removed
        return replace(layer, weights=weights, requantize=replace(layer.requantize, bias=bias))

    return replace(graph, layers=tuple(pruned(layer) for layer in graph.layers))
