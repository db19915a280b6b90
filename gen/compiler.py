"""Graph -> program: pack, plan, lower, place."""

from typing import Literal

import numpy as np

from cores.config import NpuConfig
from gen.assembler import encode_all
from gen.depthwise import WindowGeometry, pack_windows
from gen.geometry import CompileError
from gen.ir import Conv, Graph, Layer, Pool, Tensor, verify
from gen.lower import Lowering
from gen.pack import PackedWeights, pack_conv, pack_parameters, prune
from gen.program import LayerInfo, Placement, Program
from gen.schedule import Plan, plan_conv, plan_pool, plan_windows
from gen.sums import fit_sums

__all__ = ["CompileError", "DepthwiseMode", "compile_graph"]

#: Tensors begin at multiples of this many bytes of the data region, so that bursts seldom cross a 4 KiB line.
_ALIGNMENT = 4096


#: How depthwise layers are computed: the faster way of each, or with one channel a lane whatever the configuration.
DepthwiseMode = Literal["auto", "plain"]


def _describe(graph: Graph, layer: Layer, packed: PackedWeights | None, plan: Plan, config: NpuConfig) -> LayerInfo:
    """A layer's entry in the program's table."""
    if isinstance(layer, Pool):
        return LayerInfo(layer.name, layer.op, "max" if layer.maximum else "sum", layer.input, layer.output, 0, 0)
    assert packed is not None
    _, height, width = graph.tensors[layer.output].shape
    macs = useful = layer.weights.size * height * width
    mode = "dense"
    if layer.depthwise:
        mode = "window" if isinstance(plan.geometry, WindowGeometry) else "depthwise"
    if not layer.depthwise:
        full, rest = divmod(layer.weights.shape[1], config.ic_lanes)
        dense_steps = len(packed.tiles) * (full * config.groups_dense + -(-rest // config.nnz_lanes))
        if sum(part.blocks * part.groups for tile in packed.tiles for part in tile) < dense_steps:
            mode, useful = "sparse", int(np.count_nonzero(layer.weights)) * height * width
        if plan.narrow and len(packed.tiles) == 1:
            mode = "narrow"
    return LayerInfo(layer.name, layer.op, mode, layer.input, layer.output, macs, useful)


def _plan_conv(layer: Conv, source: Tensor, target: Tensor, config: NpuConfig,
               depthwise_mode: DepthwiseMode) -> tuple[PackedWeights, Plan]:
    """Pack a convolution and choose its tiling; of a depthwise layer's two forms the one of fewer cycles."""
    geometry = None
    if layer.depthwise and depthwise_mode == "auto":
        geometry = WindowGeometry.fitting(layer, source, target, config)
    choices = []
    if geometry is not None:
        packed = pack_windows(layer, geometry, config)
        plan = plan_windows(layer, geometry, packed, config)
        if plan is not None:
            choices.append((packed, plan))
    packed = pack_conv(layer, config)
    try:
        choices.append((packed, plan_conv(layer, source, target, packed.tiles, config)))
    except CompileError:
        if not choices:
            raise
    return min(choices, key=lambda choice: choice[1].cost)


def _place_tensors(graph: Graph, config: NpuConfig, start: int) -> tuple[dict[str, Placement], int]:
    """Give every tensor in memory its own place from beat ``start`` on; returns the end too."""
    step = _ALIGNMENT // config.beat_bytes
    names = [tensor for tensor, _ in graph.inputs.values()] + [layer.output for layer in graph.layers]
    places: dict[str, Placement] = {}
    for name in dict.fromkeys(names):
        channels, height, width = graph.tensors[name].shape
        places[name] = Placement(start, (channels, height, width))
        start += -(-(-(-channels // config.ic_lanes) * height * width) // step) * step
    return places, start


def compile_graph(graph: Graph, config: NpuConfig, *, density: float | None = None,
                  depthwise_mode: DepthwiseMode = "auto", model: bytes | None = None) -> tuple[Program, Graph]:
    """Compile a graph. Returns the program and the graph it computes: pruned, if ``density`` is given.

    ``density`` (0..1) prunes by magnitude (`gen.pack.prune`); layers that are sparse already are found without it.
    ``depthwise_mode`` matters only where the configuration has ``depthwise``. ``model`` is kept in the program as it
    is.

    Raises GraphError for a graph that breaks the IR's rules, CompileError for a layer that the configuration cannot
    run, ValueError for a density out of range.
    """
    verify(graph)
    if density is not None:
        graph = prune(graph, config, density)
    constants: list[np.ndarray] = []
    beats = 0

    def keep(array: np.ndarray) -> int:
        """Place an array of beats among the constants; returns its first beat."""
        nonlocal beats
        constants.append(array)
        beats += len(array)
        return beats - len(array)

    packed: list[PackedWeights | None] = []
    weight_offsets, parameter_offsets = [], []
    plans: list[Plan] = []
    for original in graph.layers:
        layer = fit_sums(original, config)
        source, target = graph.tensors[layer.input], graph.tensors[layer.output]
        weights = None
        if isinstance(layer, Conv):
            weights, plan = _plan_conv(layer, source, target, config, depthwise_mode)
            plans.append(plan)
        else:
            plans.append(plan_pool(layer, source, target, config))
        packed.append(weights)
        weight_offsets.append(keep(weights.data) if weights else 0)
        parameter_offsets.append(keep(pack_parameters(layer.requantize, config)))
    align = _ALIGNMENT // config.beat_bytes
    write_start = -(-beats // align) * align
    places, end = _place_tensors(graph, config, write_start)
    if end >= 1 << 28:
        raise CompileError(f"model {graph.name}: needs {end * config.beat_bytes} bytes of memory, instructions reach "
                           f"{(1 << 28) * config.beat_bytes}")

    lowering = Lowering(graph, config, places, weight_offsets, parameter_offsets)
    for index, (plan, weights) in enumerate(zip(plans, packed, strict=True)):
        if weights and isinstance(plan.geometry, WindowGeometry):
            lowering.windows(index, plan, weights)
        elif weights:
            lowering.convolution(index, plan, weights)
        else:
            lowering.pooling(index, plan)
    try:
        instructions, layers = lowering.finish()
    except ValueError as error:
        raise CompileError(f"model {graph.name}: {error}") from None
    program = Program(
        name=graph.name, config=config, code=encode_all(instructions),
        constants=np.concatenate(constants).tobytes(), data_beats=end, write_start=write_start, tensors=places,
        inputs={name: tensor for name, (tensor, _) in graph.inputs.items()},
        outputs={name: tensor for name, (tensor, _) in graph.outputs.items()},
        layers=tuple(_describe(graph, layer, weights, plan, config)
                     for layer, weights, plan in zip(graph.layers, packed, plans, strict=True)),
        instruction_layers=tuple(layers), density=density, model=model)
    return program, graph
