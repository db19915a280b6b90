"""Who uses which part of the input buffer, and who wrote which part of a feature map."""

from dataclasses import dataclass

__all__ = ["BufferRing", "Chunk", "BufferAllocation", "TensorWrites"]


@dataclass(eq=False)
class BufferAllocation:
    """A part of the input buffer; ``last_reader`` is the index of a COMPUTE in its queue, -1 while that is unknown."""

    base: int
    size: int
    last_reader: int = -1


@dataclass(eq=False)
class Chunk:
    """Channel blocks in the input buffer; ``loaded`` is the index of their LOAD_ACT, -1 of what stays there.

    ``ahead``: beats of the weights of its first COMPUTE that are on their way already.
    """

    blocks: range
    place: BufferAllocation
    loaded: int
    ahead: int = 0


class BufferRing:
    """Places in the input buffer, handed out round and round.

    Each is free again after the last COMPUTE that reads it.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        #: Places end here; after it is what stays in the buffer, which `take_at` alone gives out.
        self.limit = depth
        self._next = 0
        #: What is left of each place: from its first entry on, up to the second.
        self._live: list[tuple[int, int, BufferAllocation]] = []

    @property
    def next_entry(self) -> int:
        """Where the next place begins if it fits there."""
        return self._next

    def room_ahead(self, size: int) -> bool:
        """Whether ``size`` entries fit without turning around."""
        return self._next + size <= self.limit

    def restart(self) -> None:
        """Go on from the buffer's beginning."""
        self._next = 0

    def take(self, size: int) -> tuple[BufferAllocation, int]:
        """A place of ``size`` entries and the COMPUTE that must be done before it is written (-1: none)."""
        if not self.room_ahead(size):
            self.restart()
        base = self._next
        self._next += size
        assert self._next <= self.limit, "what is loaded reaches into what stays in the input buffer"
        return self.take_at(base, size)

    def take_at(self, base: int, size: int) -> tuple[BufferAllocation, int]:
        """The place of ``size`` entries from ``base`` on, and the COMPUTE that must be done before it is written."""
        end = base + size
        assert end <= self._depth, "a place ends outside the input buffer"
        after, kept = -1, []
        for low, high, place in self._live:
            if low < end and base < high:
                assert place.last_reader >= 0, "the input buffer is overbooked"
                after = max(after, place.last_reader)
                # Whoever takes the rest must wait too: what takes this may be a STORE, after which loads do not wait.
                kept += [(start, stop, place) for start, stop in ((low, base), (end, high)) if start < stop]
            else:
                kept.append((low, high, place))
        place = BufferAllocation(base, size)
        self._live = [*kept, (base, end, place)]
        return place, after


class TensorWrites:
    """Which output tile wrote which part of a tensor: channel blocks times a range of pixels."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int, int, int]] = []

    def add(self, tile: int, blocks: tuple[int, int], pixels: tuple[int, int]) -> None:
        self._rows.append((*blocks, *pixels, tile))

    def last(self, blocks: tuple[int, int], pixels: tuple[int, int]) -> int:
        """The last tile that writes into the part, or -1."""
        for low, high, start, end, tile in reversed(self._rows):
            if low < blocks[1] and blocks[0] < high and start < pixels[1] and pixels[0] < end:
                return tile
        return -1
