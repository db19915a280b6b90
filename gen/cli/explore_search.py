"""Runs a search for `gen explore`: workers, kept results, progress."""

import argparse
import os
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from gen.cli.common import counter, messages

if TYPE_CHECKING:
    from gen.explore.evaluation import Meter, Problem
    from gen.explore.methods import Method, Name
    from gen.explore.report import Found
    from gen.explore.search import Workers

__all__ = ["searched"]


def searched(arguments: argparse.Namespace, problem: "Problem", name: "Name", method: "Method") -> "Found":
    from gen.explore.ledger import Ledger
    from gen.explore.report import Found
    from gen.explore.search import search

    ledger = Ledger(problem.meter.identity, Ledger.default_folder() if arguments.cache else None)
    total = problem.space.size if name == "grid" else min(arguments.evaluations, problem.space.size)
    try:
        with counter(f"exploring {total:,} points", total) as progress, _workers(arguments, problem.meter) as workers:
            found = search(problem, method, workers, ledger, progress)
    except KeyboardInterrupt:
        if ledger.path is not None:
            messages.print(f"what was measured is kept in {ledger.path}; the same command goes on from there",
                           soft_wrap=True)
        raise
    return Found(problem.space, problem.objectives, found)


def _workers(arguments: argparse.Namespace, meter: "Meter") -> "AbstractContextManager[Workers]":
    from gen.explore.cluster import cluster
    from gen.explore.workers import local_workers

    if arguments.scheduler:
        return cluster(meter, arguments.scheduler)
    return local_workers(meter, arguments.jobs or len(os.sched_getaffinity(0)))
