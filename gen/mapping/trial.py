"""Cycles of a few steps by themselves, by the time model: what a choice between two ways of making them goes by."""

import math
from bisect import bisect_right
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from cores.arch.instruction import Instruction
from cores.arch.isa import Queue
from gen.ir.graph import Graph
from gen.ir.parts import origin
from gen.lowering.lower import lower
from gen.lowering.placed import PlacedGraph
from gen.lowering.steps import MappedGraph, Step
from sim.cycles import cycles_below, estimate_instructions

__all__ = ["Trial"]


@dataclass(frozen=True, eq=False)
class Trial:
    """A graph whose steps are tried in several ways."""

    mapped: MappedGraph
    #: What was tried before, as networks repeat themselves: cycles, or at least so many.
    known: dict[Hashable, tuple[float, bool]] = field(default_factory=dict)

    def cycles(self, steps: Sequence[Step], limit: float = math.inf) -> float:
        """Cycles of these steps, one after the other; ``limit`` if they are no fewer."""
        likeness = _likeness(steps, self.mapped.graph)
        cycles, exact = self.known.get(likeness, (0, False))
        if not exact and cycles < limit:
            found = self._try(steps, limit)
            cycles = limit if found is None else found
            self.known[likeness] = cycles, found is not None
        return min(cycles, limit)

    def ends(self, steps: Sequence[Step]) -> list[int] | None:
        """When the last COMPUTE of each step is done; None of steps that instructions cannot express."""
        lowered = self._lower(steps)
        if lowered is None:
            return None
        instructions, owners = lowered
        last = estimate_instructions(self.mapped.config, instructions).last[Queue.COMPUTE - 1]
        ends = list(accumulate(len(step.layers) for step in steps))
        found = [0] * len(steps)
        for owner, time in zip(owners, last.tolist(), strict=True):
            if owner >= 0:
                place = bisect_right(ends, owner)
                found[place] = max(found[place], time)
        return found

    def _try(self, steps: Sequence[Step], limit: float) -> float | None:
        lowered = self._lower(steps)
        return math.inf if lowered is None else cycles_below(limit, self.mapped.config, lowered[0])

    def _lower(self, steps: Sequence[Step]) -> tuple[list[Instruction], list[int]] | None:
        graph, layers = self.mapped.graph, [layer for step in steps for layer in step.layers]
        made = {layer.layer.output for layer in layers}
        read = [name for layer in layers for name in (*layer.operands, *layer.others)]
        inputs = {name: (name, ()) for name in dict.fromkeys(read) if name not in made}
        part = replace(self.mapped, graph=replace(graph, inputs=inputs, outputs={}), steps=steps)
        try:
            return lower(PlacedGraph.of(part, keep_all=True, contents=False))
        except ValueError:      # a field does not fit its bits
            return None


def _likeness(steps: Sequence[Step], graph: Graph) -> Hashable:
    """What the cycles of steps depend on."""
    layers = [layer for step in steps for layer in step.layers]
    outputs = [origin(graph.tensors, layer.layer.output) for layer in layers]

    def writers(name: str) -> Hashable:
        """Those of the layers that write channels of a tensor."""
        whole, channels = origin(graph.tensors, name)
        return tuple(number for number, (other, written) in enumerate(outputs)
                     if other == whole and channels.start < written.stop and written.start < channels.stop)

    facts: list[Hashable] = [tuple((len(step.layers), getattr(step, "plan", None), tuple(step.kept.values()))
                                   for step in steps)]
    for mapped in layers:
        layer = mapped.layer
        facts += [
            mapped.source.shape, layer.form, tuple((type(op), op.repeats) for op in layer.epilogue),
            tuple(writers(name) for name in mapped.operands),
            tuple((graph.tensors[other].shape, writers(other)) for other in mapped.others),
            getattr(mapped, "tiles", None), mapped.mode, mapped.plan,
        ]
    return tuple(facts)
