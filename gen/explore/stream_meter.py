"""Where the accuracies of stochastic networks are measured: each backbone is trained once."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cores.arch.stochastic import Circuit
from gen.files.sources import sources_digest
from gen.stochastic.accuracy import Examiner
from gen.stochastic.backbone import Backbone

__all__ = ["StreamMeter", "job_content"]


def job_content(backbone: str, circuit: str, length: int) -> dict[str, Any]:
    """What a measurement depends on."""
    return {"backbone": backbone, "circuit": circuit, "length": length}


@dataclass(eq=False)
class StreamMeter:
    """`gen.explore.evaluation.Meter`: a result has ``accuracy``, a share."""

    examiner: Examiner

    @property
    def identity(self) -> str:
        one = self.examiner
        return hashlib.sha256(repr((sources_digest(), one.images.digest, one.images.trained, one.many,
                                    one.few)).encode()).hexdigest()

    def measure(self, jobs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Raises BackboneError, DataError."""
        kinds = {circuit.label: circuit for circuit in Circuit}
        return [{"accuracy": self.examiner.accuracy(Backbone(job["backbone"]), kinds[job["circuit"]], job["length"])}
                for job in jobs]
