"""Tensors of a function in C, their sizes, and where they are."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Dim", "Size", "Storage", "Value", "extent", "most", "product", "size_text", "strides_of"]


@dataclass(frozen=True)
class Size:
    """A size that is known only when the function runs: ``text`` is an expression in C, of type size_t."""

    text: str
    maximum: int


Dim = int | Size


def most(dim: Dim) -> int:
    return dim.maximum if isinstance(dim, Size) else dim


def size_text(dim: Dim) -> str:
    return dim.text if isinstance(dim, Size) else f"{dim}u" if dim >= 0 else f"(size_t){dim}"


def product(dims: Iterable[Dim]) -> Dim:
    known, open_sizes = 1, []
    for dim in dims:
        if isinstance(dim, Size):
            open_sizes.append(dim)
        else:
            known *= dim
    if not open_sizes or not known:
        return known
    texts = [dim.text for dim in open_sizes] + ([f"{known}u"] if known != 1 else [])
    return Size(texts[0] if len(texts) == 1 else f"({' * '.join(texts)})",
                known * int(np.prod([dim.maximum for dim in open_sizes])))


def extent(shape: Sequence[Dim]) -> int:
    """Elements at most."""
    return most(product(shape))


def strides_of(shape: Sequence[Dim]) -> list[Dim]:
    """Of a tensor that is stored row by row."""
    return [product(shape[axis + 1:]) for axis in range(len(shape))]


@dataclass(eq=False)
class Storage:
    """Room for ``count`` elements under a name in C; ``offset`` is that in the arena.

    ``first``, ``last``: the steps in which it is used. ``over``: in whose place it may be, if they are used for the
    last time where it is for the first.
    """

    name: str
    dtype: np.dtype
    count: int
    in_arena: bool = True
    first: int = -1
    last: int = -1
    offset: int = 0
    over: tuple["Storage", ...] = ()

    @property
    def size(self) -> int:
        """Bytes."""
        return max(self.count, 1) * self.dtype.itemsize


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor, row by row: ``array`` if it is constant, else in ``storage``."""

    dtype: np.dtype
    shape: tuple[Dim, ...]
    storage: Storage | None = None
    array: np.ndarray | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def known(self) -> bool:
        """Whether all sizes are."""
        return all(isinstance(dim, int) for dim in self.shape)
