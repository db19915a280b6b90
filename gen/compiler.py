"""Graph -> program: pack, plan, lower, place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from cores.config import NpuConfig
from gen.ir.graph import Conv, Graph, Layer, Pool, Requantize, Tensor, verify
from gen.ir.ranges import Range, input_ranges
from gen.lowering.layers import Lowering
from gen.mapping.binary import BinaryLayers, pack_binary
from gen.mapping.depthwise import WindowGeometry, pack_windows
from gen.mapping.fusion import FusedPlan, fusable, plan_fused
from gen.mapping.gather import GatherGeometry, gathered_layer, is_gatherable
from gen.mapping.pack import PackedWeights, pack_conv, prune
from gen.mapping.pool_schedule import plan_pool
from gen.mapping.sums import fit_exact, fit_sums
from gen.mapping.trial import Trial
from gen.mapping.winograd import SAFE_SHIFTS, WinogradGeometry, is_eligible, narrow_layer, pack_tiles
from gen.memory.placement import Memory
from gen.program.assembler import encode_all
from gen.program.program import LayerInfo, Program
from gen.tiling.geometry import CompileError, Geometry
from gen.tiling.schedule import Plan, plan_conv, plan_windows, plan_winograd

__all__ = ["CompileError", "DepthwiseMode", "FusionMode", "GatherMode", "WinogradMode", "choose_narrow",
           "compile_graph", "narrow_graph"]


#: How depthwise layers are computed: the faster way of each, or with one channel a lane whatever the configuration.
DepthwiseMode = Literal["auto", "plain"]
#: Whether depthwise layers hand their result on through the input buffer: where that is faster, or never.
FusionMode = Literal["auto", "off"]

#: Fused layers take this share of the cycles at most: what is around them can change by the rest.
_FUSION_GAIN = 0.98

#: How layers of few channels that read the model's input are computed: the faster way of each, or tap by tap.
GatherMode = Literal["auto", "plain"]

#: How dense 3x3 layers of stride 1 are computed on a machine that has Winograd. auto: where it is faster, as long as no
#: value changes, so only in an exact machine; off: never; exact: wherever an exact machine can; narrow: where it is
#: faster, although values change.
WinogradMode = Literal["auto", "off", "exact", "narrow"]


def _describe(graph: Graph, layer: Layer, packed: PackedWeights | None, plan: Plan, config: NpuConfig,
              fused: bool) -> LayerInfo:
    """A layer's entry in the program's table."""
    if isinstance(layer, Pool):
        return LayerInfo(layer.name, layer.op, "max" if layer.maximum else "sum", layer.input, layer.output, 0, 0)
    assert packed is not None
    _, height, width = graph.tensors[layer.output].shape
    macs = useful = layer.weights.size * height * width
    mode = "dense"
    if layer.depthwise:
        mode = "window" if isinstance(plan.geometry, WindowGeometry) else "depthwise"
        mode = "fused" if fused else mode
    if packed.tiles[0][0].binary:
        mode = "binary"
    elif not layer.depthwise:
        full, rest = divmod(layer.weights.shape[1], config.ic_lanes)
        dense_steps = len(packed.tiles) * (full * config.groups_dense + -(-rest // config.nnz_lanes))
        if sum(part.blocks * part.groups for tile in packed.tiles for part in tile) < dense_steps:
            mode, useful = "sparse", int(np.count_nonzero(layer.weights)) * height * width
        if plan.narrow and len(packed.tiles) == 1:
            mode = "narrow"
        if isinstance(plan.geometry, GatherGeometry):
            mode, useful = "gathered", macs
        if isinstance(plan.geometry, WinogradGeometry):
            mode, useful = "winograd", macs
    return LayerInfo(layer.name, layer.op, mode, layer.input, layer.output, macs, useful)


@dataclass(frozen=True)
class _Choice:
    """One way to compute a convolution; ``requantize`` goes with its sums."""

    packed: PackedWeights
    plan: Plan
    requantize: Requantize


def _plan_tiles(layer: Conv, source: Tensor, target: Tensor, config: NpuConfig,
                inputs: Range | None = None) -> _Choice | None:
    """The layer in transformed tiles: in the narrow form if it has one, else in the exact one. None if it cannot."""
    geometry = WinogradGeometry.fitting(layer, source, target)
    form = layer if layer.winograd else fit_exact(layer, config, inputs)
    if geometry is None or form is None:
        return None
    packed = pack_tiles(form, config)
    plan = plan_winograd(form, geometry, target, packed.tiles, config)
    return None if plan is None else _Choice(packed, plan, form.requantize)


def _plan_gathered(layer: Conv, source: Tensor, target: Tensor, config: NpuConfig, *, map_out: bool) -> _Choice | None:
    """The layer as a 1x1 convolution of gathered rows; None if it cannot."""
    geometry = GatherGeometry.fitting(layer, source, target, config)
    if geometry is None or map_out:
        return None
    layer = gathered_layer(layer)
    packed = pack_conv(layer, config)
    try:
        plan = plan_conv(layer, source, target, packed.tiles, config, geometry=geometry)
    except CompileError:
        return None
    return _Choice(packed, plan, layer.requantize)


def _plan_plain(layer: Conv, source: Tensor, target: Tensor, config: NpuConfig, *, map_out: bool = False) -> _Choice:
    packed = pack_conv(layer, config)
    plan = plan_conv(layer, source, target, packed.tiles, config, map_out=map_out)
    return _Choice(packed, plan, layer.requantize)


def _plan_conv(layer: Conv, source: Tensor, target: Tensor, config: NpuConfig, depthwise_mode: DepthwiseMode,
               winograd_mode: WinogradMode, *, map_out: bool, gather: bool, inputs: Range | None = None) -> _Choice:
    """Pack a convolution and choose its tiling; of the forms that compute the same values that of fewer cycles.

    ``map_out``: it writes a map of signs; ``gather``: its input may be laid out for gathered rows; ``inputs``: as in
    `fit_sums`.
    """
    if layer.winograd:
        if config.winograd != 1:
            raise CompileError(f"layer {layer.name}: the narrow Winograd form needs a machine with winograd=1, "
                               f"not {config.winograd}")
        choice = None if map_out else _plan_tiles(layer, source, target, config)
        if choice is None:
            raise CompileError(f"layer {layer.name}: no tile of its Winograd form fits "
                               f"input_depth={config.input_depth} and acc_depth={config.acc_depth}; build with deeper "
                               "memories")
        return choice
    choices = []
    if layer.depthwise and depthwise_mode == "auto":
        geometry = WindowGeometry.fitting(layer, source, target, config, map_out=map_out)
        if geometry is not None:
            packed = pack_windows(layer, geometry, config)
            plan = plan_windows(layer, geometry, packed, config)
            if plan is not None:
                choices.append(_Choice(packed, plan, layer.requantize))
    if gather:
        choice = _plan_gathered(layer, source, target, config, map_out=map_out)
        if choice is not None:
            choices.append(choice)
    if config.winograd == 2 and winograd_mode != "off" and is_eligible(layer) and not map_out:
        choice = _plan_tiles(layer, source, target, config, inputs)
        if choice is not None:
            if winograd_mode == "exact":
                return choice
            choices.append(choice)
    try:
        choices.append(_plan_plain(layer, source, target, config, map_out=map_out))
    except CompileError:
        if not choices:
            raise
    return min(choices, key=lambda choice: choice.plan.cost)


def choose_narrow(graph: Graph, config: NpuConfig, gather_mode: GatherMode = "auto") -> dict[str, tuple[int, ...]]:
    """The layers that the narrow Winograd form makes faster, by counted cycles, and shifts that suit any input.

    Raises CompileError for a machine without that form.
    """
    if config.winograd != 1:
        raise CompileError(f"model {graph.name}: narrow Winograd layers need a machine with winograd=1 "
                           f"(--features winograd), not {config.winograd}")
    chosen = {}
    for layer in graph.layers:
        if not isinstance(layer, Conv) or layer.winograd or not is_eligible(layer):
            continue
        source, target = graph.tensors[layer.input], graph.tensors[layer.output]
        if target.signs:
            continue
        try:
            narrow = fit_sums(narrow_layer(layer, source.zero_point), config)
        except (CompileError, ValueError):
            continue
        assert isinstance(narrow, Conv)
        choice = _plan_tiles(narrow, source, target, config)
        direct = _plan_conv(layer, source, target, config, "auto", "off", map_out=False,
                            gather=gather_mode == "auto" and is_gatherable(layer, graph))
        if choice is not None and choice.plan.cost < direct.plan.cost:
            chosen[layer.name] = SAFE_SHIFTS
    return chosen


def narrow_graph(graph: Graph, shifts: Mapping[str, Sequence[int]]) -> Graph:
    """The graph with the named layers in the narrow Winograd form, with these shifts. Raises CompileError."""
    unknown = shifts.keys() - {layer.name for layer in graph.layers}
    if unknown:
        raise CompileError(f"model {graph.name}: has no layer {min(unknown)!r}")

    def narrow(layer: Layer) -> Layer:
        if layer.name not in shifts:
            return layer
        if not isinstance(layer, Conv) or not is_eligible(layer):
            raise CompileError(f"layer {layer.name}: only dense 3x3 convolutions of stride 1 have a Winograd form")
        try:
            return narrow_layer(layer, graph.tensors[layer.input].zero_point, shifts[layer.name])
        except ValueError as error:
            raise CompileError(f"layer {layer.name}: {error}") from None

    return replace(graph, layers=tuple(narrow(layer) for layer in graph.layers))


def _plan_binary(graph: Graph, config: NpuConfig) -> tuple[BinaryLayers, dict[str, _Choice]]:
    """The layers on the binary unit, packed and planned; what no tiling fits runs in int8."""
    refused: set[str] = set()
    while True:
        chosen, planned = BinaryLayers.choose(graph, config, refused), {}
        for name, layer in chosen.layers.items():
            packed = pack_binary(layer, chosen.sources[name], config)
            try:
                plan = plan_conv(layer, graph.tensors[layer.input], graph.tensors[layer.output], packed.tiles, config,
                                 signs=chosen.sources[name], map_out=layer.output in chosen.maps)
            except CompileError:
                refused.add(name)
                break
            planned[name] = _Choice(packed, plan, layer.requantize)
        else:
            return chosen, planned


def _fuse(trial: Trial,
          packed: Sequence[PackedWeights | None]) -> tuple[dict[int, FusedPlan], Sequence[PackedWeights | None]]:
    """Pairs of layers that are faster together, by the first one's index; and all layers' weights with that."""
    graph, layers, config, binary = trial.graph, trial.layers, trial.config, trial.binary
    pairs: dict[int, FusedPlan] = {}
    before, packed = packed, list(packed)
    for index in range(len(layers)):
        if not fusable(graph, index):
            continue
        first, second = layers[index:index + 2]
        if second.name in binary.layers or {first.output, second.output} & set(binary.maps):
            continue
        weights = packed[index + 1]
        assert isinstance(first, Conv) and isinstance(second, Conv) and weights is not None
        source, middle, target = (graph.tensors[name] for name in (first.input, first.output, second.output))
        geometry = WindowGeometry.fitting(first, source, middle, config)
        if geometry is None:
            continue
        windows = pack_windows(first, geometry, config)
        choices = plan_fused(first, second, geometry, Geometry.of(second, middle, target), windows, weights, config)
        if not choices:
            continue
        # With their neighbours, whose waiting they decide.
        start, end = max(0, index - 1 - (index - 2 in pairs)), min(len(layers), index + 3)
        apart = trial.cycles(packed, pairs, start, end)
        together = [*packed[:index], windows, *packed[index + 1:]]
        cycles, number = min((trial.cycles(together, {**pairs, index: plan}, start, end), number)
                             for number, plan in enumerate(choices))
        if cycles < _FUSION_GAIN * apart:
            pairs[index], packed[index] = choices[number], windows
    if not pairs or trial.cycles(packed, pairs) >= trial.cycles(before, {}):
        return {}, before
    return pairs, packed


def compile_graph(graph: Graph, config: NpuConfig, *, density: float | None = None,
                  depthwise_mode: DepthwiseMode = "auto", fusion_mode: FusionMode = "auto",
                  gather_mode: GatherMode = "auto", winograd_mode: WinogradMode = "auto",
                  winograd_shifts: Mapping[str, Sequence[int]] | None = None,
                  model: bytes | None = None) -> tuple[Program, Graph]:
    """Compile a graph. Returns the program and the graph it computes: pruned, if ``density`` is given, and with narrow
    Winograd layers if there are some.

    ``density`` (0..1) prunes by magnitude (`prune`); layers that are sparse already are found without it.
    ``depthwise_mode`` matters only where the configuration has ``depthwise``, ``fusion_mode`` where it also has
    ``local_store``: what fused layers hand on has no place in memory. ``gather_mode`` matters where the configuration
    has ``gather``: a model input that a gathering layer reads is interleaved. ``winograd_shifts`` names the layers that
    take the narrow Winograd form, with its shifts, whatever they cost; without it they are chosen if ``winograd_mode``
    is ``narrow``. ``model`` is kept in the program as it is.

    Raises GraphError for a graph that breaks the IR's rules, CompileError for a layer that the configuration cannot
    run, ValueError for a density out of range.
    """
    verify(graph)
    if density is not None:
        graph = prune(graph, config, density)
    if winograd_shifts is None and winograd_mode == "narrow":
        winograd_shifts = choose_narrow(graph, config, gather_mode)
    if winograd_shifts:
        graph = narrow_graph(graph, winograd_shifts)
        verify(graph)
    packed: Sequence[PackedWeights | None]
    unfused: list[PackedWeights | None] = []
    plans: list[Plan] = []
    requantizes: list[Requantize] = []
    interleaved: set[str] = set()
    chosen, planned = _plan_binary(graph, config)
    whole, graph = graph, chosen.graph
    reads = input_ranges(whole)
    layers = [layer if layer.name in planned else fit_sums(layer, config, reads[layer.name]) for layer in graph.layers]
    for layer in layers:
        map_out = layer.output in chosen.maps
        source, target = graph.tensors[layer.input], graph.tensors[layer.output]
        weights, requantize = None, layer.requantize
        if layer.name in planned:
            choice = planned[layer.name]
            weights, plan, requantize = choice.packed, choice.plan, choice.requantize
            plans.append(plan)
        elif isinstance(layer, Conv):
            choice = _plan_conv(layer, source, target, config, depthwise_mode, winograd_mode, map_out=map_out,
                                gather=gather_mode == "auto" and is_gatherable(layer, graph), inputs=reads[layer.name])
            weights, plan, requantize = choice.packed, choice.plan, choice.requantize
            plans.append(plan)
            if isinstance(plan.geometry, GatherGeometry):
                interleaved.add(layer.input)
        else:
            plans.append(plan_pool(layer, source, target, config, map_out=map_out))
        unfused.append(weights)
        requantizes.append(requantize)
    fuses = config.local_store and depthwise_mode == "auto" and fusion_mode == "auto"
    fused, packed = _fuse(Trial(graph, layers, plans, chosen, config), unfused) if fuses else ({}, unfused)
    memory = Memory.of(graph, requantizes, packed, config, absent={layers[index].output for index in fused},
                       maps=chosen.maps, interleaved=interleaved)
    if memory.end >= 1 << 28:
        raise CompileError(f"model {graph.name}: needs {memory.end * config.beat_bytes} bytes of memory, instructions "
                           f"reach {(1 << 28) * config.beat_bytes}")

    lowering = Lowering(graph, config, memory, chosen.sources)
    lowering.layers(plans, packed, fused)
    try:
        instructions, owners = lowering.finish()
    except ValueError as error:
        raise CompileError(f"model {graph.name}: {error}") from None
    program = Program(
        name=graph.name, config=config, code=encode_all(instructions),
        constants=memory.constants.tobytes(), data_beats=memory.end, write_start=memory.write_start,
        tensors=memory.tensors,
        inputs={name: tensor for name, (tensor, _) in graph.inputs.items()},
        outputs={name: tensor for name, (tensor, _) in graph.outputs.items()},
        layers=tuple(_describe(graph, layer, weights, plan, config, index in fused)
                     for index, (layer, weights, plan) in enumerate(zip(graph.layers, packed, plans, strict=True))),
        instruction_layers=tuple(owners), density=density, model=model,
        winograd={layer.name: layer.winograd.shifts
                  for layer in graph.layers if isinstance(layer, Conv) and layer.winograd})
    return program, whole
