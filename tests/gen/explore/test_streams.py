"""Stochastic networks as a problem: rewards by hand, deadlines, tasks that are none."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from cores.arch.stochastic import Circuit
from gen.energy.battery import discharge
from gen.energy.candidate import CHEAPEST_FIRST
from gen.explore.convergence import best_so_far, plot_convergence
from gen.explore.errors import ExploreError, SpaceError
from gen.explore.ledger import Ledger
from gen.explore.methods import chosen_method
from gen.explore.search import search
from gen.explore.streams import StreamProblem
from gen.explore.task import read_task
from gen.explore.workers import Here
from gen.files.figure import drawn
from gen.stochastic.backbone import Backbone
from tests.conftest import ROOT
from tests.gen.explore.stream_toy import stream_problem, stream_task


def evaluated(problem: StreamProblem, *lengths: int, backbone: str = "784-200-10", circuit: str = "and-loop") -> Any:
    point = {"backbone": backbone, "circuit": circuit,
             **{f"length_{level.name}": length for level, length in zip(problem.task.table.used, lengths, strict=True)}}
    results = [problem.meter.measure([job.content])[0] for job in problem.jobs(point)]
    return problem.evaluation(point, results)


def test_a_reward_by_hand():
    found = evaluated(stream_problem(), 64, 32, 16)
    accuracy = [0.99 - 1 / length - 1 / 200 for length in (64, 32, 16)]
    assert [found.figures[f"accuracy_{name}"] for name in ("l6", "l4", "l3")] == pytest.approx(accuracy)
    normal = [(min(one, 0.98) - 0.6) / 0.38 for one in accuracy]
    runs = found.figures["inferences"] / 1e6
    assert found.feasible and found.figures["reward"] == pytest.approx(sum(normal) / 3 + runs)
    assert 0 < runs < 1


def test_the_cheapest_point_makes_a_million_inferences():
    problem = stream_problem()
    found = evaluated(problem, 8, 8, 8, backbone="784-100-10")
    # 8 rows of 16 inputs for 2 pixels: twice the unit.
    settings = problem._settings(Backbone("784-100-10"), found.point, per_cycle=800.0)
    assert discharge(800e6 * problem._least, settings).inferences == pytest.approx(1e6, rel=1e-5)
    assert found.figures["inferences"] == pytest.approx(1e6, rel=1e-5) and not found.feasible


def test_a_circuit_costs_what_its_unit_does():
    problem = stream_problem()
    cheap, dear = (evaluated(problem, 64, 32, 16, circuit=name).figures["inferences"] for name in ("and-loop", "ugemm"))
    assert cheap / dear == pytest.approx(600 / 400, rel=1e-4)


def test_circuits_are_mapped_when_they_are_needed():
    """A point needs its own, and the one that the battery is reckoned by: the cheapest of the published table."""
    problem = stream_problem(stream_task(circuits=[circuit.label for circuit in Circuit]))
    units = [[job.content["unit"] for job in problem.jobs({
        "backbone": "784-100-10", "circuit": name, "length_l6": 8, "length_l4": 8, "length_l3": length})
        if "unit" in job.content] for name, length in (("ugemm", 8), ("and-sep-or", 8), ("and-acc", 1024))]
    assert units == [["ugemm", "and-sep-or"], ["and-sep-or"], ["and-acc", "and-sep-or"]]
    assert sorted(CHEAPEST_FIRST) == list(Circuit)
    # The last: what it is made from, in a comment, has the same heading.
    table = (ROOT / "docs" / "energy.md").read_text().rpartition("| unit | changes")[2].partition("\n\n")[0]
    cells = [[cell.strip() for cell in row.split("|")] for row in table.splitlines()[2:]]
    energies = {row[1].lower().replace(", ", "-").removesuffix(" tree"): int(row[4].replace(",", "")) for row in cells}
    energies = {name: energy for name, energy in energies.items() if not name.startswith("int8")}
    assert sorted(energies, key=energies.__getitem__) == [circuit.label for circuit in CHEAPEST_FIRST]


def test_it_is_said_what_is_mapped():
    problem = stream_problem()
    _, method = chosen_method("grid", problem, 1, 0)
    said = []
    search(problem, method, Here(problem.meter), Ledger("t", None), lambda done, remark: said.append((done, remark)))
    assert [remark for _, remark in said[:3]] == ["mapping and-loop, mapping ugemm", "mapping ugemm", ""]
    assert said[-1] == (500, "") and all(remark == "" for _, remark in said[2:])


def test_equal_accuracies_cost():
    problem = stream_problem()
    falling, equal = evaluated(problem, 64, 32, 16).figures, evaluated(problem, 64, 32, 32).figures
    accuracy = (0.99 - 1 / 32 - 1 / 200 - 0.6) / 0.38 - (0.99 - 1 / 16 - 1 / 200 - 0.6) / 0.38
    runs = (equal["inferences"] - falling["inferences"]) / 1e6
    assert equal["reward"] - falling["reward"] == pytest.approx(accuracy / 3 + runs - 0.1)


def test_no_solutions():
    problem = stream_problem()
    late = evaluated(problem, 128, 128, 128)
    assert not late.feasible and late.infeasible[-1] == "l3 misses the deadline" and late.excess > 1
    assert late.figures["reward"] == pytest.approx(late.figures["inferences"] / 1e6 - 1) and all(
        "unit" in job for job in problem.meter.measured)
    vague = evaluated(problem, 8, 8, 8)
    assert vague.infeasible == tuple(f"{name} is not accurate enough" for name in ("l6", "l4"))
    assert vague.figures["reward"] == pytest.approx(vague.figures["inferences"] / 1e6 - 1)
    assert late.figures["reward"] < evaluated(problem, 64, 32, 16).figures["reward"]


def test_each_accuracy_is_measured_once():
    problem = stream_problem()
    _, method = chosen_method("grid", problem, 1, 0)
    found = search(problem, method, Here(problem.meter), Ledger("t", None))
    jobs = [tuple(job.values()) for job in problem.meter.measured]
    assert len(found) == problem.space.size == 2 * 2 * 125 and len(jobs) == len(set(jobs)) <= 2 + 2 * 2 * 5


def test_convergence():
    problem = stream_problem()
    _, method = chosen_method("random", problem, 60, 3)
    found = search(problem, method, Here(problem.meter), Ledger("t", None))
    curve = best_so_far(found, problem.objectives[0])
    assert curve == [max(one.figures["reward"] for one in found[:number + 1]) for number in range(60)]
    assert drawn(plot_convergence({"a": [curve, curve[:10]], "b": []}, "reward", ["$x"])).startswith(b"\x89PNG")


def test_no_objective():
    with pytest.raises(ExploreError, match="no objective 'speed'; there are reward, inferences, accuracy"):
        StreamProblem(stream_task(), None, "xcup", None, ("speed",))  # type: ignore[arg-type]


@pytest.mark.parametrize("changed, words", [
    ({"kind": "integer"}, "kind"), ({"circuits": ["xor"]}, "circuits: 'xor' is none of xnor-mux"),
    ({"lengths": [12]}, "lengths: 12 is none of 8, 16"), ({"bounds": [1, 2]}, "one for each of the levels l6, l4, l3"),
    ({"backbones": ["784"]}, "no backbone"), ({"backbones": []}, "length >= 1"), ({"deadline_ms": 0}, "> 0"),
    ({"macs": 100}, "macs: 100 is none of"), ({"speed": 1}, "unknown field `speed`"),
    ({"levels": [{"name": "a", "mhz": 1, "volts": 1}], "bounds": [1]}, "down to an empty battery"),
    ({"bounds": [101, 1, 1]}, "<= 100"), ({"controller": {"rate": 0}}, "> 0"),
    ({"controller": {"momentum": 1}}, "unknown field `momentum`"), ({"controller": {"discount": 1.5}}, "<= 1")])
def test_tasks_that_are_none(changed: dict[str, Any], words: str, tmp_path: Path):
    path = tmp_path / "space.json"
    path.write_bytes(msgspec.json.encode({**msgspec.to_builtins(stream_task()), **changed}))
    with pytest.raises(SpaceError, match=words) as caught:
        read_task(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_levels_of_ones_own():
    levels = [{"name": "only", "mhz": 10, "volts": 1, "above": 0}]
    problem = stream_problem(stream_task(levels=levels, bounds=[90], deadline_ms=100))
    assert list(problem.space.axes) == ["backbone", "circuit", "length_only"]
    found = evaluated(problem, 32)
    assert found.feasible and found.figures["accuracy"] == pytest.approx(found.figures["accuracy_only"])
