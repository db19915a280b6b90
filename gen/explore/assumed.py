"""Accuracies that are assumed, by a formula: searches are compared with it in seconds, where training takes hours."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cores.arch.stochastic import Circuit
from gen.energy.unit_energy import measure_energy
from gen.files.sources import sources_digest
from gen.stochastic.backbone import Backbone
from sim.folders import cache_folder

__all__ = ["AssumedMeter", "assumed_accuracy"]

_CIRCUITS = {circuit.label: circuit for circuit in Circuit}
#: A layer's error on one bit, beside AND-LOOP's, and what no length takes away: the order of docs/stochastic.md.
_ERRORS: Mapping[Circuit, tuple[float, float]] = {
    Circuit.AND_LOOP: (1, 0), Circuit.AND_ACC: (1, 0), Circuit.UGEMM: (2, 0), Circuit.AND_SEP_COUNTER: (1, 0.03),
    Circuit.AND_SEP_OR: (1, 0.1), Circuit.XNOR_MUX: (32, 0)}
#: Of a network without errors: the more products, the nearer to the first; of tenths of a million by the second.
_BEST, _LOST = 0.995, 0.08
#: Right answers of who guesses.
_LEAST = 0.1


def assumed_accuracy(backbone: Backbone, circuit: Circuit, length: int) -> float:
    """A share: higher for more products, lower by the square of layers over bits. No network is like that."""
    factor, rest = _ERRORS[circuit]
    products = sum(layer.macs for layer in backbone.layers)
    lost = _LOST / (1 + products / 1e5) + rest + (factor * len(backbone.layers) / length) ** 2
    return max(_LEAST, _BEST - lost)


@dataclass(eq=False)
class AssumedMeter:
    """`gen.explore.evaluation.Meter` as `StreamMeter`: energies of units as they are measured, accuracies by
    `assumed_accuracy`.
    """

    @property
    def identity(self) -> str:
        return hashlib.sha256(f"assumed {sources_digest()}".encode()).hexdigest()

    def measure(self, jobs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Raises what `measure_energy` does."""
        return [asdict(measure_energy(_CIRCUITS[job["unit"]], job["family"], cache_folder())) if "unit" in job else
                {"accuracy": assumed_accuracy(Backbone(job["backbone"]), _CIRCUITS[job["circuit"]], job["length"])}
                for job in jobs]
