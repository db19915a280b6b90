"""Passes over the graph: each a function Graph -> Graph that leaves alone what it has nothing to do with."""

from collections.abc import Callable

from gen.ir.graph import Graph
from gen.ir.verify import verify
from gen.passes.fuse_copies import fuse_copies
from gen.passes.fuse_residual import fuse_residual
from gen.passes.remove_dead import remove_dead
from gen.passes.unit_strides import unit_strides

__all__ = ["PASSES", "fuse_copies", "fuse_residual", "remove_dead", "run_passes", "unit_strides"]

PASSES: tuple[Callable[[Graph], Graph], ...] = (remove_dead, unit_strides, fuse_copies, fuse_residual)


def run_passes(graph: Graph) -> Graph:
    """All passes in order, the graph verified after each. Raises GraphError as `gen.ir.verify.verify`."""
    for apply in PASSES:
        graph = apply(graph)
        verify(graph)
    return graph
