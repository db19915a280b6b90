"""Weights of an ONNX model pruned in the machine's blocks, or without any structure."""

from collections.abc import Callable, Collection, Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from cores.config import NpuConfig
from gen.passes.prune import groups_of, prune_weights
from gen.prune.layers import PrunableLayer, find_layers

__all__ = ["densities", "prune_below", "prune_blocks", "prune_magnitudes"]


def _changed(model: onnx.ModelProto, changes: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """A copy of the model with other values in some initializers."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for tensor in result.graph.initializer:
        if tensor.name in changes:
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(changes[tensor.name]), tensor.name))
    return result


def _arrays(model: onnx.ModelProto, layers: list[PrunableLayer]) -> dict[str, np.ndarray]:
    wanted = {layer.initializer for layer in layers}
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer if tensor.name in wanted}


def prune_blocks(model: onnx.ModelProto, density: float | Mapping[str, float], config: NpuConfig) -> onnx.ModelProto:
    """The model pruned to ``density`` of each block: of all layers, or of each by its node's name, where others stay.

    A block is one output channel x tn input channels x one tap; see `gen.passes.prune.prune_weights`. Raises ValueError
    unless every density is above 0 and at most 1.
    """
    layers = [layer for layer in find_layers(model) if not layer.left]
    if isinstance(density, float | int):
        density = dict.fromkeys((layer.node for layer in layers), density)
    layers = [layer for layer in layers if layer.node in density]
    arrays = _arrays(model, layers)
    changes = {}
    for layer in layers:
        old = arrays[layer.initializer]
        weights = prune_weights(layer.weights(old), groups_of(density[layer.node], config), config)
        changes[layer.initializer] = layer.array(weights, old)
    return _changed(model, changes)


def prune_magnitudes(model: onnx.ModelProto, density: float,
                     nodes: Collection[str] | None = None) -> onnx.ModelProto:
    """The model with the smallest weights of each layer set to zero, wherever they are: the first of two stages.

    The second one, `prune_blocks`, comes after fine-tuning. ``nodes``: the layers; None: all.
    """
    def gone(sizes: np.ndarray) -> np.ndarray:
        return np.argsort(sizes, kind="stable")[:sizes.size - max(1, round(density * sizes.size))]

    return _without(model, gone, nodes)


def prune_below(model: onnx.ModelProto, threshold: float, nodes: Collection[str] | None = None) -> onnx.ModelProto:
    """As `prune_magnitudes`, without the weights whose magnitude is below ``threshold``; the largest of a layer stays.
    """
    def gone(sizes: np.ndarray) -> np.ndarray:
        return np.flatnonzero(sizes < min(threshold, sizes.max(initial=0)))

    return _without(model, gone, nodes)


def _without(model: onnx.ModelProto, gone: Callable[[np.ndarray], np.ndarray],
             nodes: Collection[str] | None) -> onnx.ModelProto:
    """The model with zeros at the places of each layer's weights that ``gone`` finds by their magnitudes."""
    layers = [layer for layer in find_layers(model) if not layer.left and (nodes is None or layer.node in nodes)]
    arrays = _arrays(model, layers)
    changes = {}
    for layer in layers:
        old = arrays[layer.initializer]
        weights = layer.weights(old).copy()
        flat = weights.reshape(-1)
        flat[gone(np.abs(flat))] = 0
        changes[layer.initializer] = layer.array(weights, old)
    return _changed(model, changes)


def densities(model: onnx.ModelProto) -> dict[str, float]:
    """Share of weights that are not zero, of every layer by its node's name."""
    layers = find_layers(model)
    arrays = _arrays(model, layers)
    return {layer.node: np.count_nonzero(values) / values.size for layer in layers
            if (values := layer.weights(arrays[layer.initializer])).size}
