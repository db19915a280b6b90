"""A graph as a machine computes it: in steps."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from cores.config import NpuConfig
from gen.ir.graph import Graph
from gen.lowering.mapped import MappedLayer, PlacedLayer
from gen.lowering.tiles import Tiles
from gen.tiling.schedule import Plan

__all__ = ["MappedGraph", "Step"]


class Step(ABC):
    """What is emitted at once: a layer, or several that work together."""

    @property
    @abstractmethod
    def layers(self) -> Sequence[MappedLayer]:
        """In order."""

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The tiling of each layer."""
        return tuple(layer.plan for layer in self.layers)

    @property
    def inner(self) -> frozenset[str]:
        """Tensors that its layers hand on inside the machine."""
        return frozenset()

    @abstractmethod
    def emit(self, tiles: Tiles, placed: Sequence[PlacedLayer]) -> None:
        """``placed``: the layers."""


@dataclass(frozen=True, eq=False)
class MappedGraph:
    """How a machine computes a graph: in steps that have its layers, but those whose work others do as they load."""

    graph: Graph
    config: NpuConfig
    steps: Sequence[Step]
    #: Tensors that lie in memory as maps of signs.
    maps: frozenset[str] = frozenset()
