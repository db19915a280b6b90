"""Each circuit by itself, at a fixed level and length, beside what a battery gives with a plan."""

from collections.abc import Callable
from dataclasses import dataclass

from cores.arch.stochastic import Circuit
from gen.stochastic.accuracy import Examiner, lengths_of

from .candidate import Candidate, shortest
from .strategies import Plan, strategies

__all__ = ["PUBLISHED_GAINS", "Rival", "rivals_of"]

#: Inferences of both together over those of a circuit by itself, MLP, as published.
PUBLISHED_GAINS = {Circuit.AND_LOOP: "2.0 and 2.8", Circuit.AND_ACC: "1.8", Circuit.XNOR_MUX: "up to 7.6"}


@dataclass(frozen=True)
class Rival:
    """A circuit at the fastest level with the shortest streams that reach the level's accuracy.

    ``accurate``: whether any do; else the most accurate. ``in_time``: within the plan's deadline. ``gain``: inferences
    of the plan's both together over the circuit's.
    """

    circuit: str
    length: int
    accuracy: float
    accurate: bool
    ms: float
    in_time: bool
    energy: float
    gain: float
    published: str


def rivals_of(plan: Plan, examiner: Examiner, candidate: Callable[[Circuit], Candidate],
              remark: Callable[[str], None]) -> list[Rival]:
    """Raises what measuring a circuit does."""
    runs = strategies(plan)[-1].discharge.inferences
    found = []
    for circuit in Circuit:
        one = candidate(circuit)
        accuracy = {}
        for length in lengths_of(circuit):
            remark(f"{circuit.label}, {length} bits")
            accuracy[length] = examiner.accuracy(one.backbone, circuit, length)
        (length,) = shortest(accuracy, plan.bounds[:1])
        level, cycles = plan.levels.used[0], one.cycles(length)
        energy, seconds = level.energy(cycles, one.per_cycle), level.seconds(cycles)
        found.append(Rival(circuit.label, length, accuracy[length], accuracy[length] >= plan.bounds[0], 1000 * seconds,
                           level.meets(plan.limit, cycles), energy,
                           runs / (plan.inferences * plan.fixed.energy / energy), PUBLISHED_GAINS.get(circuit, "")))
    return found
