"""Which layers take the narrow form."""

from dataclasses import replace

from cores.config import NpuConfig
from gen.ir.errors import CompileError
from gen.ir.graph import Conv, Graph
from gen.mapping.base import MappingContext
from gen.mapping.registry import choose
from gen.mapping.winograd.mapping import WinogradMapping
from gen.mapping.winograd.narrow import SAFE_SHIFTS, has_tiles, narrow_layer
from gen.options import CompileOptions

__all__ = ["choose_narrow"]


def choose_narrow(graph: Graph, config: NpuConfig, options: CompileOptions) -> dict[str, tuple[int, ...]]:
    """The layers that the narrow Winograd form makes faster, by counted cycles, and shifts that suit any input.

    Raises CompileError for a machine without that form.
    """
    if config.winograd != 1:
        raise CompileError(f"model {graph.name}: narrow Winograd layers need a machine with winograd=1 "
                           f"(--features winograd), not {config.winograd}", code="needs-unit", unit="winograd")
    whole = MappingContext(graph, config, replace(options, winograd="off"))
    chosen = {}
    for layer in graph.of(Conv):
        if layer.winograd or not has_tiles(layer) or graph.tensors[layer.output].signs:
            continue
        direct = whole.context(layer)
        try:
            narrow = WinogradMapping.propose(replace(direct, layer=narrow_layer(layer, direct.source.zero_point)))
        except (CompileError, ValueError):
            continue
        if narrow is not None and narrow.cost < choose(direct).cost:
            chosen[layer.name] = SAFE_SHIFTS
    return chosen
