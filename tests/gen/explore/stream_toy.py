"""Stochastic networks that take no training: accuracies by a formula."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from cores.config import NpuConfig
from gen.energy.unit_energy import UnitEnergy
from gen.explore.ledger import Ledger
from gen.explore.methods import Name, chosen_method
from gen.explore.search import search
from gen.explore.streams import StreamProblem
from gen.explore.task import Task
from gen.explore.workers import Here

__all__ = ["FormulaMeter", "check_a_search", "stream_problem", "stream_task"]


def stream_task(**changed: Any) -> Task:
    """Fields that are UNSET are left out."""
    values = {"kind": "stochastic", "backbones": ["784-100-10", "784-200-10"], "circuits": ["and-loop", "ugemm"],
              "lengths": [8, 16, 32, 64, 128], "deadline_ms": 0.1, "bounds": [95, 90, 85]}
    given = {name: value for name, value in {**values, **changed}.items() if value is not msgspec.UNSET}
    return msgspec.convert(given, Task)


class FormulaMeter:
    """Wider networks, longer streams and AND-LOOP are better, which is cheaper, too; ``measured``: jobs that were done.
    """

    identity = "formula"

    def __init__(self) -> None:
        self.measured: list[Mapping[str, Any]] = []

    def measure(self, jobs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        self.measured += jobs
        return [self._energy(job["unit"]) if "unit" in job else {"accuracy": 0.99 - (
            2.0 if job["circuit"] == "ugemm" else 1.0) / job["length"] - 1 / int(job["backbone"].split("-")[1])}
            for job in jobs]

    @staticmethod
    def _energy(circuit: str) -> dict[str, Any]:
        return asdict(UnitEnergy(circuit, 128, {"and-loop": 400.0, "ugemm": 600.0}[circuit], 0, 0, 0, 1))


def stream_problem(task: Task | None = None) -> StreamProblem:
    return StreamProblem(task or stream_task(), NpuConfig.preset(256), "xcup",
                         FormulaMeter())  # type: ignore[arg-type]


def check_a_search(method: Name, layers: Mapping[str, Any]) -> None:
    """Of axes: different networks each time, with the figures that the same network has in a list."""
    problem = stream_problem(stream_task(backbones=msgspec.UNSET, layers=layers, lengths=[16, 64]))
    _, chosen = chosen_method(method, problem, 60, 1)
    found = search(problem, chosen, Here(problem.meter), Ledger("t", None))
    lengths = [name for name in problem.space.axes if name.startswith("length_")]
    points = [{"backbone": one.facts["backbone"], **{name: one.point[name] for name in ("circuit", *lengths)}}
              for one in found]
    assert len({tuple(point.values()) for point in points}) == len(found)
    assert len(found) == (problem.space.size if method == "grid" else 60)
    # The cheapest of them first: the battery is reckoned by it.
    words = dict.fromkeys(str(point["backbone"]) for point in points)
    listed = stream_problem(stream_task(backbones=list({"784-60-10": None, **words}), lengths=[16, 64]))
    for one, point in zip(found, points, strict=True):
        results = [listed.meter.measure([job.content])[0] for job in listed.jobs(point)]
        other = listed.evaluation(point, results)
        assert (one.figures, one.infeasible) == (other.figures, other.infeasible)
