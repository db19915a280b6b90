"""Which of the parameters of a test are left to `make test-full`."""

from collections.abc import Iterable, Sequence
from itertools import combinations, product

import pytest

__all__ = ["pairwise", "with_full"]


def with_full(names: Iterable, *full) -> list:
    """``names``, or tuples of several arguments, as parameters; those that are also in ``full`` are marked so.

    KeyError for one that is not there.
    """
    names = list(names)
    if unknown := set(full) - set(names):
        raise KeyError(min(unknown))
    return [pytest.param(*(name if isinstance(name, tuple) else (name,)), marks=pytest.mark.full) if name in full
            else name for name in names]


def pairwise(*axes: Sequence[tuple]) -> list:
    """The product of ``axes`` as parameters; `make test` has so many that each two choices of two axes meet in one.

    A choice is a tuple of arguments. What only three choices together bring about is left to ``full``, which has all.
    """
    def pairs(case: tuple[int, ...]) -> set[tuple]:
        return set(combinations(enumerate(case), 2))

    cases = list(product(*(range(len(axis)) for axis in axes)))
    missing = set().union(*map(pairs, cases))
    chosen = set()
    while missing:
        best = max(cases, key=lambda case: len(pairs(case) & missing))
        chosen.add(best)
        missing -= pairs(best)
    return [pytest.param(*(value for axis, index in zip(axes, case, strict=True) for value in axis[index]),
                         marks=() if case in chosen else pytest.mark.full) for case in cases]
