"""Rows of searches by axes; accuracies that are assumed."""

from collections.abc import Mapping

import pytest

from cores.arch.stochastic import Circuit
from gen.bench import stochastic_axes
from gen.bench.stochastic_axes import METHODS, SPACES, measure_axes
from gen.energy.unit_energy import UnitEnergy
from gen.explore import assumed
from gen.explore.assumed import assumed_accuracy
from gen.explore.task import Task, read_task
from gen.stochastic.backbone import Backbone
from tests.conftest import ROOT

WORDS = ("784-10-10", "784-100-10", "28x28-c6k3-p2-c64k7-p2-32-128-10")


def shipped() -> Mapping[str, Task]:
    return {name: read_task(ROOT / "examples" / "stochastic" / f"{name}.json") for name in SPACES}


@pytest.mark.slow
def test_rows(monkeypatch: pytest.MonkeyPatch):
    for package in ("torch", "optuna"):
        pytest.importorskip(package)
    monkeypatch.setattr(stochastic_axes, "MARKS", (35, 70))
    monkeypatch.setattr(stochastic_axes, "EVALUATIONS", 70)
    monkeypatch.setattr(stochastic_axes, "SEEDS", range(2))
    mapped = []

    def energy(circuit: Circuit, *_: object) -> UnitEnergy:
        mapped.append(circuit)
        return UnitEnergy(circuit.label, 128, 400.0 + circuit, 0, 0, 0, 1)

    monkeypatch.setattr(assumed, "measure_energy", energy)
    rows = list(measure_axes(shipped(), "xcup"))
    assert [(row.space, row.method) for row in rows] == [(name, method) for name in SPACES for method in METHODS]
    assert {row.evaluations for row in rows} == {70} and len(mapped) == len(set(mapped)) <= len(Circuit)
    for row in rows:
        assert row.best[35] <= row.best[70] and row.least <= row.best[70] and 0 <= row.feasible <= 1
        assert " bits" in row.found and Backbone(row.found.split(",")[0])


@pytest.mark.parametrize("circuit", Circuit)
def test_assumed_accuracies(circuit: Circuit):
    """More products and longer streams are better, and none is beyond what a share can be."""
    for word in WORDS:
        found = [assumed_accuracy(Backbone(word), circuit, 1 << log) for log in range(3, 11)]
        assert found == sorted(found) and 0.1 <= found[0] <= found[-1] < 1
    longest = [assumed_accuracy(Backbone(word), circuit, 1024) for word in WORDS]
    assert longest == sorted(set(longest))
