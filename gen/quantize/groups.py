"""The noise of an output's channels, group by group: boxes of hundreds of pixels hide what becomes of scores."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

__all__ = ["ChannelGroup", "ChannelNoise", "channel_axis", "decibels"]

#: Root mean squares of channels that are further apart than this are of different groups.
_APART = 8.0
#: Channels at most, for memory: more are none.
_MOST = 1 << 16


@dataclass(frozen=True)
class ChannelGroup:
    """Channels of like size of an output: ``channels`` are runs, first and last one each, along ``axis``, of which 0 is
    that of the samples. ``rms``: of the float model's values; ``sqnr_db``: as that of an output.
    """

    axis: int
    channels: tuple[tuple[int, int], ...]
    rms: float
    sqnr_db: float | None

    def __str__(self) -> str:
        runs = [str(first) if first == last else f"{first}-{last}" for first, last in self.channels]
        more = f" and {len(runs) - 3} more runs" if len(runs) > 3 else ""
        return f"channels {', '.join(runs[:3])}{more}"


def channel_axis(shape: Sequence[int]) -> int | None:
    """Where an output of ``shape``, with the samples, has its channels: an export may have them last. None: nowhere."""
    match len(shape):
        case 0 | 1:
            return None
        case 2:
            return 1
        case 3:
            return 1 if shape[1] <= shape[2] else 2
        case 4:
            return 3 if shape[1] == shape[2] != shape[3] else 1
    return len(shape) - 1


def decibels(signal: float, noise: float) -> float | None:
    """An SQNR; None without noise."""
    if not noise:
        return None
    return float(10 * np.log10(max(signal, np.finfo(np.float64).tiny) / noise))     # of a finite number


class ChannelNoise:
    """Of one output, sample by sample."""

    def __init__(self) -> None:
        self._axis: int | None = None
        self._signal = self._noise = np.zeros(0)
        self._values = 0
        self._mixed = False

    def add(self, exact: np.ndarray, rounded: np.ndarray) -> None:
        """Of a sample (1, ...). Those of different numbers of channels leave no groups."""
        axis = channel_axis(exact.shape)
        if axis is None or not 1 < exact.shape[axis] <= _MOST:
            self._mixed = True
            return
        others = tuple(other for other in range(exact.ndim) if other != axis)
        signal = np.square(exact, dtype=np.float64).sum(axis=others)
        noise = np.square(exact - rounded, dtype=np.float64).sum(axis=others)
        if self._axis is None:
            self._axis, self._signal, self._noise = axis, np.zeros_like(signal), np.zeros_like(noise)
        if (axis, signal.shape) != (self._axis, self._signal.shape):
            self._mixed = True
            return
        self._signal, self._noise = self._signal + signal, self._noise + noise
        self._values += exact.size // exact.shape[axis]

    def groups(self) -> tuple[ChannelGroup, ...]:
        """The largest channels first; none where all are alike. Channels of nothing but zeros are of the last one."""
        if self._mixed or self._axis is None:
            return ()
        rms = np.sqrt(self._signal / max(1, self._values))
        order = np.argsort(-rms, kind="stable")
        starts, lead = [0], rms[order[0]]
        for place, channel in enumerate(order):
            if 0 < rms[channel] < lead / _APART:
                starts.append(place)
                lead = rms[channel]
        if len(starts) == 1:
            return ()
        return tuple(self._group(self._axis, np.sort(order[first:last]))
                     for first, last in pairwise([*starts, len(order)]))

    def _group(self, axis: int, channels: np.ndarray) -> ChannelGroup:
        signal, noise = float(self._signal[channels].sum()), float(self._noise[channels].sum())
        runs = np.split(channels, np.flatnonzero(np.diff(channels) > 1) + 1)
        return ChannelGroup(axis, tuple((int(run[0]), int(run[-1])) for run in runs),
                            float(np.sqrt(signal / (len(channels) * self._values))), decibels(signal, noise))
