"""What a mapping is asked, and what it may ask."""

from abc import abstractmethod
from collections.abc import Mapping as Table
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from cores.config import NpuConfig
from gen.ir.graph import Graph, Layer, unscaled
from gen.ir.ranges import Range, input_ranges
from gen.ir.tensor import Tensor
from gen.lowering.mapped import MappedLayer, PlacedLayer
from gen.lowering.steps import Step
from gen.lowering.tiles import Tiles
from gen.mapping.overflow_check import fit_sums
from gen.memory.placement import Kept, Strips
from gen.options import CompileOptions
from gen.tiling.schedule import Plan

__all__ = ["Mapping", "Single", "LayerContext", "MappingContext"]


class _Facts(Protocol):
    @classmethod
    def of(cls, whole: "MappingContext") -> Self: ...


_F = TypeVar("_F", bound=_Facts)
#: Contexts are only read, so one of a kind of layer is one of any layer.
_L = TypeVar("_L", bound=Layer, covariant=True)
_T = TypeVar("_T", bound=Layer)


@dataclass(frozen=True, eq=False)
class MappingContext:
    """The graph to be mapped, and what is worked out of it as a whole, once."""

    graph: Graph
    config: NpuConfig
    options: CompileOptions
    _known: dict[type, _Facts] = field(default_factory=dict)

    @cached_property
    def reads(self) -> Table[str, tuple[Range, ...]]:
        """What each layer can read."""
        return input_ranges(self.graph)

    def analysis(self, kind: type[_F]) -> _F:
        """Facts of a kind, by its method ``of``."""
        if kind not in self._known:
            self._known[kind] = kind.of(self)
        return self._known[kind]  # type: ignore[return-value]

    def context(self, layer: _T, *, packed_out: bool = False) -> "LayerContext[_T]":
        return LayerContext(self, layer, self.graph.tensors[layer.input],
                            unscaled(layer, self.graph.tensors[layer.output]), self.reads[layer.name], packed_out)


@dataclass(frozen=True, eq=False)
class LayerContext(Generic[_L]):
    """A layer to be mapped, and where it stands."""

    whole: MappingContext
    layer: _L
    source: Tensor
    #: What is made, before it is upsampled.
    target: Tensor
    #: What the layer can read.
    operands: tuple[Range, ...]
    #: It writes packed bits.
    packed_out: bool

    @property
    def config(self) -> NpuConfig:
        return self.whole.config

    @property
    def options(self) -> CompileOptions:
        return self.whole.options

    @cached_property
    def fitted(self) -> _L:
        """The layer, proven to fit the accumulators. Raises LayerError."""
        return fit_sums(self.layer, self.config, self.operands)


@dataclass(frozen=True, eq=False, kw_only=True)
class Mapping(MappedLayer):
    """A way to compute a layer: its tiling, its packed weights and what is emitted for it."""

    #: The kind of layers that this way is for.
    takes: ClassVar[type[Layer]]
    #: Each `mode` that it can have, in words for those who read a report.
    modes: ClassVar[dict[str, str]]
    #: Whether its products are multiplications, whose energy is known (`gen.run.energy_ratio`).
    multiplies: ClassVar[bool] = True

    @classmethod
    @abstractmethod
    def propose(cls, context: LayerContext[Any]) -> "Mapping | None":
        """The layer of a context, one of those that it ``takes``, in this way; None if this way is not for it.

        Raises LayerError if this way applies but no tiling fits the configuration.
        """

    @classmethod
    def at(cls, context: LayerContext[Layer], plan: Plan, **more: Any) -> Self:
        """The layer of a context, as it fits the accumulators, tiled like this; ``more``: fields that differ or new."""
        fields = {"layer": context.fitted, "source": context.source, "target": context.target, "config": context.config,
                  "requantize": context.fitted.requantize, "plan": plan}
        return cls(**{**fields, **more})

    @abstractmethod
    def emit(self, tiles: Tiles, placed: PlacedLayer) -> None:
        """Emit the layer's tiles."""

    @property
    def cost(self) -> float:
        """What the ways of a layer are compared by: estimated cycles, and a little for memory traffic."""
        return self.plan.cost

    @property
    def demanded(self) -> bool:
        """Whether this way is taken wherever it can be."""
        return False


@dataclass(frozen=True, eq=False)
class Single(Step):
    """A layer by itself; ``strips``: of its result, if that stays in the input buffer."""

    mapping: Mapping
    strips: Strips | None = None

    @property
    def layers(self) -> tuple[MappedLayer, ...]:
        return (self.mapping,)

    @property
    def kept(self) -> Table[str, Kept]:
        return {} if self.strips is None else {self.mapping.layer.output: self.strips}

    def emit(self, tiles: Tiles, placed: Sequence[PlacedLayer]) -> None:
        self.mapping.emit(tiles, placed[0])
