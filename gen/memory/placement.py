"""Where feature maps lie: in the data region, or in the input buffer."""

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Annotated, ClassVar, Literal

import numpy as np
from msgspec import Meta

from cores.arch.numerics import MAP_PIXELS
from npudriver import layout

__all__ = ["ALIGNMENT", "BufferPlacement", "Destination", "Kept", "Place", "Placement", "RowsPlacement", "Strips",
           "WindowRows", "aligned"]

#: Tensors begin at multiples of this many bytes of the data region, so that bursts seldom cross a 4 KiB line.
ALIGNMENT = 4096

#: In a file, numbers have ranges.
_Dimension = Annotated[int, Meta(ge=1, le=1 << 28)]


@dataclass(frozen=True)
class Destination:
    """Where a STORE goes: from ``offset`` on, its rows and its blocks so far apart, in units of the space."""

    offset: int
    row_pitch: int
    block_pitch: int
    #: Of the input buffer, where each row begins.
    bank: int = 0


@dataclass(frozen=True)
class Placement:
    """Where a feature map lies: (ceil(C / tn), H, W, tn) int8 from beat ``offset`` of the data region.

    With ``signs`` packed bits: (ceil(C / tn), H, ceil(W / 8)) beats of eight pixels each. With ``interleaved``
    (H, W, C) int8, every row beginning a beat; the bytes after a row mean nothing. With ``whole`` it lies in the place
    of that tensor: its blocks are some of that one's.
    """

    space: ClassVar[Literal["memory"]] = "memory"

    offset: Annotated[int, Meta(ge=0, le=1 << 53)]
    shape: tuple[_Dimension, _Dimension, _Dimension]
    signs: bool = False
    interleaved: bool = False
    whole: str | None = None

    @property
    def row_beats(self) -> int:
        """Beats of a row of a block."""
        return layout.row_beats(self.shape[2], self.signs)

    def beats(self, tn: int) -> int:
        return layout.beats(self.shape, tn, signs=self.signs, interleaved=self.interleaved)

    def packed(self, values: np.ndarray, tn: int) -> np.ndarray:
        """An int8 map (C, H, W) as it lies there: uint8 (beats, tn)."""
        return layout.pack(values, tn, interleaved=self.interleaved).reshape(-1, tn)

    def destinations(self, block: int, pixel: int, *, row_step: int = 1,
                     rows_apart: int | None = None) -> tuple[Destination, ...]:
        """Of what is stored from a block's ``pixel`` on, a row of it to every ``row_step``-th row, or ``rows_apart``
        pixels after the one before.
        """
        _, height, width = self.shape
        row, col = divmod(pixel, width)
        start = (block * height + row) * self.row_beats + (col // MAP_PIXELS if self.signs else col)
        return Destination(self.offset + start, self.row_beats * row_step if rows_apart is None else rows_apart,
                           height * self.row_beats),

    def overlaps(self, other: "Placement", tn: int) -> bool:
        return self.offset < other.offset + other.beats(tn) and other.offset < self.offset + self.beats(tn)

    def lies_in(self, whole: "Placement", tn: int) -> bool:
        """Whether its blocks are some of those of ``whole``, with as many pixels, neither being of another form."""
        channels, *size = self.shape
        skipped, rest = divmod(self.offset - whole.offset, prod(size))
        return (whole.whole is None and prod(size) == prod(whole.shape[1:]) and rest == 0 and skipped >= 0
                and skipped * tn + channels <= whole.shape[0]
                and not (self.signs or self.interleaved or whole.signs or whole.interleaved))


@dataclass(frozen=True)
class Strips:
    """The form of a feature map in the input buffer: strips of its pixels, each one long row of ``blocks`` blocks.

    They begin at the pixels ``starts``, the first at 0, and the last ends before ``pixels``. They are in ``slots``
    places in turn: with as many as there are strips, all of the tensor is there at once.
    """

    parts: ClassVar[str] = "strips"

    blocks: int
    starts: tuple[int, ...]
    pixels: int
    slots: int
    #: Of the input buffer: neighbouring pixels are in different ones.
    banks: int

    @cached_property
    def pitches(self) -> tuple[int, ...]:
        """Entries of a block of each strip."""
        return tuple(-(-(end - start) // self.banks) for start, end in pairwise((*self.starts, self.pixels)))

    @property
    def slot_entries(self) -> int:
        return self.blocks * max(self.pitches)

    @property
    def entries(self) -> int:
        return self.slots * self.slot_entries

    def number(self, pixel: int) -> int:
        """That of the strip that a pixel is in."""
        return bisect_right(self.starts, pixel) - 1

    def at(self, offset: int) -> "BufferPlacement":
        """Its place, from an entry on."""
        return BufferPlacement(offset, self)


@dataclass(frozen=True)
class WindowRows:
    """The form of a feature map in the input buffer whose rows lie as windows read them, with room for padding.

    Each block has room for ``depth`` rows of ``row_pitch`` entries, in which the rows of the map take turns. A row
    begins at column ``left``.
    """

    parts: ClassVar[str] = "rows"

    blocks: int
    #: Of the map.
    height: int
    width: int
    left: int
    row_pitch: int
    depth: int
    #: (first row of the map, number of rows, the row of the room where the first of them lies), by the first row. Every
    #: row of the map is in one of them, or in two that follow each other.
    runs: tuple[tuple[int, int, int], ...]
    banks: int

    @property
    def block_pitch(self) -> int:
        return self.depth * self.row_pitch

    @property
    def entries(self) -> int:
        return self.blocks * self.block_pitch

    @cached_property
    def _firsts(self) -> tuple[int, ...]:
        return tuple(first for first, _, _ in self.runs)

    def runs_of(self, row: int) -> list[tuple[int, int, int]]:
        """Those that have a row of the map."""
        end = bisect_right(self._firsts, row)
        return [run for run in self.runs[max(end - 2, 0):end] if row < run[0] + run[1]]

    def at(self, offset: int) -> "RowsPlacement":
        """Its place, from an entry on."""
        return RowsPlacement(offset, self)


@dataclass(frozen=True)
class BufferPlacement:
    """Where a feature map lies that stays in the input buffer in strips: from entry ``offset`` on."""

    space: ClassVar[Literal["buffer"]] = "buffer"
    signs: ClassVar[bool] = False
    whole: ClassVar[None] = None

    offset: int
    strips: Strips

    def destinations(self, block: int, pixel: int, *, row_step: int = 1,
                     rows_apart: int | None = None) -> tuple[Destination, ...]:
        """As of a `Placement`; the rows that are stored follow each other as one."""
        number = self.strips.number(pixel)
        pitch, skipped = self.strips.pitches[number], pixel - self.strips.starts[number]
        return Destination(self._slot(number) + block * pitch + skipped // self.strips.banks, 0, pitch),

    def part(self, pixel: int, blocks: range) -> tuple[int, int]:
        """First entry and number of entries of some blocks of the strip that begins at ``pixel``.

        What a slot has beyond its strip is its last block's.
        """
        number = self.strips.number(pixel)
        slot, pitch = self._slot(number), self.strips.pitches[number]
        first, end = slot + blocks.start * pitch, slot + blocks.stop * pitch
        return first, (end if blocks.stop < self.strips.blocks else slot + self.strips.slot_entries) - first

    def _slot(self, number: int) -> int:
        return self.offset + number % self.strips.slots * self.strips.slot_entries


@dataclass(frozen=True)
class RowsPlacement:
    """Where a feature map lies that stays in the input buffer in rows: from entry ``offset`` on."""

    space: ClassVar[Literal["buffer"]] = "buffer"
    signs: ClassVar[bool] = False
    whole: ClassVar[None] = None

    offset: int
    rows: WindowRows

    def destinations(self, block: int, pixel: int, *, row_step: int = 1,
                     rows_apart: int | None = None) -> tuple[Destination, ...]:
        """As of a `Placement`, of whole rows: two where they are needed in two places."""
        rows = self.rows
        entry, bank = divmod(rows.left, rows.banks)
        row = pixel // rows.width
        return tuple(
            Destination(self.offset + block * rows.block_pitch + (place + row - first) * rows.row_pitch + entry,
                        rows.row_pitch, rows.block_pitch, bank)
            for first, _, place in rows.runs_of(row))


def aligned(beats: int, tn: int) -> int:
    """``beats`` of ``tn`` bytes, and those left free after them."""
    step = ALIGNMENT // tn
    return -(-beats // step) * step


#: The forms of what stays in the input buffer.
Kept = Strips | WindowRows
Place = Placement | BufferPlacement | RowsPlacement
