"""Rows of searches: all methods against the whole space, on accuracies by a formula."""

from contextlib import nullcontext

import pytest

from gen.bench import stochastic_search
from gen.bench.stochastic_search import SPACE, measure_searches, rows_of
from gen.explore.ledger import Ledger
from gen.explore.task import read_task
from gen.explore.workers import Here
from tests.gen.explore.stream_toy import stream_problem, stream_task


def test_rows(monkeypatch: pytest.MonkeyPatch):
    for package in ("torch", "optuna"):
        pytest.importorskip(package)
    monkeypatch.setattr(stochastic_search, "EVALUATIONS", 40)
    monkeypatch.setattr(stochastic_search, "SEEDS", range(2))
    monkeypatch.setattr(stochastic_search, "_MARKS", (10, 40))
    problem = stream_problem(stream_task(lengths=[8, 32, 64]))
    curves = list(measure_searches(problem, nullcontext(Here(problem.meter)), Ledger("t", None)))
    assert [(one.method, one.seed, len(one.rewards)) for one in curves] == [
        ("grid", 0, 108), *((name, seed, 40) for name in ("controller", "optuna", "random") for seed in (0, 1))]
    assert len(problem.meter.measured) <= 2 + 2 * 2 * 3
    grid, *others = rows_of(curves)
    assert grid.least == max(curves[0].rewards)
    for row in others:
        assert row.best[10] <= row.best[40] <= grid.least and row.least <= row.best[40] and row.found <= 2


def test_the_space_that_is_searched():
    assert len(read_task(SPACE).backbones) == 9
