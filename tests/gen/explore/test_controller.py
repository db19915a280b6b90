"""The recurrent controller: learns, repeats itself, ends, and does without results in any order."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gen.explore.controller import Controller, ControllerSettings, _Policy
from gen.explore.errors import ExploreError
from gen.explore.evaluation import Evaluation
from gen.explore.ledger import Ledger
from gen.explore.methods import chosen_method
from gen.explore.search import Workers, search
from gen.explore.space import Space
from gen.explore.streams import StreamProblem
from gen.explore.workers import Here
from tests.gen.explore.endings import Killed, Shuffled
from tests.gen.explore.stream_toy import check_a_search, stream_problem, stream_task
from tests.gen.explore.toy import ToyProblem

torch = pytest.importorskip("torch", reason="the controller needs PyTorch")


def long_problem() -> StreamProblem:
    return stream_problem(stream_task(backbones=[f"784-{hidden}-10" for hidden in range(60, 220, 10)]))


def found_by(name: str, seed: int, evaluations: int = 10_000) -> list[Evaluation]:
    problem = long_problem()
    _, method = chosen_method(name, problem, evaluations, seed)
    return search(problem, method, Here(problem.meter), Ledger("t", None))


def test_the_same_for_the_same_seed():
    before = torch.random.get_rng_state()
    first = found_by("controller", 1, 200)
    assert first == found_by("controller", 1, 200) != found_by("controller", 2, 200)
    assert (before == torch.random.get_rng_state()).all()
    points = [tuple(one.point.values()) for one in first]
    assert len(points) == len(set(points)) == 200


def test_the_same_in_any_order_and_when_resumed(tmp_path: Path, rng: np.random.Generator):
    expected = found_by("controller", 1, 120)
    problem = long_problem()

    def searched(workers: Workers, ledger: Ledger) -> list[Evaluation]:
        return search(problem, chosen_method("controller", problem, 120, 1)[1], workers, ledger)

    assert searched(Shuffled(problem.meter, rng), Ledger("t", None)) == expected
    with pytest.raises(KeyboardInterrupt):
        searched(Killed(problem.meter, 5), Ledger("t", tmp_path))
    assert searched(Here(problem.meter), Ledger("t", tmp_path)) == expected


def test_it_learns():
    """What it tries last is better than what it tries first: the mean of rewards over all of its points."""
    for seed in range(2):
        rewards = [one.figures["reward"] for one in found_by("controller", seed)]
        assert len(rewards) <= 35 * 50
        assert sum(rewards[-100:]) / 100 > sum(rewards[:100]) / 100 + 0.3


@pytest.mark.parametrize("changed", [{"rate": 0.1}, {"discount": 0.9}, {"average": 0.0}, {"batch": 20}])
def test_each_setting_counts(changed: dict[str, Any]):
    """What is learnt from the first batches is not the same."""
    problem = long_problem()

    def found(settings: ControllerSettings | None) -> list[Evaluation]:
        _, method = chosen_method("controller", problem, 150, 1, settings)
        return search(problem, method, Here(problem.meter), Ledger("t", None))

    published, other = found(None), found(ControllerSettings(**changed))
    assert published == found(ControllerSettings()) != other
    assert len(published) == len(other)


def test_a_search_of_axes():
    check_a_search("controller", {"input": "784", "hidden": {"count": [1, 2], "neurons": [60, 100, 200]}})


def test_steps_are_the_end():
    problem = long_problem()
    _, method = chosen_method("controller", problem, 1000, 1, ControllerSettings(batch=10, steps=3))
    assert len(search(problem, method, Here(problem.meter), Ledger("t", None))) <= 30


def test_choices_that_mean_nothing_are_not_learnt():
    """Rewards are the same whatever they are, so their chances stay as they were; the others' do not."""
    space = Space({"count": [1, 2], "second": [5, 6, 7]}, {"second": ("count", [2])})
    policy = _Policy(space, 0, ControllerSettings())
    before = [values.detach().clone() for values in policy._heads[1].parameters()]
    choices = policy.sample(200)
    assert {tuple(choice) for choice in choices} == {(0, 0), (1, 0), (1, 1), (1, 2)}
    policy.learn([1.0 if choice[0] == 0 else 0.0 for choice in choices])
    assert all(bool((old == new).all()) for old, new in zip(before, policy._heads[1].parameters(), strict=True))
    choices = policy.sample(200)
    policy.learn([1.0 if choice == [1, 2] else 0.0 for choice in choices])
    assert not all(bool((old == new).all()) for old, new in zip(before, policy._heads[1].parameters(), strict=True))


def test_it_ends_where_there_are_few_points():
    problem = stream_problem(stream_task(backbones=["784-100-10"], circuits=["and-loop"], lengths=[8, 64]))
    _, method = chosen_method("controller", problem, 1000, 0)
    found = search(problem, method, Here(problem.meter), Ledger("t", None))
    assert len({tuple(one.point.values()) for one in found}) == len(found) <= 8


def test_a_reward_is_needed():
    with pytest.raises(ExploreError, match="learns from a reward alone"):
        Controller(ToyProblem(), 10, 0)


def test_without_pytorch(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gen.explore.controller.find_spec", lambda name: None)
    with pytest.raises(ExploreError, match="needs PyTorch"):
        Controller(stream_problem(), 10, 0)
