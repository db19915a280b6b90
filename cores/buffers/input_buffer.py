"""Input buffer: activations of the tiles at hand."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..arch.isa import LAYOUTS
from ..config import NpuConfig
from ..lib.component import Component
from ..timing.buffers import InputBufferTiming

__all__ = ["ENTRY_BITS", "BankShape", "BufferWrite", "InputBuffer", "KeptBeat", "buffer_address_bits"]

#: Bits in which entries are computed: a legal entry plus the widest field of an instruction that names entries or moves
#: from one to another. So what is past the end is seen before it wraps.
ENTRY_BITS = 1 + max(field.bits for fields in LAYOUTS.values() for field in fields if field.name.startswith("buf_"))


def buffer_address_bits(config: NpuConfig) -> int:
    """Bits of an entry's number in a bank."""
    return (config.input_depth - 1).bit_length()


def BankShape(config: NpuConfig) -> range:  # noqa: N802 - a shape
    """Number of a bank; at least a bit, as Verilog has no vectors without any."""
    return range(max(2, config.banks))


def BufferWrite(config: NpuConfig) -> wiring.Signature:  # noqa: N802 - a signature
    """A write of ``config.write_lanes`` neighbouring banks at the same entry; bank b takes beat b % write_lanes.

    ``bytes`` are those of the entry that change (with ``gather``). With the first byte of each of its halves goes that
    one's flag: ``zero``, two for each beat (with ``binary_rows``).
    """
    members = {
        "enable": Out(config.banks),                  # banks that take their beat
        "address": Out(buffer_address_bits(config)),  # entry, the same in all of them
        "data": Out(config.write_lanes * config.entry_bits),  # bank b takes beat b % write_lanes
    }
    if config.gather:
        members["bytes"] = Out(config.beat_bytes)
    if config.binary_rows:
        members["zero"] = Out(2 * config.write_lanes)
    return wiring.Signature(members)


def KeptBeat(config: NpuConfig) -> data.StructLayout:  # noqa: N802 - a layout
    """A beat of a local STORE on its way into the bank that is enabled; none is 0."""
    return data.StructLayout({
        "enable": config.banks, "address": buffer_address_bits(config), "payload": config.beat_bits,
    })


class InputBuffer(InputBufferTiming, Component):
    """``config.banks`` banks of ``input_depth`` entries, each with one write and one read port.

    One entry a bank a cycle. Which column is in which bank: docs/architecture.md, "Loading". One written
    in the cycle in which it is read is read as it was before.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        banks = config.banks
        address = unsigned(buffer_address_bits(config))
        members = {
            "write": In(BufferWrite(config)),  # entries to be written
            "read_address": In(data.ArrayLayout(address, banks)),  # entry of each bank
            "read_data": Out(data.ArrayLayout(config.entry_bits, banks)),  # entries, `LATENCY` after their addresses
        }
        if config.binary_rows:
            members["read_zero"] = Out(data.ArrayLayout(2, banks))  # flags of their halves
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        config, bits, lanes = self.config, self.config.entry_bits, self.config.ic_lanes
        # A flag is the ninth bit of its half's first byte, so that it needs no memory of its own: block RAM has nine
        # bits a byte, if all of them have.
        lane = 9 if config.binary_rows else config.activation_bits
        for bank in range(config.banks):
            memory: Memory
            m.submodules[f"bank{bank}"] = memory = Memory(
                shape=unsigned(lane * lanes), depth=config.input_depth, init=[])
            write, read = memory.write_port(granularity=lane if config.gather else None), memory.read_port()
            number = bank % config.write_lanes
            enable, written = self.write.enable[bank], self.write.data[number * bits:(number + 1) * bits]
            stored = read.data
            for cycle in range(1, self.LATENCY):
                following = Signal.like(stored, name=f"stored{bank}_{cycle}", reset_less=True)
                m.d.sync += following.eq(stored)
                stored = following
            found = stored
            if config.gather:
                enable = Mux(enable, self.write.bytes, 0)
            if config.binary_rows:
                flags = dict(zip((0, config.sign_bytes), self.write.zero.word_select(number, 2), strict=True))
                written = Cat(Cat(written.word_select(byte, 8), flags.get(byte, Const(0, 1))) for byte in range(lanes))
                found = Cat(stored[9 * byte:9 * byte + 8] for byte in range(lanes))
                m.d.comb += self.read_zero[bank].eq(Cat(stored[9 * byte + 8] for byte in flags))
            m.d.comb += [
                write.en.eq(enable),
                write.addr.eq(self.write.address),
                write.data.eq(written),
                read.en.eq(1),
                read.addr.eq(self.read_address[bank]),
                self.read_data[bank].eq(found),
            ]
        return m
