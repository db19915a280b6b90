"""External memory with rows, banks and refreshes, as the time model and the simulated Verilog reckon with it.

Bursts are served in the order in which they arrive: reads with their address, writes with their last beat. The data
pins are busy for as long as a burst's bytes take. Where its row is not open they wait until it is, counted from the
burst's arrival or the last use of the bank, so that rows are opened beside the data of bursts before.
`sim/rtl/dram.hpp` is the same in C++.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cores.config import NpuConfig

__all__ = ["PROGRAM_BASE", "TICKS", "Dram", "DramTiming", "data_base"]

#: Of a cycle.
TICKS = 1024

#: Bus address of the program in simulations.
PROGRAM_BASE = 0x1000_0000


def data_base(config: NpuConfig) -> int:
    """Bus address of the data region in simulations: just below a 4 GiB line where addresses reach so far."""
    return 0x8_FFFF_F000 if config.address_width > 36 else 0x4000_0000


@dataclass(frozen=True, kw_only=True)
class DramTiming:
    """A memory's times in ticks (1 / 1024 cycle of the machine's clock), but for ``latency``, in cycles.

    Raises ValueError for a value out of range.
    """

    #: From the address of a read to its first beat, and from a write's last beat to its response, if nothing else is
    #: under way and a row is opened for it.
    latency: int
    #: That the data pins need for a beat.
    beat: int
    #: Of a row over all data pins, and how many banks have one open each.
    row_bytes: int
    banks: int
    #: To close a row of a bank and open another.
    row_miss: int
    #: From one refresh to the next, and how long it takes. It closes all rows.
    refresh_interval: int
    refresh: int
    #: From the end of written data to the beginning of read data.
    turn: int
    #: Reads and writes take turns on the data pins.
    shared: bool = True
    #: Cycles of a beat on the port to memory, in each direction: more than one where it is narrower than a beat. The
    #: buses reckon with them (`ReadBus`, the store engine), not the memory.
    read_pace: int = 1
    write_pace: int = 1

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            least = 1 if name in (
                "latency", "beat", "row_bytes", "banks", "refresh_interval", "read_pace", "write_pace") else 0
            if not least <= value < 1 << 40:
                raise ValueError(f"{name} must be in {least}..{(1 << 40) - 1}, not {value!r}")
        if self.refresh_interval <= self.refresh:
            raise ValueError(f"refresh_interval must be longer than refresh, not {self.refresh_interval!r}")

    @property
    def behind(self) -> int:
        """Cycles from a beat on the data pins until it is at the machine."""
        return max(0, self.latency - -(-(self.row_miss + self.beat) // TICKS))


class Dram:
    """The state of a memory."""

    def __init__(self, timing: DramTiming) -> None:
        self.timing = timing
        self._free = [0, 0]                         # of the data pins, for reads and writes
        self._wrote = False
        self._refreshes = 0
        self._rows = [-1] * timing.banks
        self._used = [0] * timing.banks

    def read(self, cycle: int, address: int, beats: int, beat_bytes: int) -> np.ndarray:
        """A burst whose address is taken in ``cycle``: int64 (beats,), the cycles in which its beats are there."""
        start = self._serve(cycle, address, beats, beat_bytes, write=False)
        due = self._after(start, self.timing.beat * np.arange(1, beats + 1))
        return -(-due // TICKS) + self.timing.behind

    def write(self, cycle: int, address: int, beats: int, beat_bytes: int) -> int:
        """A burst whose last beat is taken in ``cycle``: the cycle of its response."""
        self._serve(cycle, address, beats, beat_bytes, write=True)
        return max(cycle + self.timing.latency, -(-self._free[True] // TICKS))

    def _after(self, start: int, work: Any) -> Any:
        """The ticks (int, or int64 array) at which the pins have done ``work`` since ``start``, refreshes left out."""
        interval, refresh = self.timing.refresh_interval, self.timing.refresh
        useful, done = interval - refresh, start % interval - refresh + work - 1
        return start - start % interval + done // useful * interval + refresh + done % useful + 1

    def _serve(self, cycle: int, address: int, beats: int, beat_bytes: int, *, write: bool) -> int:
        """The tick in which a burst's data begin."""
        timing, arrival = self.timing, cycle * TICKS
        start = max(arrival, self._free[write])
        if timing.shared and self._wrote and not write:
            start = max(start, self._free[write] + timing.turn)
        if start // timing.refresh_interval != self._refreshes:
            self._rows = [-1] * timing.banks
        row, last = address // timing.row_bytes, (address + beats * beat_bytes - 1) // timing.row_bytes
        bank = row % timing.banks
        if self._rows[bank] != row:
            start = max(start, max(arrival, self._used[bank]) + timing.row_miss)
        start += max(0, timing.refresh - start % timing.refresh_interval)
        self._refreshes = start // timing.refresh_interval
        end = self._after(start, beats * timing.beat)
        # What goes on in the next row finds it opened meanwhile, in the next bank.
        for touched in range(row, last + 1):
            self._rows[touched % timing.banks] = touched
            self._used[touched % timing.banks] = end
        self._free[write] = end
        if timing.shared:
            self._free = [end, end]
        self._wrote = write
        return start
