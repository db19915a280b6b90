"""Which of the parameters of a test are left to `make test-full`."""

from collections.abc import Iterable

import pytest

__all__ = ["with_full"]


def with_full(names: Iterable[str], *full: str) -> list:
    """``names`` as parameters; those that are also in ``full`` are marked so. KeyError for one that is not there."""
    names = list(names)
    if unknown := set(full) - set(names):
        raise KeyError(min(unknown))
    return [pytest.param(name, marks=pytest.mark.full) if name in full else name for name in names]
