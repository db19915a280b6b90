"""Convolutions with several outputs of each input channel, as depthwise ones of one output each.

With a multiplier of channels, output ``c * m + j`` is made of channel ``c`` alone: of the lanes of an output one has
work. A depthwise layer in windows has work for most of them (`gen.mapping.windows`). So where the machine has windows
there are ``m`` such layers, of the outputs ``j`` of all channels each, which lie side by side; what reads them has its
weights in that order.
"""

from dataclasses import replace

import numpy as np

from gen.ir.channel_places import spaced, spaced_operation
from gen.ir.graph import Conv, Graph, Layer
from gen.ir.parts import related
from gen.ir.queries import used_tensors
from gen.ir.tensor import Part, Tensor

__all__ = ["split_multipliers"]


def split_multipliers(graph: Graph, tn: int) -> Graph:
    """The same graph with depthwise layers for those with a multiplier, where all that reads a result is convolutions;
    their results begin at multiples of ``tn`` channels.
    """
    chosen = {layer.name for layer in graph.of(Conv) if _splits(graph, layer)}
    if not chosen:
        return graph
    tensors, layers = dict(graph.tensors), list[Layer]()
    names = {*tensors, *(layer.name for layer in graph.layers)}
    places: dict[str, tuple[str, np.ndarray]] = {}      # result -> the tensor in its place, where its channels are
    for layer in graph.layers:
        if isinstance(layer, Conv) and layer.input in places:
            name, place = places[layer.input]
            layer = replace(layer, input=name, weights=spaced(layer.weights, place, 1), counted=layer.products)
        if layer.name in chosen:
            assert isinstance(layer, Conv)
            made, parts, place = _split(layer, tensors[layer.output], tn, names)
            layers += made
            tensors |= {tensor.name: tensor for tensor in parts}
            places[layer.output] = parts[0].name, place
        else:
            layers.append(layer)
    graph = replace(graph, layers=tuple(layers), tensors=tensors)
    return replace(graph, tensors=used_tensors(graph))


def _split(layer: Conv, target: Tensor, tn: int, names: set[str]) -> tuple[list[Conv], list[Tensor], np.ndarray]:
    """A layer's depthwise ones; the tensor that is in place of its result, with their parts of it; and where in it the
    channels of the result are.
    """
    channels, many = layer.groups, len(layer.weights) // layer.groups
    apart, size, first = -(-channels // tn) * tn, target.shape[1:], layer.requantize
    gaps = tuple(range(j * apart + channels, (j + 1) * apart) for j in range(many - 1) if apart > channels)
    whole = replace(target, name=_free(f"{target.name}/split", names), shape=(apart * (many - 1) + channels, *size),
                    onnx_name="", gaps=gaps)
    own = np.arange(channels)
    weights = layer.weights.reshape(channels, many, channels, *layer.kernel)[own, :, own]
    parts, layers = [whole], []
    for j in range(many):
        part = replace(target, name=_free(f"{whole.name}/{j}", names), shape=(channels, *size), onnx_name="",
                       part=Part(whole.name, j * apart))
        parts.append(part)
        layers.append(replace(
            layer, name=_free(f"{layer.name}/{j}", names) if j else layer.name, output=part.name, depthwise=True,
            groups=1, counted=None, weights=np.ascontiguousarray(weights[:, j, None]),
            requantize=replace(first, bias=first.bias[j::many], multiplier=first.multiplier[j::many],
                               shift=first.shift[j::many]),
            epilogue=tuple(spaced_operation(op, {}, channels) for op in layer.epilogue)))
    return layers, parts, np.add.outer(own, apart * np.arange(many)).ravel()


def _free(wanted: str, names: set[str]) -> str:
    while wanted in names:
        wanted += "'"
    names.add(wanted)
    return wanted


def _splits(graph: Graph, layer: Conv) -> bool:
    """Whether a layer has a multiplier, and readers that take channels in any places; with a stride it would take
    longer to load the input for each of the layers than lanes without work do.
    """
    outputs, inputs = layer.weights.shape[:2]
    if layer.groups != inputs or outputs < 2 * inputs or inputs == 1 or not layer.is_exact:
        return False
    if layer.kernel == (1, 1) or tuple(layer.stride) != (1, 1) or layer.others:
        return False
    fixed = related(graph.tensors) | {tensor for tensor, _ in graph.outputs.values()}
    if layer.output in fixed or graph.tensors[layer.output].signs:
        return False
    # Of each group its own channel, and no other.
    read = np.count_nonzero(layer.weights, axis=(2, 3)).reshape(inputs, -1, inputs).sum(axis=1)
    return not read[~np.eye(inputs, dtype=bool)].any() and all(
        isinstance(reader, Conv) and not reader.depthwise and reader.groups == 1 and reader.is_exact
        and layer.output not in reader.others for reader in graph.layers if layer.output in reader.reads)
