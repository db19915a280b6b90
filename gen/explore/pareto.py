"""The best trade-offs: points that no other one beats."""

from collections.abc import Sequence

import numpy as np

from .evaluation import Evaluation, Objective

__all__ = ["front"]


def front(evaluations: Sequence[Evaluation], objectives: Sequence[Objective]) -> list[int]:
    """Numbers of the feasible points that none is at least as good as in every objective, and better in one.

    In the order of the first objective, the best first. Of points with the same figures all are in it.
    """
    numbers = [number for number, one in enumerate(evaluations) if one.feasible]
    losses = np.array([[goal.loss(evaluations[number].figures[goal.name]) for goal in objectives]
                       for number in numbers]).reshape(len(numbers), len(objectives))
    best = [number for number, mine in zip(numbers, losses, strict=True)
            if not ((losses <= mine).all(axis=1) & (losses < mine).any(axis=1)).any()]
    rank = dict(zip(numbers, losses.tolist(), strict=True))
    return sorted(best, key=lambda number: (rank[number], number))
