"""Points by a recurrent network that learns by policy gradient which ones are rewarded."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from gen.stochastic.repeatable import repeatable

from .errors import ExploreError
from .evaluation import Evaluation, Problem
from .space import Point, Space

__all__ = ["Controller", "ControllerSettings"]

_HIDDEN = 32


class ControllerSettings(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """As published unless given: so many ``steps`` of a ``batch`` of points each, at a learning ``rate``.

    ``discount``: how much of a reward a choice has for each one that was made after it. ``average``: what the moving
    average of rewards, the baseline, keeps from step to step, which is not published.
    """

    batch: Annotated[int, Meta(ge=1, le=1000)] = 35
    steps: Annotated[int, Meta(ge=1, le=10_000)] = 50
    rate: Annotated[float, Meta(gt=0, le=10)] = 0.99
    discount: Annotated[float, Meta(gt=0, le=1)] = 1.0
    average: Annotated[float, Meta(ge=0, lt=1)] = 0.8


class Controller:
    """A batch of points a step: an LSTM chooses one parameter after the other, each by what it has chosen before.

    A point that comes again costs nothing and is no evaluation. It ends after so many steps, or ``evaluations``. Raises
    ExploreError without PyTorch, and unless there is one objective and it is a reward, which infeasible points have
    too.
    """

    def __init__(self, problem: Problem, evaluations: int, seed: int,
                 settings: ControllerSettings = ControllerSettings()) -> None:  # noqa: B008 - frozen
        if find_spec("torch") is None:
            raise ExploreError("--method controller needs PyTorch: pip install 'npugen[train]'; random and optuna do "
                               "without", code="missing-package")
        (self._goal, *others) = problem.objectives
        if others or self._goal.name != "reward":
            raise ExploreError("--method controller learns from a reward alone, which spaces of stochastic networks "
                               "have")
        self._space, self._wanted, self._settings = problem.space, evaluations, settings
        self._steps_left = settings.steps
        self._baseline: float | None = None
        self._policy = _Policy(problem.space, seed, settings)
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
        for numbers in self._policy.sample(self._settings.batch):
            point = self._space.settled({name: values[number] for (name, values), number in zip(
                self._space.axes.items(), numbers, strict=True)})
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
        kept = self._settings.average
        self._baseline = kept * before + (1 - kept) * mean


class _Policy:
    """Chooses the number of a value of each of a space's parameters, 0 of one that means nothing; the same for the same
    seed.
    """

    def __init__(self, space: Space, seed: int, settings: ControllerSettings) -> None:
        import torch

        counts = [len(values) for values in space.axes.values()]
        self._needs = _needs_by_number(space)
        self._shares = [settings.discount ** after for after in reversed(range(len(counts)))]
        with repeatable(seed):
            self._cell = torch.nn.LSTMCell(_HIDDEN, _HIDDEN)
            self._heads = torch.nn.ModuleList(torch.nn.Linear(_HIDDEN, count) for count in counts)
            # What was chosen last, as input; of the first parameter nothing.
            self._chosen = torch.nn.ModuleList(torch.nn.Embedding(count, _HIDDEN) for count in (1, *counts[:-1]))
        self._generator = torch.Generator().manual_seed(seed)
        parts = torch.nn.ModuleList([self._cell, self._heads, self._chosen])
        self._optimizer = torch.optim.SGD(parts.parameters(), lr=settings.rate)
        self._likely: Any = None    # of the choices sampled last: logarithms of their probabilities

    def sample(self, batch: int) -> list[list[int]]:
        """So many choices."""
        with repeatable(seed=0):    # its own generator is the one that draws
            return self._sampled(batch)

    def _sampled(self, batch: int) -> list[list[int]]:
        import torch

        state, last = None, torch.zeros(batch, dtype=torch.long)
        choices, likely = list[Any](), torch.zeros(batch)
        for number, (head, chosen) in enumerate(zip(self._heads, self._chosen, strict=True)):
            state = self._cell(chosen(last), state)
            logarithms = torch.log_softmax(head(state[0]), dim=1)
            last = torch.multinomial(logarithms.exp().detach(), 1, generator=self._generator)[:, 0]
            chance = logarithms.gather(1, last[:, None])[:, 0]
            if number in self._needs:   # nothing was chosen where it means nothing
                needed, values = self._needs[number]
                means = torch.isin(choices[needed], torch.tensor(values))
                last, chance = torch.where(means, last, 0), torch.where(means, chance, 0)
            likely = likely + self._shares[number] * chance
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


def _needs_by_number(space: Space) -> Mapping[int, tuple[int, list[int]]]:
    """Parameter -> the one that it needs, and the numbers of the values with which it means something."""
    names = list(space.axes)
    return {names.index(name): (names.index(other), [space.axes[other].index(value) for value in values])
            for name, (other, values) in space.needs.items()}
