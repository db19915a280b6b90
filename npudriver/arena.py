"""Who has which part of one piece of memory."""

from __future__ import annotations

from .errors import OutOfMemoryError

__all__ = ["Arena"]


class Arena:
    """Hands out parts of the addresses ``base`` to ``base + size``: the first gap that is large enough."""

    def __init__(self, base: int, size: int) -> None:
        self.base, self.size = base, size
        self._taken: list[tuple[int, int]] = []     # (first address, one past the last), in order

    @property
    def free_bytes(self) -> int:
        return self.size - sum(end - begin for begin, end in self._taken)

    def allocate(self, size: int, alignment: int) -> int:
        """The address of ``size`` bytes, a multiple of ``alignment``. Raises OutOfMemoryError, ValueError."""
        if size < 1 or alignment < 1:
            raise ValueError(f"size and alignment must be 1 or more, not {size} and {alignment}")
        begin = self.base
        for number, (taken, end) in enumerate([*self._taken, (self.base + self.size, 0)]):
            begin = -(-begin // alignment) * alignment
            if begin + size <= taken:
                self._taken.insert(number, (begin, begin + size))
                return begin
            begin = max(begin, end)
        raise OutOfMemoryError(f"no room for {size:,} bytes in the device's memory: {self.free_bytes:,} of "
                               f"{self.size:,} are free; unload a program, or load it with fewer slots")

    def free(self, address: int) -> None:
        """Raises ValueError for an address that `allocate` has not given, or that was given back."""
        for number, (begin, _) in enumerate(self._taken):
            if begin == address:
                del self._taken[number]
                return
        raise ValueError(f"nothing was allocated at {address:#x}")
