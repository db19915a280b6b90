"""A graph as a machine computes it: in steps."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from cores.config import NpuConfig
from gen.ir.graph import Graph
from gen.ir.parts import wholes
from gen.ir.queries import count_readers
from gen.lowering.mapped import MappedLayer, PlacedLayer
from gen.lowering.tiles import Tiles
from gen.memory.placement import Kept

__all__ = ["MappedGraph", "Step"]


class Step(ABC):
    """What is emitted at once: a layer, or several that work together."""

    @property
    @abstractmethod
    def layers(self) -> Sequence[MappedLayer]:
        """In order."""

    @property
    def kept(self) -> Mapping[str, Kept]:
        """Of what its layers write, the tensors that stay in the input buffer until they are read."""
        return {}

    @property
    def ahead(self) -> Mapping[str, int]:
        """How many steps before it the places are free of some of what it keeps in the input buffer."""
        return {}

    @property
    def follows_loads(self) -> bool:
        """Whether its first COMPUTE comes after all loads of the steps before it, though it may have none itself."""
        return False

    @abstractmethod
    def emit(self, tiles: Tiles, placed: Sequence[PlacedLayer]) -> None:
        """Emit the instructions of `layers`, which are ``placed`` in the same order."""


@dataclass(frozen=True, eq=False)
class MappedGraph:
    """How a machine computes a graph: in steps that have its layers, but those whose work others do as they load."""

    graph: Graph
    config: NpuConfig
    steps: Sequence[Step]
    #: Tensors that lie in memory as packed bits.
    packed: frozenset[str] = frozenset()

    @cached_property
    def readers(self) -> Mapping[str, int]:
        """How often each tensor is read, or channels of it (`count_readers`)."""
        return count_readers(self.graph)

    @cached_property
    def shared(self) -> frozenset[str]:
        """Tensors that are part of another one, and those that they are part of."""
        tensors = self.graph.tensors
        return frozenset(one for name in tensors for whole in wholes(tensors, name) for one in (name, whole))

    @cached_property
    def kept(self) -> Mapping[str, Kept]:
        """Tensors that are never in memory, but in the input buffer."""
        return {name: strips for step in self.steps for name, strips in step.kept.items()}
