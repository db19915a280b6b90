"""Points by a recurrent network that learns by policy gradient which ones are rewarded."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from gen.stochastic.repeatable import repeatable

from .errors import ExploreError
from .evaluation import Evaluation, Problem
from .space import Point

__all__ = ["Controller"]

#: As published.
_BATCH, _STEPS, _RATE = 35, 50, 0.99
_HIDDEN = 32
#: Of the moving average of rewards: what it keeps from step to step.
_KEPT = 0.8


class Controller:
    """A batch of points a step: an LSTM chooses one parameter after the other, each by what it has chosen before.

    A point that comes again costs nothing and is no evaluation. It ends after so many steps, or ``evaluations``. Raises
    ExploreError without PyTorch, and unless there is one objective and it is a reward, which infeasible points have
    too.
    """

    def __init__(self, problem: Problem, evaluations: int, seed: int) -> None:
        if find_spec("torch") is None:
            raise ExploreError("--method controller needs PyTorch: pip install 'npugen[train]'; random and optuna do "
                               "without", code="missing-package")
        (self._goal, *others) = problem.objectives
        if others or self._goal.name != "reward":
            raise ExploreError("--method controller learns from a reward alone, which spaces of stochastic networks "
                               "have")
        self._axes, self._wanted = problem.space.axes, evaluations
        self._steps_left = _STEPS
        self._baseline: float | None = None
        self._policy = _Policy([len(values) for values in self._axes.values()], seed)
        self._batch: list[Point] = []
        self._chosen: set[tuple[Any, ...]] = set()

    def next(self, found: Sequence[Evaluation]) -> Sequence[Point]:
        known = {tuple(one.point.values()): self._goal.loss(one.figures[self._goal.name]) for one in found}
        while True:
            if self._batch:
                self._learn([-known[tuple(point.values())] for point in self._batch])
            if not self._steps_left or len(self._chosen) >= self._wanted:
                return ()
            self._steps_left -= 1
            if new := self._sampled():
                return new

    def _sampled(self) -> list[Point]:
        """The points of a batch that are new, as many as are wanted."""
        self._batch, new = [], list[Point]()
        for numbers in self._policy.sample(_BATCH):
            point = {name: values[number] for (name, values), number in zip(self._axes.items(), numbers, strict=True)}
            key = tuple(point.values())
            if key not in self._chosen:
                if len(self._chosen) >= self._wanted:
                    break
                self._chosen.add(key)
                new.append(point)
            self._batch.append(point)
        return new

    def _learn(self, rewards: Sequence[float]) -> None:
        mean = sum(rewards) / len(rewards)
        before = mean if self._baseline is None else self._baseline
        self._policy.learn([reward - before for reward in rewards])
        self._baseline = _KEPT * before + (1 - _KEPT) * mean


class _Policy:
    """Chooses a number below each of ``counts``; the same for the same seed."""

    def __init__(self, counts: Sequence[int], seed: int) -> None:
        import torch

        with repeatable(seed):
            self._cell = torch.nn.LSTMCell(_HIDDEN, _HIDDEN)
            self._heads = torch.nn.ModuleList(torch.nn.Linear(_HIDDEN, count) for count in counts)
            # What was chosen last, as input; of the first parameter nothing.
            self._chosen = torch.nn.ModuleList(torch.nn.Embedding(count, _HIDDEN) for count in (1, *counts[:-1]))
        self._generator = torch.Generator().manual_seed(seed)
        parts = torch.nn.ModuleList([self._cell, self._heads, self._chosen])
        self._optimizer = torch.optim.SGD(parts.parameters(), lr=_RATE)
        self._likely: Any = None    # of the choices sampled last: logarithms of their probabilities

    def sample(self, batch: int) -> list[list[int]]:
        """So many choices."""
        with repeatable(seed=0):    # its own generator is the one that draws
            return self._sampled(batch)

    def _sampled(self, batch: int) -> list[list[int]]:
        import torch

        state, last = None, torch.zeros(batch, dtype=torch.long)
        choices, likely = [], torch.zeros(batch)
        for head, chosen in zip(self._heads, self._chosen, strict=True):
            state = self._cell(chosen(last), state)
            logarithms = torch.log_softmax(head(state[0]), dim=1)
            last = torch.multinomial(logarithms.exp().detach(), 1, generator=self._generator)[:, 0]
            likely = likely + logarithms.gather(1, last[:, None])[:, 0]
            choices.append(last)
        self._likely = likely
        return torch.stack(choices, dim=1).tolist()

    def learn(self, advantages: Sequence[float]) -> None:
        """Of the choices sampled last, in order; those after them, of which nothing is known, do not count."""
        import torch

        with repeatable(seed=0):
            loss = -(self._likely[:len(advantages)] * torch.tensor(advantages)).mean()
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()
