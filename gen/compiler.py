"""Graph -> program, in stages: pruned and rounded graph, mapped graph, placed graph, instructions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cores.arch.instruction import Instruction
from cores.config import NpuConfig
from gen.ir.errors import CompileError
from gen.ir.graph import Conv, Graph
from gen.ir.verify import verify
from gen.lowering.lower import lower
from gen.lowering.placed import PlacedGraph, require_room
from gen.lowering.steps import MappedGraph
from gen.lowering.verify import verify_mapped, verify_placed
from gen.mapping.dilated import zeros_between_taps
from gen.mapping.pack import steps_on
from gen.mapping.registry import map_graph
from gen.mapping.store_maxima import maxima_in_stores
from gen.mapping.strides import split_strides
from gen.mapping.turn import turn_matrices
from gen.mapping.winograd.choice import choose_narrow
from gen.mapping.winograd.fit_shifts import fit_shifts
from gen.mapping.winograd.narrow import narrow_graph
from gen.options import CompileOptions
from gen.passes.align_parts import align_parts
from gen.passes.arrange_groups import arrange_groups
from gen.passes.batch import batched
from gen.passes.fold_picks import fold_picks
from gen.passes.prune import prune
from gen.passes.space_parts import space_parts
from gen.passes.split_multipliers import split_multipliers
from gen.passes.streams import stream_layers
from gen.program.assembler import encode_all
from gen.program.ports import input_ports, output_ports
from gen.program.program import LayerInfo, Program

__all__ = ["Lowered", "MappedGraph", "compile_graph", "generate", "lowered", "map_graph", "of_all_samples", "prepare",
           "require_room", "zeros_between_taps"]


@dataclass(frozen=True, eq=False)
class Lowered:
    """A graph as instructions: all that its time depends on. ``owners``: the layer of each one, -1 for none."""

    placed: PlacedGraph
    instructions: Sequence[Instruction]
    owners: Sequence[int]


def prepare(graph: Graph, config: NpuConfig, options: CompileOptions,
            samples: Mapping[str, np.ndarray] | None = None) -> Graph:
    """The graph that a program for these options computes.

    If asked for, it is pruned and has narrow Winograd layers and layers of streams. Its parts lie on blocks of
    channels, and groups of channels share blocks evenly. Long strides, and multipliers of channels, become several
    layers. Maxima of 2x2 are taken where their input is stored, if the machine does that.

    ``samples``: model inputs (N, ...) to which the shifts of such layers are fitted. Raises GraphError for a graph that
    breaks the IR's rules, UnfitError for what the machine cannot compute of it, CompileError for a machine that cannot
    do so, ValueError for a density out of range.
    """
    verify(graph)
    if options.density is not None:
        graph = prune(graph, config, options.density)
    if config.depthwise and options.depthwise == "auto":
        graph = split_multipliers(graph, config.ic_lanes)
    steps = steps_on(config)
    graph = align_parts(space_parts(graph, config, steps), config.ic_lanes)
    graph = arrange_groups(fold_picks(graph, config.ic_lanes, steps), config, steps)
    graph = turn_matrices(split_strides(graph, config), config)
    if options.winograd == "exact" and config.winograd != 2:
        raise CompileError(f"model {graph.name}: exact Winograd layers need a machine with winograd=2 "
                           f"(--winograd-unit 2), not {config.winograd}", code="needs-unit", unit="winograd")
    shifts = options.winograd_shifts
    if not shifts and options.winograd == "narrow":
        shifts = choose_narrow(graph, config, options)
        if samples is not None:
            shifts = fit_shifts(graph, shifts, samples)
    graph = narrow_graph(graph, shifts)
    graph = stream_layers(graph, config, options.stochastic)
    graph = maxima_in_stores(graph, config, options)
    verify(graph)
    return graph


def of_all_samples(graph: Graph, config: NpuConfig, options: CompileOptions) -> Graph:
    """What a program has layers for: a graph that is prepared, of one sample, or of all those of a batch."""
    if options.batch == 1:
        return graph
    graph = batched(graph, options.batch, config)
    verify(graph)
    return graph


def compile_graph(graph: Graph, config: NpuConfig, options: CompileOptions | None = None, *,
                  model: bytes | None = None) -> tuple[Program, Graph]:
    """Compile a graph. Returns the program and the graph that it computes of each sample. Raises what `prepare` and
    `generate` do.
    """
    options = options or CompileOptions()
    graph = prepare(graph, config, options)
    return generate(of_all_samples(graph, config, options), config, options, model=model), graph


def lowered(graph: Graph, config: NpuConfig, options: CompileOptions, mapped: MappedGraph | None = None) -> Lowered:
    """The instructions for a graph that is prepared, and perhaps ``mapped``.

    Raises UnfitError for layers that the configuration cannot run, or has no room for, CompileError for a machine that
    lacks a unit.
    """
    mapped = mapped or map_graph(graph, config, options)
    verify_mapped(mapped)
    placed = PlacedGraph.of(mapped, keep_all=options.keep_all)
    verify_placed(placed)
    try:
        return Lowered(placed, *lower(placed))
    except ValueError as error:
        raise CompileError(f"model {graph.name}: {error}", code="instruction-limit") from None


def generate(graph: Graph, config: NpuConfig, options: CompileOptions, *, model: bytes | None = None,
             mapped: MappedGraph | None = None, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Program:
    """The program for a graph that is prepared, `of_all_samples`, and perhaps ``mapped``; ``model`` is kept in it as it
    is.

    ``shapes``: of the model's inputs, samples first, where they are other than those of their feature maps.

    Raises what `lowered` does.
    """
    result = lowered(graph, config, options, mapped)
    placed = result.placed
    layers, kept = [layer.mapped for step in placed.steps for layer in step], placed.buffer.places
    return Program(
        name=graph.name, config=config, code=encode_all(result.instructions), constants=placed.constants.tobytes(),
        data_beats=placed.end, write_start=placed.write_start, tensors=placed.tensors,
        input_ports=input_ports(graph, placed.tensors, shapes or {}),
        output_ports=output_ports(graph, placed.tensors),
        layers=tuple(LayerInfo(
            item.layer.name, item.layer.op, "fused" if item.layer.output in kept else item.mode, item.input,
            item.layer.output, item.macs, item.useful_macs, item.lane_macs) for item in layers),
        instruction_layers=tuple(result.owners), density=options.density, batch=options.batch, model=model,
        winograd={layer.name: layer.winograd.shifts for layer in graph.of(Conv) if layer.winograd},
        streams={layer.name: layer.stochastic.streams for layer in graph.of(Conv) if layer.stochastic})
