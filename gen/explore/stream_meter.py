"""Where the accuracies of stochastic networks, and the energies of their units, are measured."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cores.arch.stochastic import Circuit
from gen.energy.unit_energy import measure_energy
from gen.files.sources import sources_digest
from gen.stochastic.accuracy import Examiner
from gen.stochastic.backbone import Backbone
from sim.folders import cache_folder

__all__ = ["StreamMeter", "accuracy_content", "energy_content"]

_CIRCUITS = {circuit.label: circuit for circuit in Circuit}


def accuracy_content(backbone: str, circuit: str, length: int) -> dict[str, Any]:
    """What a measurement depends on."""
    return {"backbone": backbone, "circuit": circuit, "length": length}


def energy_content(circuit: str, family: str) -> dict[str, Any]:
    """What the energy of a circuit's unit depends on."""
    return {"unit": circuit, "family": family}


@dataclass(eq=False)
class StreamMeter:
    """`gen.explore.evaluation.Meter`: a result has ``accuracy``, a share, or the fields of `UnitEnergy`.

    Each backbone is trained once, and each circuit mapped once.
    """

    examiner: Examiner

    @property
    def identity(self) -> str:
        one = self.examiner
        return hashlib.sha256(repr((sources_digest(), one.images.digest, one.images.trained, one.many,
                                    one.few)).encode()).hexdigest()

    def measure(self, jobs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Raises BackboneError, DataError, what `measure_energy` does."""
        return [self._energy(job) if "unit" in job else self._accuracy(job) for job in jobs]

    def _energy(self, job: Mapping[str, Any]) -> dict[str, Any]:
        return asdict(measure_energy(_CIRCUITS[job["unit"]], job["family"], cache_folder()))

    def _accuracy(self, job: Mapping[str, Any]) -> dict[str, Any]:
        return {"accuracy": self.examiner.accuracy(Backbone(job["backbone"]), _CIRCUITS[job["circuit"]],
                                                   job["length"])}
