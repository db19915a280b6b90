"""Input buffer: activations of the tiles at hand."""

from amaranth.hdl import Module, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .config import NpuConfig
from .isa import LAYOUTS

__all__ = ["ENTRY_BITS", "InputBuffer", "buffer_address_bits"]

#: Bits in which entries are computed: a legal entry plus the widest field of an instruction that names entries or moves
#: from one to another. So what is past the end is seen before it wraps.
ENTRY_BITS = 1 + max(field.bits for fields in LAYOUTS.values() for field in fields if field.name.startswith("buf_"))


def buffer_address_bits(config: NpuConfig) -> int:
    """Bits of an entry's number in a bank."""
    return (config.input_depth - 1).bit_length()


class InputBuffer(wiring.Component):
    """``pixel_lanes`` banks of ``input_depth`` beats, each with one write and one read port.

    Latency 1, one beat a bank a cycle. Which column is in which bank: docs/architecture.md, "Loading". A beat written
    in the cycle in which it is read is read as it was before.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        banks = config.pixel_lanes
        address = unsigned(buffer_address_bits(config))
        super().__init__({
            "write_enable": In(banks),
            "write_address": In(address),
            "write_data": In(config.beat_bits),
            "read_address": In(data.ArrayLayout(address, banks)),
            "read_data": Out(data.ArrayLayout(config.beat_bits, banks)),
        })

    def elaborate(self, platform):
        m = Module()
        for bank in range(self.config.pixel_lanes):
            m.submodules[f"bank{bank}"] = memory = Memory(
                shape=unsigned(self.config.beat_bits), depth=self.config.input_depth, init=[])
            write, read = memory.write_port(), memory.read_port()
            m.d.comb += [
                write.en.eq(self.write_enable[bank]),
                write.addr.eq(self.write_address),
                write.data.eq(self.write_data),
                read.en.eq(1),
                read.addr.eq(self.read_address[bank]),
                self.read_data[bank].eq(read.data),
            ]
        return m
