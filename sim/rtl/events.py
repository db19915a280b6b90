"""What the observed Verilog has done: events of a run, unpacked."""

from dataclasses import dataclass

import numpy as np
from amaranth.lib import data

from cores.config import NpuConfig

__all__ = ["Events"]


@dataclass(frozen=True, eq=False)
class Events:
    """Cycles with events. ``cycles``: int64 (n,); ``words``: uint32 (n, words of ``layout``)."""

    layout: data.StructLayout
    cycles: np.ndarray
    words: np.ndarray

    def of(self, name: str, *, count: int = 1, signed: bool = False) -> np.ndarray:
        """Field ``name`` as ``count`` parts of the same width: int64 (n, count)."""
        place = self.layout[name]
        width = place.width
        first, last = place.offset // 8, -(-(place.offset + width) // 8)
        octets = np.ascontiguousarray(self.words).view(np.uint8)[:, first:last]
        bits = np.unpackbits(octets, axis=1, bitorder="little")[:, place.offset - 8 * first:][:, :width]
        parts = bits.reshape(len(bits), count, width // count).astype(np.int64)
        each = parts.shape[-1]
        values = parts @ (np.int64(1) << np.arange(each))
        return values - (parts[..., -1] << each) if signed else values

    def where(self, name: str) -> "Events":
        """Those with a bit of field ``name`` set."""
        some = self.of(name, count=self.layout[name].width).any(axis=1)
        return Events(self.layout, self.cycles[some], self.words[some])

    # -- as the functional simulator records them: places and values, in order ---------------------------------------

    def entries(self, config: NpuConfig) -> tuple[np.ndarray, np.ndarray]:
        """Lanes of the input buffer's entries."""
        events, lanes = self.where("entry_enable"), config.ic_lanes
        places, written = events._entry_places(config)
        count = config.write_lanes
        values = events.of("entry_data", count=count * lanes, signed=True).reshape(-1, count, lanes)
        taken = events.of("entry_bytes", count=config.beat_bytes).astype(bool)
        number = np.arange(config.banks) % count
        where = written[:, :, None] & taken[:, None, :]
        keys = places[:, :, None] * lanes + np.arange(lanes)
        return keys[where], values[:, number][where]

    def flags(self, config: NpuConfig) -> tuple[np.ndarray, np.ndarray]:
        """The flags of those halves of entries whose first byte is written.

        Returns the numbers, two an entry, and the flags.
        """
        events = self.where("entry_enable")
        places, written = events._entry_places(config)
        taken = events.of("entry_bytes", count=config.beat_bytes).astype(bool)[:, [0, config.sign_bytes]]
        values = events.of("entry_zero", count=2 * config.write_lanes).reshape(-1, config.write_lanes, 2)
        where = written[:, :, None] & taken[:, None, :]
        keys = places[:, :, None] * 2 + np.arange(2)
        return keys[where], values[:, np.arange(config.banks) % config.write_lanes][where]

    def _entry_places(self, config: NpuConfig) -> tuple[np.ndarray, np.ndarray]:
        """Places of the entries of all banks, and which of them are written: (n, banks)."""
        written = self.of("entry_enable", count=config.banks).astype(bool)
        return self.of("entry_address") + np.arange(config.banks) * config.input_depth, written

    def stream(self, name: str, lanes: int, *, signed: bool) -> tuple[np.ndarray, np.ndarray]:
        """What went through a stream of ``lanes`` values."""
        values = self.where(f"{name}_enable").of(f"{name}_data", count=lanes, signed=signed)
        return np.arange(values.size), values.ravel()

    def beats(self, config: NpuConfig, base: int) -> tuple[np.ndarray, np.ndarray]:
        """Bytes of memory, from address ``base`` on: addresses and data are each in order."""
        size = config.beat_bytes
        asked, given = self.where("address_enable"), self.where("beat_enable")
        values = given.of("beat_data", count=size, signed=True)
        strobes = given.of("beat_strobe", count=size).astype(bool)
        starts, lengths = asked.of("address").ravel() - base, asked.of("length").ravel() + 1
        first = np.repeat(starts, lengths)
        within = np.arange(len(first)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        places = (first + within * size)[:len(values), None] + np.arange(size)
        return places[strobes], values[strobes]

    def handovers(self) -> np.ndarray:
        """Cycles in which a COMPUTE gives the store queue a token."""
        return self.where("post_enable").cycles

    def sums(self, config: NpuConfig, units: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Totals that are written to the accumulators: cycles, places and values, by time."""
        lanes, bits = config.acc_lanes, (config.acc_depth - 1).bit_length()
        found = []
        for unit in range(units):
            parts = [name.removesuffix("_enable") for name, _ in self.layout
                     if name.startswith(f"sums{unit}_") and name.endswith("_enable")]
            each = lanes // len(parts)
            for number, part in enumerate(parts):
                events = self.where(f"{part}_enable")
                address = events.of(f"{part}_address")
                word = (address >> bits) * config.acc_depth + (address & (1 << bits) - 1)
                places = word * lanes + number * each + np.arange(each)
                values = events.of(f"{part}_data", count=each, signed=True)
                found.append((np.repeat(events.cycles, each), places.ravel(), values.ravel()))
        cycles, places, values = (np.concatenate(part) for part in zip(*found, strict=True))
        order = np.argsort(cycles, kind="stable")
        return cycles[order], places[order], values[order]
