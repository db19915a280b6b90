"""Cycles of a few layers by themselves, by the time model: what a choice between two ways of making them goes by."""

import sys
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from cores.config import NpuConfig
from gen.ir.graph import Conv, Graph, Layer
from gen.lowering.layers import Lowering
from gen.mapping.binary import BinaryLayers
from gen.mapping.fusion import FusedPlan
from gen.mapping.gather import GatherGeometry
from gen.mapping.pack import PackedWeights
from gen.memory.placement import Memory
from gen.program.assembler import encode_all
from gen.tiling.schedule import Plan
from sim.cycles import estimate

__all__ = ["Trial"]


@dataclass(frozen=True, eq=False)
class Trial:
    """A graph whose layers are planned one by one; ``layers`` are the graph's, as they are computed."""

    graph: Graph
    layers: Sequence[Layer]
    plans: Sequence[Plan]
    binary: BinaryLayers
    config: NpuConfig
    #: What was tried before, as networks repeat themselves.
    known: dict[Hashable, int] = field(default_factory=dict)

    def cycles(self, packed: Sequence[PackedWeights | None], fused: Mapping[int, FusedPlan], first: int = 0,
               end: int | None = None) -> int:
        """Cycles of layers ``first`` up to ``end``, one after the other; ``fused``: the `Lowering.layers` pairs."""
        end = len(self.layers) if end is None else end
        likeness = self._likeness(packed, fused, first, end)
        if likeness not in self.known:
            self.known[likeness] = self._try(packed, fused, first, end)
        return self.known[likeness]

    def _likeness(self, packed: Sequence[PackedWeights | None], fused: Mapping[int, FusedPlan], first: int,
                  end: int) -> Hashable:
        """What these layers' cycles depend on."""
        writers = {layer.output: number for number, layer in enumerate(self.layers[first:end])}
        facts: list[Hashable] = []
        for index in range(first, end):
            layer, weights = self.layers[index], packed[index]
            other = layer.residual.other if layer.residual else None
            kernel = layer.weights.shape if isinstance(layer, Conv) else tuple(layer.kernel)
            facts += [
                self.graph.tensors[layer.input].shape, kernel, tuple(layer.stride), tuple(layer.pads),
                writers.get(layer.input), other and writers.get(other, -1), weights and weights.tiles,
                fused.get(index, self.plans[index]), index - 1 in fused,
            ]
        return tuple(facts)

    def _try(self, packed: Sequence[PackedWeights | None], fused: Mapping[int, FusedPlan], first: int,
             end: int) -> int:
        chosen, config = self.layers[first:end], self.config
        made = {layer.output for layer in chosen}
        signs = {layer.name: self.binary.sources[layer.name] for layer in chosen if layer.name in self.binary.sources}
        read = [name for layer in chosen for name in (layer.input, *([layer.residual.other] if layer.residual else []))]
        read += [source.tensor for source in signs.values()]
        inputs = {name: (name, ()) for name in dict.fromkeys(read) if name not in made}
        part = Graph("trial", self.graph.tensors, chosen, inputs, {})
        pairs = {index - first: plan for index, plan in fused.items() if first <= index < end}
        memory = Memory.of(part, [layer.requantize for layer in chosen], packed[first:end], config,
                           absent={chosen[index].output for index in pairs}, maps=self.binary.maps,
                           interleaved={layer.input for layer, plan in zip(chosen, self.plans[first:end], strict=True)
                                        if isinstance(plan.geometry, GatherGeometry)})
        lowering = Lowering(part, config, memory, signs)
        lowering.layers(self.plans[first:end], packed[first:end], pairs)
        try:
            instructions, _ = lowering.finish()
        except ValueError:      # a field does not fit its bits
            return sys.maxsize
        return estimate(config, encode_all(instructions)).cycles
