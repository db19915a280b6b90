"""The recurrent controller: learns, repeats itself, ends, and does without results in any order."""

from pathlib import Path

import numpy as np
import pytest

from gen.explore.controller import Controller
from gen.explore.errors import ExploreError
from gen.explore.evaluation import Evaluation
from gen.explore.ledger import Ledger
from gen.explore.methods import chosen_method
from gen.explore.search import Workers, search
from gen.explore.streams import StreamProblem
from gen.explore.workers import Here
from tests.gen.explore.endings import Killed, Shuffled
from tests.gen.explore.stream_toy import stream_problem, stream_task
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
