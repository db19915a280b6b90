"""A backbone on a circuit of a machine: what it takes and what it reaches, by the length of streams."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cores.arch.stochastic import Circuit
from cores.config import NpuConfig
from gen.stochastic.backbone import Backbone
from gen.stochastic.cycles import estimated_cycles, stochastic_rows

from .unit_energy import INPUTS, UnitEnergy

__all__ = ["CHEAPEST_FIRST", "Candidate", "shortest"]

#: Circuits by the energy of a cycle, as docs/energy.md has it: known without mapping them.
CHEAPEST_FIRST = (Circuit.AND_SEP_OR, Circuit.AND_LOOP, Circuit.AND_SEP_COUNTER, Circuit.AND_ACC, Circuit.XNOR_MUX,
                  Circuit.UGEMM)


@dataclass(frozen=True)
class Candidate:
    """``energy``: of the circuit's unit as it was measured."""

    backbone: Backbone
    circuit: Circuit
    energy: UnitEnergy
    config: NpuConfig

    def cycles(self, length: int) -> int:
        return estimated_cycles(self.backbone, length, self.config)

    @property
    def per_cycle(self) -> float:
        """Relative energy of a cycle at 1 V of a unit with the machine's rows."""
        products = INPUTS * stochastic_rows(self.config) * self.config.pixel_lanes
        return self.energy.per_product() * products


def shortest(accuracy: Mapping[int, float], bounds: Sequence[float]) -> tuple[int, ...]:
    """For each bound the shortest length that reaches it, or where none does, the most accurate one."""
    lengths = sorted(accuracy)
    best = max(lengths, key=lambda length: accuracy[length])
    return tuple(next((length for length in lengths if accuracy[length] >= bound), best) for bound in bounds)
