"""What goes with an entry into the input buffer, beside its values."""

from collections.abc import Callable
from typing import NamedTuple

from ..config import NpuConfig

__all__ = ["EntryMark", "entry_marks"]


class EntryMark(NamedTuple):
    """``unit``: the field of `NpuConfig` without which a machine does not have it. ``bits`` for neighbouring banks that
    are written at once. ``whole``: what it is where all bytes of the entries are written, and none counts as padding.
    """

    name: str
    unit: str
    bits: Callable[[NpuConfig], int]
    whole: int


#: A unit that writes entries in a way of its own adds a mark here: from the load engine's path to the banks all that
#: carry entries have it then.
_MARKS = (
    # Bytes of the entries that change.
    EntryMark("bytes", "gather", lambda config: config.beat_bytes, ~0),
    # Of each entry, which of its halves count as zero; each goes with the first byte of its half.
    EntryMark("zero", "binary_rows", lambda config: 2 * config.write_lanes, 0),
)


def entry_marks(config: NpuConfig) -> tuple[EntryMark, ...]:
    """Those that a machine has."""
    return tuple(mark for mark in _MARKS if getattr(config, mark.unit))
