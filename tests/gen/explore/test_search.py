"""The search itself, on a problem that takes no time: spaces, methods, fronts, kept results."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gen.explore.errors import SpaceError
from gen.explore.evaluation import Evaluation, Job, Objective, Result
from gen.explore.ledger import Ledger
from gen.explore.methods import METHODS, chosen_method
from gen.explore.plot import plot
from gen.explore.report import Found, front
from gen.explore.search import search
from gen.explore.space import Point, Space
from gen.explore.workers import Here
from gen.files.figure import drawn
from gen.files.results import ResultLog
from tests.gen.explore.endings import Killed, Shuffled
from tests.gen.explore.toy import ToyMeter, ToyProblem, toy_space


def line_of(folder: Path, identity: str, key: str, value: Any) -> str:
    """As a log has it."""
    log = ResultLog(folder / f"line.{identity}.{key}", identity)
    log.add({key: value})
    return log.path.read_text()


def searched(name: str, problem: ToyProblem, *, seed: int = 1, evaluations: int = 60, **parts: Any) -> list[Evaluation]:
    _, method = chosen_method(name, problem, evaluations, seed)  # type: ignore[arg-type]
    workers, ledger = parts.get("workers") or Here(problem.meter), parts.get("ledger") or Ledger("t", None)
    return search(problem, method, workers, ledger)


def test_every_point_once():
    space = Space({"a": [1, 2, 3], "b": ["x"], "c": [0.5, 1.0]})
    assert (space.size, space.varied) == (6, ("a", "c"))
    points = [tuple(space.point(number).values()) for number in range(6)]
    assert points == [(a, "x", c) for a in (1, 2, 3) for c in (0.5, 1.0)]
    assert space.sample(4, seed=3) == space.sample(4, seed=3) != space.sample(4, seed=4)
    assert sorted(tuple(point.values()) for point in space.sample(99, seed=3)) == points


def test_large_spaces_are_not_listed():
    space = Space({f"p{number}": list(range(1000)) for number in range(12)})
    assert space.size == 1000 ** 12
    assert len({tuple(point.values()) for point in space.sample(50, seed=0)}) == 50


@pytest.mark.parametrize("axes, words", [({"a": []}, "a: no values"), ({"a": [1, 2, 1]}, "a: 1 stands there twice")])
def test_no_spaces(axes: dict[str, list[int]], words: str):
    with pytest.raises(SpaceError, match=words):
        Space(axes)


def test_the_front_against_its_definition(rng: np.random.Generator):
    """A point is on it if every other feasible one is worse somewhere, or nowhere better."""
    names = ("low", "high", "other")
    goals = [Objective(name, largest=name == "high") for name in names]
    for count in (0, 1, 2, 40):
        found = [Evaluation({"n": number}, dict(zip(names, rng.integers(0, 5, 3).tolist(), strict=True)),
                            infeasible=("no",) * int(rng.integers(4) == 0)) for number in range(count)]

        def beats(a: Evaluation, b: Evaluation) -> bool:
            pairs = [(a.figures["low"], b.figures["low"]), (-a.figures["high"], -b.figures["high"]),
                     (a.figures["other"], b.figures["other"])]
            return all(x <= y for x, y in pairs) and any(x < y for x, y in pairs)

        expected = {number for number, one in enumerate(found) if one.feasible
                    and not any(other.feasible and beats(other, one) for other in found)}
        best = front(found, goals)
        assert set(best) == expected and len(best) == len(expected)
        assert [found[number].figures["low"] for number in best] == sorted(found[n].figures["low"] for n in best)


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ("auto", "controller")])
def test_the_same_in_any_order(name: str, rng: np.random.Generator):
    if name == "optuna":
        pytest.importorskip("optuna")
    found = searched(name, ToyProblem())
    problem = ToyProblem()
    again = searched(name, problem, workers=Shuffled(problem.meter, rng))
    assert again == found
    keys = [tuple(one.point.values()) for one in found]
    assert len(keys) == len(set(keys)) == (288 if name == "grid" else 60)


@pytest.mark.parametrize("name", ["random", "optuna"])
def test_seeds_differ(name: str):
    if name == "optuna":
        pytest.importorskip("optuna")
    assert searched(name, ToyProblem(), seed=1) != searched(name, ToyProblem(), seed=2)


def test_optuna_finds_more_of_the_front_than_chance():
    """Its points beat more of the space: the figure of merit is the mean share of all points that one of them beats."""
    pytest.importorskip("optuna")
    everything = [one for one in searched("grid", ToyProblem(toy_space(30))) if one.feasible]

    def regret(found: list[Evaluation]) -> float:
        """By how much the found miss the best square at each distance, in the mean."""
        def best(some: list[Evaluation], far: float) -> float:
            return min((one.figures["square"] for one in some if one.feasible and one.figures["far"] >= far),
                       default=1000.0)
        return sum(best(found, far) - best(everything, far) for far in range(9))

    def total(name: str) -> float:
        return sum(regret(searched(name, ToyProblem(toy_space(30)), seed=seed, evaluations=120)) for seed in range(5))
    assert total("optuna") < total("random")


def test_optuna_ends_where_there_are_few_points():
    pytest.importorskip("optuna")
    space = toy_space(3)
    found = searched("optuna", ToyProblem(space), evaluations=1000)
    assert len({tuple(one.point.values()) for one in found}) == len(found) == space.size


def test_auto_is_the_grid_where_it_is_small():
    assert chosen_method("auto", ToyProblem(), 288, 0)[0] == "grid"
    assert chosen_method("auto", ToyProblem(), 287, 0)[0] == "random"


@pytest.mark.parametrize("name", ["grid", "random", "optuna"])
@pytest.mark.parametrize("torn", [False, True])
def test_killed_and_resumed(name: str, torn: bool, tmp_path: Path):
    """With a line that was not finished, too."""
    if name == "optuna":
        pytest.importorskip("optuna")
    expected = searched(name, ToyProblem())
    meter = ToyMeter()
    with pytest.raises(KeyboardInterrupt):
        searched(name, ToyProblem(meter=meter), workers=Killed(meter, 3), ledger=Ledger("t", tmp_path))
    path = Ledger("t", tmp_path).path
    assert path is not None
    if torn:
        path.write_bytes(path.read_bytes()[:-7])
    meter = ToyMeter()
    assert searched(name, ToyProblem(meter=meter), ledger=Ledger("t", tmp_path)) == expected
    some = len(meter.measured)
    meter = ToyMeter()
    assert searched(name, ToyProblem(meter=meter), ledger=Ledger("t", tmp_path)) == expected
    assert not meter.measured and some


def test_equal_measurements_are_made_once():
    problem = ToyProblem()
    searched("grid", problem)
    assert len(problem.meter.measured) == 12 * 11


def test_results_of_another_state_are_not_taken(tmp_path: Path):
    job = Job({"x": 1}, "")
    ledger = Ledger("one", tmp_path)
    ledger.keep({ledger.key(job): {"square": 1}})
    assert ledger.key(job) in Ledger("one", tmp_path) and ledger.key(job) not in Ledger("two", tmp_path)
    assert ledger.key(Job({"x": 2}, "")) not in Ledger("one", tmp_path)


def test_damaged_results_are_none(tmp_path: Path):
    path, lines = Ledger("t", tmp_path).path, {
        key: line_of(tmp_path, "t", key, {"square": 1}).encode() for key in "abcd"}
    assert path is not None
    path.write_bytes(lines["a"] + b'\n[1, 2]\nnull\n{"a": 1}\n\xff\xfe\n["b", [1]]' + lines["c"] + lines["d"][:-5])
    ledger = Ledger("t", tmp_path)
    assert [key in ledger for key in "abcd"] == [True, False, True, False]


def test_foreign_results_are_none(tmp_path: Path):
    """Lines of another search, of other hands, or with a figure changed: measured anew, not believed."""
    expected, path = searched("grid", ToyProblem()), Ledger("t", tmp_path).path
    assert path is not None
    searched("grid", ToyProblem(), ledger=Ledger("t", tmp_path))
    lines = path.read_text().splitlines()
    changed = [line.replace('"square": ', '"square": 1') for line in lines]
    assert changed != lines
    for foreign in (changed, [line.replace('"square"', '"cube"') for line in lines],
                    [line_of(tmp_path, "another", *json.loads(line)[:2]) for line in lines if line],
                    [json.dumps(json.loads(line)[:2]) for line in lines if line]):
        path.write_text("\n".join(foreign))
        assert searched("grid", ToyProblem(), ledger=Ledger("t", tmp_path)) == expected


def test_a_disk_that_takes_nothing(tmp_path: Path):
    (tmp_path / "file").write_text("")
    problem = ToyProblem()
    assert searched("grid", problem, ledger=Ledger("t", tmp_path / "file")) == searched("grid", ToyProblem())


def test_csv_and_dict_have_every_point():
    problem = ToyProblem()
    found = Found(problem.space, problem.objectives, searched("grid", problem))
    lines = found.csv().splitlines()
    assert lines[0] == "x,y,word,square,far,front,infeasible" and len(lines) == 1 + 288
    assert {lines[1], lines[-1]} == {"0,0,a,0,3,0,", "11,11,b,,,0,y"}
    values = found.to_dict({"who": "toy"})
    assert [number for number, point in enumerate(values["points"]) if point["front"]] == sorted(values["front"])
    assert [line.split(",")[5] for line in lines[1:]] == [str(int(point["front"])) for point in values["points"]]


@pytest.mark.parametrize("objectives", [1, 2])
@pytest.mark.parametrize("feasible", [True, False])
def test_plots_of_little(objectives: int, feasible: bool):
    """Of one objective, and of no solution at all."""
    problem = ToyProblem(Space({"x": [9 - feasible], "y": [1], "word": ["$a_b^"]}))
    found = Found(problem.space, problem.objectives[:objectives], searched("grid", problem))
    assert len(found.front) == feasible
    assert drawn(plot(found, "$x_" * 40)).startswith(b"\x89PNG")


class Tempting(ToyProblem):
    """The points with the best figures are no solutions."""

    def jobs(self, point: Point) -> Sequence[Job]:
        return [Job({"x": point["x"], "y": point["y"]}, group="")]

    def evaluation(self, point: Point, results: Sequence[Result]) -> Evaluation:
        figures = {"square": results[0]["square"], "far": -int(point["x"])}
        lacking = 20 - int(point["x"])
        return Evaluation(point, figures, infeasible=("x",) * (lacking > 0), excess=float(max(0, lacking)))


def test_optuna_leaves_what_is_no_solution():
    pytest.importorskip("optuna")

    def feasible(name: str) -> int:
        return sum(one.feasible for seed in range(3)
                   for one in searched(name, Tempting(toy_space(30)), seed=seed, evaluations=120))
    assert feasible("optuna") > feasible("random")


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    ResultLog(tmp_path / "log", "of this test").add({"one": {2: "two", 10: "ten"}, "two": (1, 2)})
    again = ResultLog(tmp_path / "log", "of this test")
    assert again.values == {"one": {"2": "two", "10": "ten"}, "two": [1, 2]}
    assert ResultLog(tmp_path / "log", "of another").values == {}
    again.drop(["one"])
    assert again.values == ResultLog(tmp_path / "log", "of this test").values == {"two": [1, 2]}
    again.drop(["two"])
    assert not again.path.exists()
