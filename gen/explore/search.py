"""The loop of a search: points from a method, measured by workers as far as they are not known."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from .evaluation import Evaluation, Job, Problem
from .ledger import Ledger
from .methods import Method
from .space import Point

__all__ = ["Workers", "evaluated", "search"]

#: Told how many points are done, and what is yet to be done that takes minutes.
Progress = Callable[[int, str], None]


class Workers(Protocol):
    """What does jobs."""

    def run(self, groups: Sequence[Sequence[Mapping[str, Any]]]) -> Iterable[tuple[int, list[dict[str, Any]]]]:
        """The number of each group of jobs' contents with its results, as they come."""


def search(problem: Problem, method: Method, workers: Workers, ledger: Ledger,
           progress: Progress = lambda done, remark: None) -> list[Evaluation]:
    """All points of a method, in its order. Raises what the workers do."""
    found: list[Evaluation] = []
    while points := method.next(found):
        found += evaluated(problem, points, workers, ledger, partial(_report, progress, len(found)))
    return found


def evaluated(problem: Problem, points: Sequence[Point], workers: Workers, ledger: Ledger,
              progress: Progress = lambda done, remark: None) -> list[Evaluation]:
    """Some points, measured as far as the ledger has not got them. Raises what the workers do."""
    needed = [{ledger.key(job): job for job in problem.jobs(point)} for point in points]
    missing = {key: job for jobs in needed for key, job in jobs.items() if key not in ledger}
    waiting = [sum(key in missing for key in jobs) for jobs in needed]
    askers: dict[str, list[int]] = {key: [] for key in missing}
    for number, jobs in enumerate(needed):
        for key in jobs.keys() & askers.keys():
            askers[key].append(number)
    done = waiting.count(0)
    groups = _groups(missing)
    remarks = {number: _remark(group.values()) for number, group in enumerate(groups)}
    progress(done, _joined(remarks))
    for group, results in workers.run([[job.content for job in group.values()] for group in groups]):
        ledger.keep(dict(zip(groups[group], results, strict=True)))
        for number in (number for key in groups[group] for number in askers[key]):
            waiting[number] -= 1
            done += not waiting[number]
        del remarks[group]
        progress(done, _joined(remarks))
    return [problem.evaluation(point, [ledger[key] for key in jobs])
            for point, jobs in zip(points, needed, strict=True)]


def _report(progress: Progress, before: int, done: int, remark: str) -> None:
    progress(before + done, remark)


def _remark(jobs: Iterable[Job]) -> str:
    return ", ".join(dict.fromkeys(job.remark for job in jobs if job.remark))


def _joined(remarks: Mapping[int, str]) -> str:
    """Of groups in the order in which they are done."""
    return ", ".join(remark for remark in remarks.values() if remark)


def _groups(jobs: Mapping[str, Job]) -> list[dict[str, Job]]:
    """Jobs that share work, the heaviest first: what takes long must not begin last."""
    groups: dict[str, dict[str, Job]] = {}
    for key, job in jobs.items():
        groups.setdefault(job.group, {})[key] = job
    return sorted(groups.values(), key=lambda group: -sum(job.weight for job in group.values()))
