"""The ways to compute a layer, and the choice between them."""

from collections.abc import Hashable
from dataclasses import replace

from cores.arch.isa_features import is_supported, reserved_fields
from cores.config import NpuConfig
from cores.errors import Reason
from gen.ir.errors import CompileError, LayerError, UnfitError
from gen.ir.graph import Conv, Graph, Layer, is_broadcast
from gen.lowering.steps import MappedGraph
from gen.mapping.base import LayerContext, Mapping, MappingContext, Single
from gen.mapping.binary import BinaryLayers, BinaryMapping
from gen.mapping.chained import chain
from gen.mapping.dilated import DilatedMapping
from gen.mapping.fused import fuse
from gen.mapping.gather import GatherMapping
from gen.mapping.grouped import GroupedMapping
from gen.mapping.matmul import MatMulMapping
from gen.mapping.matrix import MatrixMapping
from gen.mapping.move import MoveMapping
from gen.mapping.plain import PlainMapping
from gen.mapping.pool import PoolMapping
from gen.mapping.row_passes import RowMapping
from gen.mapping.stochastic import StochasticMapping
from gen.mapping.trial import Trial
from gen.mapping.turn import TurnMapping
from gen.mapping.whole import keep_whole
from gen.mapping.windows import WindowMapping
from gen.mapping.winograd.mapping import WinogradMapping
from gen.options import CompileOptions

__all__ = ["MAPPINGS", "choose", "map_graph"]

#: Of two that cost the same the first is taken.
MAPPINGS: tuple[type[Mapping], ...] = (
    StochasticMapping, BinaryMapping, WindowMapping, GroupedMapping, GatherMapping, WinogradMapping, DilatedMapping,
    PlainMapping, MatrixMapping, PoolMapping, MoveMapping, TurnMapping, MatMulMapping, RowMapping)


def choose(context: LayerContext[Layer]) -> Mapping:
    """The cheapest way to compute a layer. Raises LayerError if no way fits the configuration."""
    found: list[Mapping] = []
    refusal = LayerError(context.layer.name, f"no machine computes layers of the kind {context.layer.op}; leave it to "
                                             "the processor", code="layer-kind", kind=context.layer.op)
    for kind in MAPPINGS:
        if not isinstance(context.layer, kind.takes) or context.layer.windows != (1, 1) and not kind.stores_windows:
            continue
        try:
            mapping = kind.propose(context)
        except LayerError as error:
            refusal = error
            continue
        if mapping is not None and mapping.demanded:
            return mapping
        found += [] if mapping is None else [mapping]
    if not found:
        raise refusal
    return min(found, key=lambda mapping: mapping.cost)


def map_graph(graph: Graph, config: NpuConfig, options: CompileOptions) -> MappedGraph:
    """Choose a mapping for each layer.

    Raises UnfitError with all layers that the configuration cannot run, so that they can be left to the processor at
    once; CompileError for a machine without the units that the graph was made for.
    """
    _require_units(graph, config)
    whole = MappingContext(graph, config, options)
    binary = whole.analysis(BinaryLayers)
    layers: list[Mapping] = []
    unfit: dict[str, Reason] = {}
    known: dict[Hashable, Mapping] = {}
    for layer in graph.layers:
        if layer.output in binary.spared:
            continue
        context = whole.context(layer, packed_out=layer.output in binary.packed)
        try:
            layers.append(_chosen(context, known) if options.batch > 1 else choose(context))
        except LayerError as error:
            unfit[error.layer] = error.reason
    if unfit:
        raise UnfitError(unfit)
    mapped = MappedGraph(graph, config, [Single(layer) for layer in layers], binary.packed)
    if not config.local_store or (options.depthwise, options.fusion) != ("auto", "auto"):
        return mapped
    trial = Trial(mapped)
    return keep_whole(trial, chain(trial, fuse(trial)))


def _chosen(context: LayerContext[Layer], known: dict[Hashable, Mapping]) -> Mapping:
    """`choose`, with the mapping and the packed weights of the same layer for another sample, if it is ``known``."""
    layer = context.layer
    if not isinstance(layer, Conv) or layer.others:
        return choose(context)
    key = (id(layer.weights), id(layer.requantize), layer.form, tuple(map(id, layer.epilogue)),
           context.source.shape, context.target.shape)
    like = known.setdefault(key, choose(context)) if key not in known else known[key]
    if like.layer.name == layer.name:
        return like
    found = replace(like, layer=replace(like.layer, name=layer.name, input=layer.input, output=layer.output),
                    source=context.source, target=context.target)
    if like.weights is not None:
        found.__dict__["weights"] = like.weights
    return found


def _require_units(graph: Graph, config: NpuConfig) -> None:
    """Raises CompileError for the first operation of an epilogue that a machine's instruction set lacks."""
    for layer in graph.layers:
        for op in layer.epilogue:
            fields = op.encode(broadcast=is_broadcast(graph, layer))
            if op.opcode is not None and not (is_supported(op.opcode, config) and not any(
                    fields.get(name) for name in reserved_fields(op.opcode, config))):
                raise CompileError(f"layer {layer.name}: {op.refusal}", code="needs-unit", layer=layer.name)
