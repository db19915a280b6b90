"""Random programs of the load queue: what they ask of the memory, and what they deliver where."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from cores.arch.axi import MAX_BURST
from cores.arch.instruction import Instruction, encode
from cores.arch.isa import Opcode
from cores.config import NpuConfig

__all__ = ["Delivery", "Load", "LoadStimulus", "Request"]


class Request(NamedTuple):
    """``beats`` beats from beat ``offset`` of the data region, for load number ``load``."""

    offset: int
    beats: int
    load: int


class Delivery(NamedTuple):
    """A beat for load number ``load``: to ``port``, "write" at ``place`` (bank, entry) or a ring, "weights" or "side".

    ``source`` is where it is in memory; None for one of padding, whose bits are ``padding``.
    """

    load: int
    port: str
    place: tuple[int, int] | None
    source: int | None
    padding: int


class Load(NamedTuple):
    """A LOAD_ACT, LOAD_WGT or LOAD_SIDE: its instruction's index and token flags, and its last delivery."""

    index: int
    stores: int
    wait_compute: int
    post_compute: int
    end: int


def _some(rng: np.random.Generator, low: int, high: int) -> int:
    """A whole number in ``low..high``, the ends more often than the others."""
    return int(rng.choice([low, high, rng.integers(low, high + 1), rng.integers(low, high + 1)]))


@dataclass
class LoadStimulus:
    """Call `geometry`, `box`, `weights` and `side`; the lists then hold what to feed and to expect, in order.

    Whatever is not given is random.
    """

    config: NpuConfig
    rng: np.random.Generator
    instructions: list[int] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)

    @property
    def region_beats(self) -> int:
        """Beats of the smallest data region that has all that is asked for."""
        return max((request.offset + request.beats for request in self.requests), default=0)

    def emit(self, opcode: Opcode, **fields: int) -> int:
        """An instruction of which nothing is expected; returns its index."""
        self.instructions.append(int.from_bytes(encode(Instruction(opcode, **fields)), "little"))
        return len(self.instructions) - 1

    def geometry(self, *, cols: int | None = None, stride: int | None = None,
                 pads: tuple[int, int] | None = None) -> None:
        """LOAD_SET; the box after it must fit in the input buffer."""
        rng = self.rng
        cols = cols or int(rng.integers(1, 30))
        left, right = pads or (_some(rng, 0, 15), _some(rng, 0, 15))
        self.fields = {
            "cols": cols, "pad_left": left, "pad_right": right, "stride": stride or int(rng.integers(1, 4)),
            "row_pitch": _some(rng, 0, (1 << 20) - 1), "block_pitch": _some(rng, 0, (1 << 24) - 1),
            "pad_value": int(rng.integers(-128, 128))}
        # Rows and blocks may lie anywhere, over each other too, as long as a box of a few fits.
        room = self.config.input_depth - self._row_entries()
        self.fields["buf_row_pitch"] = int(rng.integers(0, min(4095, room // 32) + 1))
        self.fields["buf_block_pitch"] = int(rng.integers(0, min(16383, room // 8) + 1))
        self.emit(Opcode.LOAD_SET, **self.fields)

    def _place(self, column: int) -> tuple[int, int]:
        """(bank, entry) of a padded column; docs/architecture.md, "Loading" and "Spread words"."""
        banks, stride = self.config.banks, self.fields["stride"]
        if banks == 1:
            return 0, column
        return column // stride % banks, column // (banks * stride) * stride + column % stride

    def _row_entries(self) -> int:
        width = sum(self.fields[name] for name in ("pad_left", "cols", "pad_right"))
        return 1 + max(self._place(column)[1] for column in range(width))

    def _rows(self, offset: int, pitch: int, rows: int, cols: int) -> None:
        for row in range(rows):
            start = offset + row * pitch
            for column in range(0, cols, MAX_BURST):
                self.requests.append(Request(start + column, min(MAX_BURST, cols - column), len(self.loads)))

    def _finish(self, index: int, flags: dict[str, int]) -> None:
        flags = {"stores": 0, "wait_compute": 0, "post_compute": 0} | flags
        self.loads.append(Load(index=index, end=len(self.deliveries), **flags))

    def box(self, *, blocks: int | None = None, rows: int | None = None, pads: tuple[int, int] | None = None,
            beyond: int | None = None, **flags: int) -> None:
        """LOAD_ACT. ``beyond``: its last entry is that many past the end of the input buffer."""
        rng, geometry = self.rng, self.fields
        blocks = blocks or int(rng.integers(1, 5))
        rows = int(rng.integers(0, 6)) if rows is None else rows
        top, bottom = pads or (_some(rng, 0, 5), _some(rng, 0, 5))
        if top + rows + bottom == 0:
            top = 1
        height = top + rows + bottom
        reach = self._row_entries() + (height - 1) * geometry["buf_row_pitch"]
        reach += (blocks - 1) * geometry["buf_block_pitch"]
        spare = self.config.input_depth - reach
        assert spare >= 0, "the box does not fit in the input buffer"
        base = _some(rng, 0, spare) if beyond is None else spare + beyond
        offset = _some(rng, 0, (1 << 28) - 1)
        index = self.emit(Opcode.LOAD_ACT, offset=offset, buf_base=base, blocks=blocks, rows=rows, pad_top=top,
                          pad_bottom=bottom, **flags)
        padding = int.from_bytes(bytes([geometry["pad_value"] & 255]) * self.config.beat_bytes, "little")
        left, cols = geometry["pad_left"], geometry["cols"]
        places = [self._place(column) for column in range(left + cols + geometry["pad_right"])]
        for block in range(blocks):
            memory = offset + block * geometry["block_pitch"]
            self._rows(memory, geometry["row_pitch"], rows, cols)
            for row in range(height):
                entry = base + block * geometry["buf_block_pitch"] + row * geometry["buf_row_pitch"]
                data_row = memory + (row - top) * geometry["row_pitch"] if top <= row < top + rows else None
                for column, (bank, column_entry) in enumerate(places):
                    data = data_row is not None and left <= column < left + cols
                    self.deliveries.append(Delivery(
                        len(self.loads), "write", (bank, entry + column_entry),
                        data_row + column - left if data else None, padding))
        self._finish(index, flags)

    def weights(self, beats: int, **flags: int) -> None:
        """LOAD_WGT."""
        offset = _some(self.rng, 0, (1 << 28) - 1)
        index = self.emit(Opcode.LOAD_WGT, offset=offset, beats=beats, **flags)
        self._rows(offset, 0, 1, beats)
        self.deliveries += [Delivery(len(self.loads), "weights", None, offset + beat, 0) for beat in range(beats)]
        self._finish(index, flags)

    def side(self, *, cols: int, rows: int, **flags: int) -> None:
        """LOAD_SIDE."""
        offset, pitch = _some(self.rng, 0, (1 << 28) - 1), _some(self.rng, 0, (1 << 20) - 1)
        index = self.emit(Opcode.LOAD_SIDE, offset=offset, cols=cols, rows=rows, row_pitch=pitch, **flags)
        self._rows(offset, pitch, rows, cols)
        self.deliveries += [Delivery(len(self.loads), "side", None, offset + row * pitch + column, 0)
                            for row in range(rows) for column in range(cols)]
        self._finish(index, flags)
