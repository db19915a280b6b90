"""A graph's layers, in order: each by the module of its kind."""

from collections.abc import Mapping, Sequence

from cores.arch.isa import Instruction
from cores.config import NpuConfig
from gen.ir.graph import Graph
from gen.lowering.convolution import convolution
from gen.lowering.fused import fused
from gen.lowering.pooling import pooling
from gen.lowering.tiles import Tiles
from gen.lowering.windows import windows
from gen.mapping.binary import SignSource
from gen.mapping.depthwise import WindowGeometry
from gen.mapping.fusion import FusedPlan
from gen.mapping.pack import PackedWeights
from gen.memory.placement import Memory
from gen.tiling.schedule import Plan

__all__ = ["Lowering"]


class Lowering:
    """Emits the layers of a graph, in order; ``signs``: where those on the binary unit, by name, have their input."""

    def __init__(self, graph: Graph, config: NpuConfig, memory: Memory, signs: Mapping[str, SignSource]) -> None:
        self._tiles = Tiles(graph, config, memory, signs)

    def layers(self, plans: Sequence[Plan], packed: Sequence[PackedWeights | None],
               pairs: Mapping[int, FusedPlan]) -> None:
        """Emit all layers. ``packed``: the weights of convolutions; ``pairs``: layers that are fused with the next."""
        for index, (plan, weights) in enumerate(zip(plans, packed, strict=True)):
            if index in pairs:
                behind = packed[index + 1]
                assert weights is not None and behind is not None
                fused(self._tiles, index, pairs[index], weights, behind)
            elif index - 1 in pairs:
                continue
            elif weights is None:
                pooling(self._tiles, index, plan)
            elif isinstance(plan.geometry, WindowGeometry):
                windows(self._tiles, index, plan, weights)
            else:
                convolution(self._tiles, index, plan, weights)

    def finish(self) -> tuple[list[Instruction], list[int]]:
        """The program and the layer of each instruction. Raises ValueError when a field does not fit its bits."""
        self._tiles.stores.flush(self._tiles.stores.opened)
        return self._tiles.emitter.finish()
