"""Graph -> program: pack, plan, lower, place."""

import numpy as np

from cores.config import NpuConfig
from gen.assembler import encode_all
from gen.geometry import CompileError
from gen.ir import Conv, Graph, Layer, Pool, verify
from gen.lower import Lowering
from gen.pack import PackedWeights, pack_conv, pack_parameters, prune
from gen.program import LayerInfo, Placement, Program
from gen.schedule import Plan, plan_conv, plan_pool
from gen.sums import fit_sums

__all__ = ["CompileError", "compile_graph"]

#: Tensors begin at multiples of this many bytes of the data region, so that bursts seldom cross a 4 KiB line.
_ALIGNMENT = 4096


def _describe(graph: Graph, layer: Layer, packed: PackedWeights | None, config: NpuConfig) -> LayerInfo:
    """A layer's entry in the program's table."""
    if isinstance(layer, Pool):
        return LayerInfo(layer.name, layer.op, "max" if layer.maximum else "sum", layer.input, layer.output, 0, 0)
    assert packed is not None
    _, height, width = graph.tensors[layer.output].shape
    macs = useful = layer.weights.size * height * width
    mode = "depthwise" if layer.depthwise else "dense"
    if not layer.depthwise:
        full, rest = divmod(layer.weights.shape[1], config.ic_lanes)
        dense_steps = len(packed.tiles) * (full * config.groups_dense + -(-rest // config.nnz_lanes))
        if sum(part.blocks * part.groups for tile in packed.tiles for part in tile) < dense_steps:
            mode, useful = "sparse", int(np.count_nonzero(layer.weights)) * height * width
    return LayerInfo(layer.name, layer.op, mode, layer.input, layer.output, macs, useful)


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
                  model: bytes | None = None) -> tuple[Program, Graph]:
    """Compile a graph. Returns the program and the graph it computes: pruned, if ``density`` is given.

    ``density`` (0..1) prunes by magnitude (`gen.pack.prune`); layers that are sparse already are found without it.
    ``model`` is kept in the program as it is.

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
            weights = pack_conv(layer, config)
            plans.append(plan_conv(layer, source, target, weights.tiles, config))
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
        if weights:
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
        layers=tuple(_describe(graph, layer, weights, config)
                     for layer, weights in zip(graph.layers, packed, strict=True)),
        instruction_layers=tuple(layers), density=density, model=model)
    return program, graph
