"""Input buffer: activations of the tiles at hand."""

from amaranth.hdl import Cat, Module, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .config import NpuConfig
from .isa import LAYOUTS

__all__ = ["ENTRY_BITS", "BankShape", "InputBuffer", "buffer_address_bits"]

#: Bits in which entries are computed: a legal entry plus the widest field of an instruction that names entries or moves
#: from one to another. So what is past the end is seen before it wraps.
ENTRY_BITS = 1 + max(field.bits for fields in LAYOUTS.values() for field in fields if field.name.startswith("buf_"))


def buffer_address_bits(config: NpuConfig) -> int:
    """Bits of an entry's number in a bank."""
    return (config.input_depth - 1).bit_length()


def BankShape(config: NpuConfig) -> range:  # noqa: N802 - a shape
    """Number of a bank; at least a bit, as Verilog has no vectors without any."""
    return range(max(2, config.banks))


class InputBuffer(wiring.Component):
    """``config.banks`` banks of ``input_depth`` beats, each with one write and one read port.

    Latency 1, one beat a bank a cycle. Which column is in which bank: docs/architecture.md, "Loading". A beat written
    in the cycle in which it is read is read as it was before.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        banks = config.banks
        address = unsigned(buffer_address_bits(config))
        super().__init__({
            "write_enable": In(banks),
            "write_address": In(address),
            "write_data": In(config.beat_bits),
            **({"write_zero": In(1)} if config.binary_rows else {}),
            "read_address": In(data.ArrayLayout(address, banks)),
            "read_data": Out(data.ArrayLayout(config.beat_bits, banks)),
            **({"read_zero": Out(banks)} if config.binary_rows else {}),
        })

    def elaborate(self, platform):
        m = Module()
        bits = self.config.beat_bits + bool(self.config.binary_rows)
        for bank in range(self.config.banks):
            m.submodules[f"bank{bank}"] = memory = Memory(
                shape=unsigned(bits), depth=self.config.input_depth, init=[])
            write, read = memory.write_port(), memory.read_port()
            m.d.comb += [
                write.en.eq(self.write_enable[bank]),
                write.addr.eq(self.write_address),
                write.data.eq(Cat(self.write_data, self.write_zero) if self.config.binary_rows else self.write_data),
                read.en.eq(1),
                read.addr.eq(self.read_address[bank]),
                self.read_data[bank].eq(read.data),
            ]
            if self.config.binary_rows:
                m.d.comb += self.read_zero[bank].eq(read.data[-1])
        return m
