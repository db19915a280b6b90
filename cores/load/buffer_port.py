"""Buffer port: entries, their values and their tokens meet at the input buffer's write port."""

from typing import Any

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..buffers.entry_marks import entry_marks
from ..buffers.input_buffer import ENTRY_BITS, BufferWrite
from ..config import NpuConfig
from ..lib.component import Component, record
from .load_path import EntryValue

__all__ = ["BufferPort", "EntryPlace"]


def EntryPlace(config: NpuConfig) -> data.StructLayout:  # noqa: N802 - a layout
    """A write to the banks that are enabled; ``post`` a token when it can be read."""
    return data.StructLayout({"enable": config.banks, "address": ENTRY_BITS, "post": 1})


class BufferPort(Component):
    """Write ``entry`` when its ``value`` is there, ``latency`` cycles later; ports that write more derive from it.

    Values are sign-extended to ``activation_bits``.
    """

    def __init__(self, config: NpuConfig, *, latency: int, ports: dict[str, wiring.Member] | None = None):
        self.config = config
        self.latency = latency
        super().__init__({
            "entry": In(EntryPlace(config)),   # that is to be written
            "value": In(EntryValue(config)),    # of the entry of ``latency`` cycles ago
            **(ports or {}),
            "write": Out(BufferWrite(config)),  # to the input buffer
            "post_compute": Out(1),             # a token for the compute queue
            "busy": Out(1),                     # entries are on their way that are not being written now
            "owed": Out(1),                     # a token is
        })

    def elaborate(self, platform):
        m = Module()
        config, write, value = self.config, self.write, self.value
        entry, on_the_way = self.entry, 0
        occupied = entry.enable.any()       # by the entry that is being written
        for number in range(1, self.latency + 1):
            on_the_way = on_the_way | entry.enable.any()
            before, entry = entry, record(EntryPlace(config), name=f"entry{number}")
            occupied = Signal(name=f"occupied{number}")
            m.d.sync += [entry.eq(before), occupied.eq(before.enable.any())]
        values = [value.data.word_select(number, 8) for number in range(config.write_lanes * config.ic_lanes)]
        m.d.comb += [
            write.enable.eq(entry.enable),
            write.address.eq(entry.address),
            write.data.eq(Cat(Cat(value, value[7].replicate(config.activation_bits - 8)) for value in values)),
            self.post_compute.eq(entry.post),
            self.busy.eq(on_the_way),
        ]
        m.d.comb += [getattr(write, mark.name).eq(value[mark.name]) for mark in entry_marks(config)]
        self._write_others(m, entry, occupied)
        return m

    def _write_others(self, m: Module, entry: Any, occupied: Value) -> None:
        """What else is written, when no ``entry`` is: in a plain port nothing."""
