"""A mapped graph with a place for everything: in memory, or in the input buffer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cores.arch.isa import Opcode
from cores.arch.numerics import MIN_SHIFT
from cores.config import NpuConfig
from cores.errors import Reason
from gen.ir.errors import UnfitError
from gen.ir.parts import origin
from gen.ir.tensor import Requantize
from gen.lowering.mapped import MappedLayer, PlacedLayer
from gen.lowering.steps import MappedGraph
from gen.memory.input_buffer import InputBuffer
from gen.memory.placement import Place, Placement, aligned
from gen.memory.region import Constants, Lifetime, arrange
from gen.tiling.geometry import MAX_BEATS
from gen.tiling.weights import PARAMETER_BEATS

__all__ = ["PlacedGraph", "in_buffer", "in_memory", "pack_parameters", "require_room"]


def pack_parameters(requantize: Requantize, config: NpuConfig) -> np.ndarray:
    """Channel parameters: uint8 (blocks * PARAMETER_BEATS, tn). Channels beyond the last have multiplier 0."""
    channels, tn = len(requantize.bias), config.ic_lanes
    words = np.zeros((-(-channels // tn) * tn, 2), "<u4")
    words[:, 1] = MIN_SHIFT << 24
    words[:channels, 0] = requantize.bias.astype(np.int32).view(np.uint32)
    words[:channels, 1] = requantize.multiplier.astype(np.uint32) | requantize.shift.astype(np.uint32) << 24
    return words.view(np.uint8).reshape(-1, config.beat_bytes)


@dataclass(frozen=True, eq=False)
class PlacedGraph:
    """The data region, in beats: constants from 0 on, feature maps from ``write_start`` to ``end``. ``buffer`` has the
    tensors that stay in the input buffer.
    """

    mapped: MappedGraph
    #: The layers of each step.
    steps: Sequence[tuple[PlacedLayer, ...]]
    constants: np.ndarray
    write_start: int
    #: Feature maps in memory.
    tensors: dict[str, Placement]
    #: Tensors that are constants.
    given: dict[str, Placement]
    end: int
    buffer: InputBuffer

    @property
    def places(self) -> Mapping[str, Place]:
        """Of all tensors."""
        return {**self.tensors, **self.given, **self.buffer.places}

    @classmethod
    def of(cls, mapped: MappedGraph, *, keep_all: bool = False, contents: bool = True) -> "PlacedGraph":
        """``keep_all``: no feature map is in the place of another. Without ``contents`` constants have room alone.

        Raises UnfitError for more than instructions reach, with the layers that take most of it.
        """
        config, constants, number = mapped.config, Constants(), 0
        steps: list[tuple[PlacedLayer, ...]] = []
        for step in mapped.steps:
            placed = []
            for layer in step.layers:
                if contents:
                    weights = 0 if layer.weights is None else constants.add(layer.weights.data)
                    parameters = constants.add(pack_parameters(layer.requantize, config))
                else:
                    weights = constants.reserve(layer.weight_beats)
                    parameters = constants.reserve(len(layer.output_blocks(1)) * PARAMETER_BEATS)
                placed.append(PlacedLayer(number, layer, weights, parameters, _constants(layer, constants)))
                number += 1
            steps.append(tuple(placed))
        given = {name: _given(value, constants, config.beat_bytes, contents=contents)
                 for name, value in mapped.graph.constants.items()}
        write_start = aligned(constants.beats, config.ic_lanes)
        tensors, end = arrange(in_memory(mapped, keep_all=keep_all), write_start, config.ic_lanes)
        if end > MAX_BEATS:
            raise UnfitError(_largest(mapped, end))
        return cls(mapped, steps, constants.data(), write_start, tensors, given, end, in_buffer(mapped))


def _given(value: np.ndarray, constants: Constants, beat_bytes: int, *, contents: bool) -> Placement:
    """The place of a tensor that is a constant."""
    place = Placement(0, value.shape)
    offset = (constants.add(place.packed(value, beat_bytes)) if contents
              else constants.reserve(place.beats(beat_bytes)))
    return replace(place, offset=offset)


def _constants(layer: MappedLayer, constants: Constants) -> dict[Opcode, range]:
    """The places of those that operations of a layer's epilogue have."""
    places: dict[Opcode, range] = {}
    for op in layer.layer.epilogue:
        beats = op.constants(layer.config.beat_bytes)
        if beats is not None:
            assert op.opcode is not None
            first = constants.add(beats)
            places[op.opcode] = range(first, first + len(beats))
    return places


def require_room(mapped: MappedGraph, *, keep_all: bool) -> None:
    """Raises UnfitError as `PlacedGraph.of`; quick for what has room though nothing takes the place of another."""
    if sum(_beats(mapped).values()) > MAX_BEATS // 2:       # inputs and what lies between tensors are not counted
        PlacedGraph.of(mapped, keep_all=keep_all)


def _beats(mapped: MappedGraph) -> dict[str, int]:
    """What each layer takes: its constants and its output."""
    tn, forms = mapped.config.ic_lanes, in_memory(mapped, keep_all=True)
    found = {}
    for step in mapped.steps:
        for layer in step.layers:
            output = forms.get(layer.layer.output)
            found[layer.layer.name] = layer.weight_beats + len(layer.output_blocks(1)) * PARAMETER_BEATS + (
                aligned(output[0].beats(tn), tn) if output else 0)
    return found


def _largest(mapped: MappedGraph, end: int) -> dict[str, Reason]:
    """The fewest layers without which so many beats would be no more than instructions reach -> what they take."""
    found, beat_bytes = dict[str, Reason](), mapped.config.beat_bytes
    for name, beats in sorted(_beats(mapped).items(), key=lambda item: -item[1]):
        found[name] = Reason(f"its weights and its result take {beats * beat_bytes:,} of {end * beat_bytes:,} bytes, "
                             f"and instructions reach {MAX_BEATS * beat_bytes:,}",
                             code="beyond-reach", limit=MAX_BEATS * beat_bytes)
        end -= beats
        if end <= MAX_BEATS:
            break
    return found


def _lifetimes(mapped: MappedGraph) -> dict[str, Lifetime]:
    """When each tensor is needed, wherever it is.

    A STORE may overwrite what an earlier step has loaded, and needs no token for that: it comes after a COMPUTE of its
    own step, which comes after a LOAD_ACT of that step, and the load queue has the earlier step's loads before that
    LOAD_ACT. A step that finds its input in the input buffer has no LOAD_ACT, so loaded tensors are needed until a step
    follows that has one. Only side data may be loaded after the next step has begun (`gen.lowering`), so tensors that
    are added are kept for one step more. A tensor and its parts are needed from the first write to the last read of any
    of them.
    """
    graph, steps, loading = mapped.graph, mapped.steps, _loading(mapped)
    times = {tensor: Lifetime(-1, -1) for tensor, _ in graph.inputs.values()}

    def needed(name: str, number: int) -> None:
        now = Lifetime(number, number)
        times[name] = now.joined(times.get(name, now))

    def until(number: int) -> int:
        """The last step that what is loaded in one is needed in."""
        return next((n for n in loading if n > number), max(number + 1, len(steps))) - 1

    for number, step in enumerate(steps):
        for layer in step.layers:
            for name in layer.operands:
                needed(name, number if name in mapped.kept else until(number))
            for name in layer.others:
                needed(name, until(number + 1))
            needed(layer.layer.output, number)
    for tensor, _ in graph.outputs.values():
        needed(tensor, len(steps))
    for name in list(times):
        whole, _ = origin(graph.tensors, name)
        times[whole] = times[name].joined(times.get(whole, times[name]))
    return times


def _loading(mapped: MappedGraph) -> list[int]:
    """Steps that load what they compute on, or some of it, or come after all loads before them."""
    return [number for number, step in enumerate(mapped.steps)
            if step.follows_loads or any(layer.input not in mapped.kept for layer in step.layers)]


def in_buffer(mapped: MappedGraph) -> InputBuffer:
    """The input buffer with the tensors that stay there: each from the last step before that loads, as what nobody
    computes on may still be on its way; or from that on in front of which its padding is loaded.
    """
    times, loading = _lifetimes(mapped) if mapped.kept else {}, _loading(mapped)
    first = {name: max(0, times[name].first - step.ahead.get(name, 0)) for step in mapped.steps for name in step.kept}
    return InputBuffer(mapped.config.input_depth, {
        name: (strips, replace(times[name], first=max(n for n in (0, *loading) if n <= first[name])))
        for name, strips in mapped.kept.items()})


def in_memory(mapped: MappedGraph, *, keep_all: bool) -> dict[str, tuple[Placement, Lifetime]]:
    """The form of every tensor in memory, and when it is needed."""
    graph, times = mapped.graph, _lifetimes(mapped)
    always = Lifetime(-1, len(mapped.steps))
    interleaved = {layer.input for step in mapped.steps for layer in step.layers if layer.interleaves}

    def form(name: str) -> Placement:
        (channels, height, width), (whole, place) = graph.tensors[name].shape, origin(graph.tensors, name)
        if whole == name:
            return Placement(0, (channels, height, width), name in mapped.packed, name in interleaved)
        return Placement(place.start // mapped.config.ic_lanes * height * width, (channels, height, width), whole=whole)

    return {name: (form(name), always if keep_all else times[origin(graph.tensors, name)[0]])
            for name in times if name not in mapped.kept and graph.tensors[name].value is None}
