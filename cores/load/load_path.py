"""How the pixels of a box come into the input buffer: what the load engine knows of a path."""

from typing import Any, NamedTuple

from amaranth.hdl import Const, Module, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..arch.instruction_layout import instruction_layout, queue_layout
from ..arch.isa import Opcode, Queue
from ..buffers.entry_marks import entry_marks
from ..buffers.input_buffer import kept_port
from ..config import NpuConfig
from ..lib.component import Component
from ..lib.hardware import hardware_of
from ..timing import load_paths
from ..timing.load_path import LoadPathTiming
from .entry_placer import PlacedPixels
from .load_context import EXTENT_BITS
from .load_dispatch import LoadDispatch, Setting
from .padded_walk import Box, PaddedWalk

__all__ = ["BoxPixel", "EntryValue", "LoadPath", "PlacedBox", "path_of"]


def BoxPixel(config: NpuConfig) -> data.StructLayout:  # noqa: N802 - a layout
    """The pixel at hand, ``beat`` if it ``is_data``; ``valid`` when it sets out. What it is the last of."""
    return data.StructLayout({
        "valid": 1, "beat": config.beat_bits, "is_data": 1, "row_end": 1, "block_end": 1})


def EntryValue(config: NpuConfig) -> data.StructLayout:  # noqa: N802 - a layout
    """What goes to neighbouring banks at once: int8 values, and by name the marks of `BufferWrite`."""
    return data.StructLayout({
        "data": config.write_lanes * config.beat_bits,
        **{mark.name: mark.bits(config) for mark in entry_marks(config)},
    })


class PlacedBox(NamedTuple):
    """The box whose entries are being placed. ``begin``: what is placed from the next cycle on is of another box, whose
    first entry is ``base``. ``load``: its instruction. ``post``: a token comes with the entry that is placed now, if
    the path sees to the tokens of its boxes.
    """

    begin: Value
    base: Value
    load: Value
    post: Value | int


class LoadPath(LoadPathTiming, Component):
    """Brings the pixels of a box, data or padding, to the input buffer.

    ``setting`` shows the path the instructions that say how. From when it is ``settled`` on, a row has ``width``
    pixels, of which the first ``left`` are padding; they may ``enter`` while there is ``room``. ``pixel`` is the one at
    hand. The ``value`` of an entry comes `LATENCY` cycles after it set out; ``placed`` asks for its place one cycle
    after it set out. A ``kept`` beat goes in front, and is ``value`` after as many cycles.

    A path that holds pixels for more than a cycle says when it is ``idle`` and ``drained``, keeps boxes that are under
    way, and overrides what follows. ``outer``: its ports that are those of the load engine's writer, too.
    """

    #: Whether tokens of its boxes come with their last entries (`PlacedBox.post`), not with their last pixels.
    POSTS = False
    #: Whether it is at work when it has no room.
    WORKS_WHEN_FULL = False

    def __init__(self, config: NpuConfig, *, outer: dict[str, wiring.Member] | None = None,
                 ports: dict[str, wiring.Member] | None = None):
        self.config = config
        self.outer = outer or {}
        super().__init__({
            "setting": In(Setting),               # an instruction that sets something is taken
            "word": In(queue_layout(Queue.LOAD)),  # that instruction
            "extent": In(EXTENT_BITS),            # pixels of a row with padding, if it is a LOAD_SET
            "settled": Out(1),                    # what it sets is there
            "geometry": In(instruction_layout(Opcode.LOAD_SET)),  # the latest LOAD_SET
            "left": Out(instruction_layout(Opcode.LOAD_SET).members["pad_left"]),  # pixels of padding in front of a row
            "width": Out(Box.members["width"]),   # pixels of a row in all
            "room": Out(1),                       # a pixel may enter
            "enter": In(BoxPixel(config)),        # the pixel at hand
            "pixel": Out(config.beat_bits),       # its values, padding or data
            "placed": Out(PlacedPixels(config)),  # entries that set out a cycle ago and want a place
            "value": Out(EntryValue(config)),     # of the entries that set out `LATENCY` cycles ago
            **kept_port(config, In),              # a beat of a local STORE, which goes first
            **self.outer,
            **(ports or {}),
        })

    def supply(self, m: Module, engine: Any, requester: Any, writer: Any) -> None:
        """In `LoadEngine`: what ``outer`` takes, made of the instructions that the ``requester`` hands on."""

    def is_idle(self) -> Value:
        """No entry is on its way to its place."""
        return Const(1)

    def is_drained(self) -> Value | int:
        """No entry has yet to set out."""
        return 1

    def box(self, dispatch: LoadDispatch, index: Value) -> PlacedBox:
        """The box that is being placed; ``index``: the load of the pixel that entered a cycle ago."""
        return PlacedBox(dispatch.box_begins, dispatch.base, index, 0)

    def take_boxes(self, m: Module, dispatch: LoadDispatch, walk: PaddedWalk, *, entry: Any, tiled: Value) -> None:
        """The boxes of loads go to the ``walk``, and to what the path keeps of them. ``entry``: the instruction, as in
        the queue; ``tiled``: LOAD_ACTs do not go this way.
        """
        wiring.connect(m, dispatch.boxes, walk.boxes)


def path_of(config: NpuConfig) -> type[LoadPath]:
    """The hardware of that of a machine; `cores.timing.load_paths` registers them."""
    path = load_paths.path_of(config)
    return hardware_of(path, path.HARDWARE, LoadPath)
