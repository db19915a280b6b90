"""How much of its time the array waits for data, and whether that is the doing of the memory."""

from dataclasses import dataclass
from typing import Literal

from gen.program.program import Program
from sim.cycles import estimate
from sim.profile import layer_timings
from sim.timing.dram import DramTiming

__all__ = ["Bound", "Waits", "bound_of", "waits_of"]

#: What a network would be faster with: more lanes, a wider port to memory, or another memory at it.
Bound = Literal["compute", "port", "memory"]

#: Stalls that are waits for what memory has to bring or to take.
_CAUSES = ("wait_weights", "wait_load", "wait_store")
#: More than this share of the cycles goes to it: then it is what bounds a layer, or a network.
_BOUND = 0.1


@dataclass(frozen=True, kw_only=True)
class Waits:
    """Of an inference: ``cycles``, those in which the array ``waits`` for data, and those ``in_layers`` that it bounds.
    """

    cycles: int
    waits: int
    in_layers: int

    def __add__(self, other: "Waits") -> "Waits":
        return Waits(cycles=self.cycles + other.cycles, waits=self.waits + other.waits,
                     in_layers=self.in_layers + other.in_layers)


def bound_of(ideal: Waits, real: Waits) -> Bound:
    """Of an inference on an ideal memory, which still brings no more than a beat a cycle, and on a real one."""
    if real.cycles - ideal.cycles > _BOUND * real.cycles:
        return "memory"
    return "port" if real.waits > _BOUND * real.cycles else "compute"


def waits_of(program: Program, dram: DramTiming | None) -> Waits:
    """By the time model, on a memory as `sim.cycles.estimate` has it."""
    timing = estimate(program.config, program.code, dram=dram)
    layers = layer_timings(program, timing, timing.cycles)
    waits = [sum(layer.stalls[cause] for cause in _CAUSES) for layer in layers]
    return Waits(cycles=timing.cycles, waits=sum(waits),
                 in_layers=sum(layer.cycles for layer, spent in zip(layers, waits, strict=True)
                               if spent > _BOUND * layer.cycles))
