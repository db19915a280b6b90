"""Where the measurements of integer machines are made: models are imported once, and programs never written out."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from boards.registry import get_board
from cores.config import NpuConfig
from gen.compiler import Lowered, lowered, prepare
from gen.files.sources import sources_digest
from gen.ir.errors import CompileError, GraphError
from gen.ir.graph import Graph
from gen.onnx.machine import Machine
from gen.options import CompileOptions
from gen.passes.prune import prune
from gen.run.memory import bus_of
from sim import cycles

from .accuracy import Judgement, kept_energy
from .models import ModelFile, ModelGraphs

__all__ = ["MachineMeter", "job_content"]

_OPTIONS = CompileOptions()


def job_content(model: ModelFile, config: NpuConfig, density: float, memory: str, mhz: float | None,
                judged: bool) -> dict[str, Any]:
    """What a measurement depends on. ``density``: 1 leaves all weights; ``mhz``: None where time in cycles does not
    depend on it."""
    return {"model": model.digest, "config": config.to_dict(), "density": density, "memory": memory, "mhz": mhz,
            "judged": judged}


@dataclass(eq=False)
class MachineMeter:
    """`gen.explore.evaluation.Meter` of models on machines.

    A result has ``cycles`` of an inference, ``bus_bytes`` that it moves between machine and memory, ``macs`` and
    ``useful_macs``, ``kept``; ``accuracy`` where it is asked for; or ``refused``, the reason why the machine cannot.
    """

    models: Sequence[ModelFile]
    judgement: Judgement | None = None
    _graphs: dict[str, ModelGraphs] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        judged = None if self.judgement is None else self.judgement.digest
        return hashlib.sha256(f"{sources_digest()} {judged}".encode()).hexdigest()

    def __getstate__(self) -> dict[str, Any]:
        return {"models": self.models, "judgement": self.judgement, "_graphs": {}}

    def model(self, digest: str) -> ModelGraphs:
        """A model, imported when it is first asked for."""
        if digest not in self._graphs:
            self._graphs[digest] = ModelGraphs(next(model for model in self.models if model.digest == digest))
        return self._graphs[digest]

    def measure(self, jobs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Results of jobs that have the same program: the same model, machine and density.

        Raises PruneError for a model whose accuracy cannot be measured.
        """
        config, density = NpuConfig.from_dict(jobs[0]["config"]), jobs[0]["density"]
        model = self.model(jobs[0]["model"])
        try:
            programs = [_compiled(graph, config, density) for graph in model.graphs(Machine.of(config))]
            return [self._result(programs, config, job) for job in jobs]
        except (CompileError, GraphError) as error:
            return [{"refused": str(error)} for _ in jobs]

    def _result(self, programs: "Sequence[_Compiled]", config: NpuConfig, job: Mapping[str, Any]) -> dict[str, Any]:
        board = None if job["mhz"] is None else get_board(job["memory"])
        bus = bus_of(board, config, job["mhz"] or 0.0)
        times = [cycles.estimate_instructions(config, one.code.instructions, dram=bus.dram) for one in programs]
        layers = [layer.mapped for one in programs for step in one.code.placed.steps for layer in step]
        kept = [share for one in programs for share in one.kept]
        result = {
            "cycles": sum(time.cycles for time in times),
            "bus_bytes": sum(time.read_beats + time.write_beats for time in times) * config.beat_bytes,
            "macs": sum(layer.macs for layer in layers), "useful_macs": sum(layer.useful_macs for layer in layers),
            "kept": sum(kept) / len(kept) if kept else 1.0,
        }
        if job["judged"] and self.judgement is not None:
            result["accuracy"] = self.judgement.accuracy(self.model(job["model"]).file, config, job["density"])
        return result


@dataclass(frozen=True, eq=False)
class _Compiled:
    """``kept``: of each layer that is pruned the share of its weights' energy that is left."""

    code: Lowered
    kept: Sequence[float]


def _compiled(graph: Graph, config: NpuConfig, density: float) -> _Compiled:
    pruned = graph if density == 1 else prune(graph, config, density)
    return _Compiled(lowered(prepare(pruned, config, _OPTIONS), config, _OPTIONS), kept_energy(graph, pruned))
