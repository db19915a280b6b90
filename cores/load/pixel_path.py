"""Pixel path: what a box's pixels are, on their way into the input buffer."""

from amaranth.hdl import Module, Mux
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..arch.instruction_layout import instruction_layout, queue_layout
from ..arch.isa import Opcode, Queue
from ..buffers.input_buffer import KeptBeat
from ..config import NpuConfig
from ..lib.component import Component
from .entry_placer import PlacedPixels
from .load_context import EXTENT_BITS
from .load_dispatch import Setting
from .padded_walk import Box

__all__ = ["BoxPixel", "EntryValue", "PixelPath", "path_ports"]


def BoxPixel(config: NpuConfig) -> data.StructLayout:  # noqa: N802 - a layout
    """The pixel at hand, ``beat`` if it ``is_data``; ``valid`` when it sets out. What it is the last of."""
    return data.StructLayout({
        "valid": 1, "beat": config.beat_bits, "is_data": 1, "row_end": 1, "block_end": 1})


def EntryValue(config: NpuConfig) -> data.StructLayout:  # noqa: N802 - a layout
    """What goes to neighbouring banks at once: int8 values, and ``bytes`` and ``zero`` of `BufferWrite`."""
    return data.StructLayout({
        "data": config.write_lanes * config.beat_bits,
        **({"bytes": config.beat_bytes} if config.gather else {}),
        **({"zero": 2 * config.write_lanes} if config.binary_rows else {}),
    })


def path_ports(config: NpuConfig) -> dict[str, wiring.Member]:
    """Ports of `PixelPath` and of `GatheredPath`, which takes its place."""
    return {
        "setting": In(Setting),               # an instruction that sets something is taken
        "word": In(queue_layout(Queue.LOAD)),  # that instruction
        "extent": In(EXTENT_BITS),            # pixels of a row with padding, if it is a LOAD_SET
        "settled": Out(1),                    # what it sets is there
        "geometry": In(instruction_layout(Opcode.LOAD_SET)),  # the latest LOAD_SET
        "left": Out(instruction_layout(Opcode.LOAD_SET).members["pad_left"]),  # pixels of padding in front of a row
        "width": Out(Box.members["width"]),   # pixels of a row in all
        "room": Out(1),                       # a pixel may enter
        "enter": In(BoxPixel(config)),   # the pixel at hand
        "pixel": Out(config.beat_bits),       # its values, padding or data
        "placed": Out(PlacedPixels(config)),  # entries that set out a cycle ago and want a place
        "value": Out(EntryValue(config)),     # of the entries that set out `LATENCY` cycles ago
        **({"kept": In(KeptBeat(config))} if config.local_store else {}),  # a beat of a local STORE, which goes first
    }


class PixelPath(Component):
    """Bring the pixels of a box, data or padding, to the input buffer as they are.

    ``setting`` shows it the instructions that say how; from when it is ``settled`` on, a row has ``width`` pixels, of
    which ``left`` are padding in front; they may ``enter`` while there is ``room``. The ``value`` of an entry comes
    `LATENCY` cycles after it set out, ``placed`` asks for its place one cycle after. ``pixel`` is the one at hand. A
    ``kept`` beat goes in front and is ``value`` as long after.

    Latency 1, a pixel a cycle.
    """

    LATENCY = 1

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__(path_ports(config))

    def elaborate(self, platform):
        m = Module()
        config, geometry, enter = self.config, self.geometry, self.enter
        padding = geometry.pad_value.as_unsigned().replicate(config.beat_bytes)
        m.d.comb += [
            self.settled.eq(1),
            self.left.eq(geometry.pad_left),
            self.room.eq(1),
            self.pixel.eq(Mux(enter.is_data, enter.beat, padding)),
            self.placed.next_entry.eq(1),
        ]
        m.d.sync += [
            self.value.data.eq(self.pixel),
            self.placed.lanes.eq(enter.valid),
            self.placed.row_end.eq(enter.row_end),
            self.placed.block_end.eq(enter.block_end),
        ]
        with m.If(self.setting.load_set):
            m.d.sync += self.width.eq(self.extent)
        if config.local_store:
            with m.If(self.kept.enable.any()):
                m.d.comb += self.room.eq(0)
                m.d.sync += self.value.data.eq(self.kept.payload)
        return m
