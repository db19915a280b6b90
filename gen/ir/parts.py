"""Tensors that are parts of others: whose channels are whose."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from gen.ir.tensor import Tensor

__all__ = ["ByChannel", "Present", "origin", "related", "wholes", "without_gaps"]


def wholes(tensors: Mapping[str, Tensor], name: str) -> Iterator[str]:
    """What a tensor is part of, the smallest first."""
    while part := tensors[name].part:
        name = part.whole
        yield name


def origin(tensors: Mapping[str, Tensor], name: str) -> tuple[str, range]:
    """The tensor that is part of no other and has the values of ``name``, and in which of its channels."""
    first, channels = 0, tensors[name].shape[0]
    while part := tensors[name].part:
        name, first = part.whole, first + part.first
    return name, range(first, first + channels)


def related(tensors: Mapping[str, Tensor]) -> set[str]:
    """Those that are part of another, or have parts."""
    return {name for tensor in tensors.values() if tensor.part for name in (tensor.name, tensor.part.whole)}


def without_gaps(tensor: Tensor, array: np.ndarray, axis: int = -3) -> np.ndarray:
    """Of an array with the channels of a tensor on ``axis`` those that mean something."""
    gaps = [channel for gap in tensor.gaps for channel in gap]
    return np.delete(array, gaps, axis) if gaps else array


class ByChannel:
    """Arrays (N, channels) or (N, channels, H, W) of tensors: those of a part are in that of its whole, whose pixels
    may have another arrangement.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors
        self._arrays: dict[str, np.ndarray] = {}

    def __setitem__(self, name: str, array: np.ndarray) -> None:
        whole, channels = origin(self._tensors, name)
        count, *pixels = self._tensors[whole].shape
        array = self._laid(array, pixels)
        if len(channels) == count:
            self._arrays[whole] = array
            return
        if whole not in self._arrays:
            self._arrays[whole] = np.zeros((len(array), count, *array.shape[2:]), array.dtype)
        self._arrays[whole][:, channels.start:channels.stop] = array

    def __getitem__(self, name: str) -> np.ndarray:
        whole, channels = origin(self._tensors, name)
        return self._laid(self._arrays[whole][:, channels.start:channels.stop], self._tensors[name].shape[1:])

    @staticmethod
    def _laid(array: np.ndarray, pixels: Sequence[int]) -> np.ndarray:
        return array.reshape(*array.shape[:2], *pixels) if array.ndim > 2 else array

    def drop(self, name: str) -> None:
        """Forget the array of a tensor and of all that has channels of it."""
        del self._arrays[origin(self._tensors, name)[0]]


class Present:
    """Which channels of tensors are there. Gaps need not be."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors
        self._flags: dict[str, np.ndarray] = {}

    def _of(self, name: str) -> np.ndarray:
        whole, channels = origin(self._tensors, name)
        if whole not in self._flags:
            self._flags[whole] = np.zeros(self._tensors[whole].shape[0], bool)
        return self._flags[whole][channels.start:channels.stop]

    def add(self, name: str) -> None:
        self._of(name)[:] = True

    def all_of(self, name: str) -> bool:
        return bool(without_gaps(self._tensors[name], self._of(name), axis=0).all())

    def any_of(self, name: str) -> bool:
        return bool(self._of(name).any())
