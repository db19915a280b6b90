"""Input buffer: activations of the tiles at hand."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Flow, In, Out

from ..arch.isa import LAYOUTS
from ..config import NpuConfig, part_of
from ..lib.component import Component
from ..timing.buffers import InputBufferTiming
from .entry_marks import entry_marks

__all__ = ["ENTRY_BITS", "BankShape", "BufferWrite", "InputBuffer", "LocalBeat", "buffer_address_bits", "kept_port"]

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

    By name, the marks that go with it (`entry_marks`).
    """
    return wiring.Signature({
        "enable": Out(config.banks),                  # banks that take their beat
        "address": Out(buffer_address_bits(config)),  # entry, the same in all of them
        "data": Out(config.write_lanes * config.entry_bits),  # bank b takes beat b % write_lanes
        **{mark.name: Out(mark.bits(config)) for mark in entry_marks(config)},  # what units note of a beat
    })


def LocalBeat(config: NpuConfig) -> data.StructLayout:  # noqa: N802 - a layout
    """A beat of a local STORE on its way into the bank that is enabled; none is 0."""
    return data.StructLayout({
        "enable": config.banks, "address": buffer_address_bits(config), "payload": config.beat_bits,
    })


def kept_port(config: NpuConfig, flow: Flow) -> dict[str, wiring.Member]:
    """``kept``, the way of beats of local STOREs from the store engine to the input buffer, in machines that have it.

    Nothing holds such a beat up: it goes before all else that is to be written.
    """
    return {"kept": flow(LocalBeat(config))} if config.local_store else {}


class _Values:
    """What a bank keeps of an entry: its values."""

    def __init__(self, config: NpuConfig):
        self.config = config
        self.value_bits = config.activation_bits

    def ports(self) -> dict[str, wiring.Member]:
        """Of an `InputBuffer`, beside those that all have."""
        return {}

    def stored(self, written: Value, write: Any, number: int) -> Value:
        """What is stored of ``written``, the beat of that ``number`` of a `BufferWrite`."""
        return written

    def found(self, m: Module, stored: Value, buffer: "InputBuffer", bank: int) -> Value:
        """The entry of what was stored in a bank."""
        return stored


class _FlaggedValues(_Values):
    """And with them whether its halves count as zero.

    A flag is the ninth bit of its half's first byte, so that it needs no memory of its own: block RAM has nine bits a
    byte, if all of them have.
    """

    def __init__(self, config: NpuConfig):
        super().__init__(config)
        self.value_bits = 9
        self.flagged = (0, config.sign_bytes)   # bytes

    def ports(self) -> dict[str, wiring.Member]:
        return {"read_zero": Out(data.ArrayLayout(2, self.config.banks))}  # flags of their halves

    def stored(self, written: Value, write: Any, number: int) -> Value:
        flags = dict(zip(self.flagged, write.zero.word_select(number, 2), strict=True))
        return Cat(Cat(written.word_select(byte, 8), flags.get(byte, Const(0, 1)))
                   for byte in range(self.config.ic_lanes))

    def found(self, m: Module, stored: Value, buffer: "InputBuffer", bank: int) -> Value:
        m.d.comb += buffer.read_zero[bank].eq(Cat(stored[9 * byte + 8] for byte in self.flagged))
        return Cat(stored[9 * byte:9 * byte + 8] for byte in range(self.config.ic_lanes))


class InputBuffer(InputBufferTiming, Component):
    """``config.banks`` banks of ``input_depth`` entries, each with one write and one read port.

    One entry a bank a cycle. Which column is in which bank: docs/architecture.md, "Loading". One written
    in the cycle in which it is read is read as it was before.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        self._values = part_of(config, _Values, {"binary_rows": _FlaggedValues})(config)
        banks = config.banks
        address = unsigned(buffer_address_bits(config))
        super().__init__({
            "write": In(BufferWrite(config)),  # entries to be written
            "read_address": In(data.ArrayLayout(address, banks)),  # entry of each bank
            "read_data": Out(data.ArrayLayout(config.entry_bits, banks)),  # entries, `LATENCY` after their addresses
            **self._values.ports(),
        })

    def elaborate(self, platform):
        m = Module()
        config, bits = self.config, self.config.entry_bits
        values, value_bits = self._values, self._values.value_bits
        # Gathered rows change some bytes of an entry: each of them has an enable of its own.
        granularity = value_bits if config.gather else None
        for bank in range(config.banks):
            memory: Memory
            m.submodules[f"bank{bank}"] = memory = Memory(
                shape=unsigned(value_bits * config.ic_lanes), depth=config.input_depth, init=[])
            number = bank % config.write_lanes
            enable, written = self.write.enable[bank], self.write.data[number * bits:(number + 1) * bits]
            write, read = memory.write_port(granularity=granularity), memory.read_port()
            stored = read.data
            for cycle in range(1, self.LATENCY):
                following = Signal.like(stored, name=f"stored{bank}_{cycle}", reset_less=True)
                m.d.sync += following.eq(stored)
                stored = following
            if granularity:
                enable = Mux(enable, self.write.bytes, 0)
            found = values.found(m, stored, self, bank)
            m.d.comb += [
                write.en.eq(enable),
                write.addr.eq(self.write.address),
                write.data.eq(values.stored(written, self.write, number)),
                read.en.eq(1),
                read.addr.eq(self.read_address[bank]),
                self.read_data[bank].eq(found),
            ]
        return m
