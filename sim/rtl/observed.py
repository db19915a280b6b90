"""The machine with ports that show what it writes inside: for simulation, never for hardware."""

from collections.abc import Mapping

from amaranth.hdl import Cat, Const, Module, Value
from amaranth.lib import data
from amaranth.lib.wiring import Out, connect, flipped

from cores.config import NpuConfig
from cores.emit import emit_component
from cores.lib.component import Component
from cores.npu import Npu

__all__ = ["ObservedNpu", "observed_verilog", "watched_words"]


class ObservedNpu(Component):
    """An `Npu` and what happens inside of it: ``watch``, in cycles with ``watch_valid``.

    ``watch`` is a structure, `layout`, of the events of a cycle. It is padded to whole words of 32 bits and at least
    three of them, so that it is an array of words for Verilator in any configuration.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.npu = Npu(config)
        self._events = _events(self.npu)
        self.layout = data.StructLayout({name: len(value) for name, value in self._events.items()})
        super().__init__({
            **self.npu.signature.members,
            "watch": Out(32 * watched_words(self.layout)),  # events of this cycle
            "watch_valid": Out(1),                          # there are any
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.npu = self.npu
        for name, member in self.npu.signature.members.items():
            inner, outer = getattr(self.npu, name), getattr(self, name)
            if member.is_signature:
                connect(m, flipped(outer), inner)
            else:
                m.d.comb += outer.eq(inner)
        m.d.comb += [
            self.watch.eq(Cat(self._events.values())),
            self.watch_valid.eq(Cat(value.any() for name, value in self._events.items()
                                    if name.endswith("enable")).any()),
        ]
        return m


def _events(npu: Npu) -> Mapping[str, Value]:
    """Name -> value; one whose name ends in ``enable`` says that the others of its kind mean something."""
    load, compute, bus = npu.load, npu.compute, npu.m_axi
    entry = load.write
    events: dict[str, Value] = {
        "entry_enable": entry.enable, "entry_address": entry.address, "entry_data": entry.data,
        "entry_bytes": getattr(entry, "bytes", Const(-1, npu.config.beat_bytes)),
        "entry_zero": getattr(entry, "zero", Const(0, 2 * npu.config.write_lanes)),
        "pool_enable": compute.pooled.valid & compute.pooled.ready, "pool_data": Value.cast(compute.pooled.payload),
        "post_enable": compute.post_store,
        "address_enable": bus.awvalid & bus.awready, "address": bus.awaddr, "length": bus.awlen,
        "beat_enable": bus.wvalid & bus.wready, "beat_data": bus.wdata, "beat_strobe": bus.wstrb,
    }
    for name, ring in (("weight", load.weights), ("side", load.side)):
        events |= {f"{name}_enable": ring.valid & ring.ready, f"{name}_data": Value.cast(ring.payload)}
    for unit, accumulators in enumerate(compute.accumulators):
        for number, part in enumerate(accumulators.slices):
            events |= {f"sums{unit}_{number}_enable": part.write_enable,
                       f"sums{unit}_{number}_address": part.write_address,
                       f"sums{unit}_{number}_data": Cat(part.totals)}
    return events


def watched_words(layout: data.StructLayout) -> int:
    """Words of 32 bits that ``watch`` has."""
    return max(3, -(-layout.size // 32))


def observed_verilog(config: NpuConfig) -> tuple[str, data.StructLayout]:
    """Verilog of an `ObservedNpu`, as module ``npu``, and the layout of its ``watch``."""
    observed = ObservedNpu(config)
    return emit_component(observed, name="npu", separator="_"), observed.layout
