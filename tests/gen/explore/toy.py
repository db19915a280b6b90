"""A problem that takes no time: numbers whose squares and distances are traded off."""

from collections.abc import Mapping, Sequence
from typing import Any

from gen.explore.evaluation import Evaluation, Job, Objective, Result
from gen.explore.space import Point, Space

__all__ = ["ToyMeter", "ToyProblem", "toy_space"]


def toy_space(count: int = 12) -> Space:
    return Space({"x": list(range(count)), "y": list(range(count)), "word": ["a", "b"]})


class ToyMeter:
    """Squares; ``measured``: the contents of the jobs that were done."""

    def __init__(self, identity: str = "toy") -> None:
        self.identity = identity
        self.measured: list[Mapping[str, Any]] = []

    def measure(self, jobs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        self.measured += jobs
        return [{"square": job["x"] ** 2 + job["y"]} for job in jobs]


class ToyProblem:
    """``word`` changes no measurement; points with x > 8 are no solutions, those with y > 10 need no measuring."""

    def __init__(self, space: Space | None = None, meter: ToyMeter | None = None) -> None:
        self.space, self.meter = space or toy_space(), meter or ToyMeter()
        self.objectives = [Objective("square"), Objective("far", largest=True)]

    def jobs(self, point: Point) -> Sequence[Job]:
        if int(point["y"]) > 10:
            return []
        return [Job({"x": point["x"], "y": point["y"]}, group=f"{point['x']}", weight=float(point["x"]))]

    def evaluation(self, point: Point, results: Sequence[Result]) -> Evaluation:
        if not results:
            return Evaluation(point, {}, infeasible=("y",), excess=9.0)
        figures = {"square": results[0]["square"], "far": abs(int(point["y"]) - 3) + (point["word"] == "b")}
        if int(point["x"]) > 8:
            return Evaluation(point, figures, infeasible=("x",), excess=float(point["x"]) - 8)
        return Evaluation(point, figures)
