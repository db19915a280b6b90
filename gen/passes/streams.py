"""Gives layers the streams that their sums are to be made of (docs/stochastic.md)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from cores.config import NpuConfig
from gen.ir.channel_padding import padding_values
from gen.ir.errors import CompileError
from gen.ir.graph import Conv, Graph, Layer
from gen.ir.layers.conv import Stochastic, is_binary
from gen.ir.parts import origin
from sim.stochastic.streams import Streams

__all__ = ["StreamChoice", "exact_layers", "of_segment", "require_streams", "shorten_streams", "stream_layers"]

#: For all layers that can, or for those of these names.
StreamChoice = Streams | Mapping[str, Streams]

_READS_AN_INPUT = "it reads an input of the model; name it to have it in streams"


def stream_layers(graph: Graph, config: NpuConfig, choice: StreamChoice | None) -> Graph:
    """The graph with the layers of a choice in streams: those named, or all that can be but those that read an input.

    Raises CompileError for a machine without the unit, a layer that is not there, one that cannot be (and why), and if
    none can.
    """
    if choice is None or choice == {}:
        return graph
    if not config.stochastic_rows:
        raise CompileError(f"model {graph.name}: streams need a machine with the stochastic unit (--features "
                           "stochastic)", code="needs-unit", unit="stochastic")
    reasons = exact_layers(graph, config)
    if isinstance(choice, Streams):
        streams = {layer.name: choice for layer in graph.layers if layer.name not in reasons}
        if not streams:
            raise CompileError(f"model {graph.name}: no layer can be computed by streams; "
                               f"{'; '.join(f'{name}: {reason}' for name, reason in list(reasons.items())[:3])}",
                               code="no-streams")
    else:
        streams = dict(choice)
        for name in streams:
            if name not in {layer.name for layer in graph.layers}:
                raise _absent(graph.name, name)
            if name in reasons and reasons[name] != _READS_AN_INPUT:
                raise CompileError(f"layer {name}: cannot be computed by streams: {reasons[name]}", code="no-streams")

    def given(layer: Conv) -> Conv:
        form = layer.name in streams and Stochastic(config.circuit, streams[layer.name], config.ic_lanes)
        return replace(layer, stochastic=form) if form else layer

    return graph.changed(Conv, given)


def exact_layers(graph: Graph, config: NpuConfig) -> dict[str, str]:
    """The layers that stay exact where all that can be are computed by streams, and why."""
    inputs = {tensor for tensor, _ in graph.inputs.values()}
    beyond = padding_values(graph)
    found = {}
    for layer in graph.layers:
        reason = _problem(graph, layer, config, beyond)
        if reason is None and origin(graph.tensors, layer.input)[0] in inputs:
            reason = _READS_AN_INPUT
        if reason is not None:
            found[layer.name] = reason
    return found


def _problem(graph: Graph, layer: Layer, config: NpuConfig, beyond: Mapping[str, int]) -> str | None:
    """Why a layer cannot be computed by streams."""
    source = graph.tensors[layer.input]
    if not isinstance(layer, Conv):
        return f"it is a {layer.op}"
    if layer.depthwise:
        return "it is depthwise: its sums are of a single channel"
    if _moves(layer):
        return "it only moves values"
    if layer.winograd:
        return "it is in the narrow Winograd form"
    if source.signs or is_binary(layer, source):
        return "it multiplies signs"
    if source.zero_point or layer.padding(source.zero_point):
        return (f"its input {layer.input} has the zero point {source.zero_point}, and streams stand for numbers around "
                "0 (`quantize --symmetric`)")
    if int(layer.weights.min()) < -128 or int(layer.weights.max()) > 127:
        return "it has weights beyond int8"
    if config.circuit.bipolar and source.shape[0] % config.ic_lanes and beyond.get(layer.input) != 0:
        return (f"{config.circuit.label} adds up whole blocks of {config.ic_lanes} channels, and beyond the last of "
                f"{layer.input} are others than zeros")
    return None


def _moves(layer: Conv) -> bool:
    """Whether each output channel of a convolution is some values of its input as they are."""
    ones = layer.weights.reshape(len(layer.weights), -1)
    return not layer.onnx_nodes and bool(((ones == 1).sum(axis=1) == 1).all() and np.count_nonzero(ones) == len(ones))


def of_segment(graph: Graph, config: NpuConfig, choice: StreamChoice | None) -> StreamChoice | None:
    """What of a model's choice is for one of its segments: its own layers of those named; nothing where none can be."""
    if choice is None or not config.stochastic_rows:
        return choice
    names = {layer.name for layer in graph.layers}
    if isinstance(choice, Streams):
        return choice if names - exact_layers(graph, config).keys() else None
    return {name: streams for name, streams in choice.items() if name in names}


def require_streams(name: str, graphs: Sequence[Graph], choice: StreamChoice | None) -> None:
    """Raises CompileError if none of the segments of model ``name`` has what its choice asks for."""
    if isinstance(choice, Streams):
        if not any(layer.stochastic for graph in graphs for layer in graph.of(Conv)):
            raise CompileError(f"model {name}: no layer can be computed by streams, but those that read what a segment "
                               "begins with; name them to have them in streams", code="no-streams")
        return
    for missing in sorted((choice or {}).keys() - {layer.name for graph in graphs for layer in graph.layers}):
        raise _absent(name, missing)


def _absent(model: str, layer: str) -> CompileError:
    return CompileError(f"model {model}: has no layer {layer!r} for streams; `profile` lists them",
                        code="no-such-layer")


def shorten_streams(graph: Graph, shift: int) -> Graph:
    """What a machine computes when register ``stream_shift`` has ``shift``."""
    def shorter(layer: Conv) -> Conv:
        form = layer.stochastic
        return layer if form is None else replace(
            layer, stochastic=replace(form, streams=form.streams.shortened(shift)))

    return graph.changed(Conv, shorter) if shift else graph
