"""The machine with its reads over two ports, as gen/families/templates/npu_axi.v.jinja joins them."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from cores.bus.axi import Axi4Read, Axi4Write, AxiLite
from cores.bus.read_ports import PORTS, ReadPorts
from cores.config import NpuConfig
from cores.npu import Npu

__all__ = ["NpuOnPorts"]


class NpuOnPorts(wiring.Component):
    """`Npu` and `ReadPorts`; ``m_axi`` has the writes."""

    def __init__(self, config: NpuConfig):
        self.config = config
        address, bits = config.address_width, config.beat_bits
        reads = Axi4Read(address_width=address, data_bits=bits // PORTS)
        super().__init__({
            "irq": Out(1),           # to the host
            "s_axi": In(AxiLite()),  # registers
            "m_axi": Out(Axi4Write(address_width=address, data_bits=bits)),           # memory, writes
            **{f"m_axi_read{number}": Out(reads) for number in range(PORTS)},         # memory, reads
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.npu = npu = Npu(config)
        m.submodules.ports = ports = ReadPorts(address_width=config.address_width, data_bits=config.beat_bits)
        m.d.comb += self.irq.eq(npu.irq)

        def join(outer, inner, signature):
            for name, member in signature.members.items():
                ends = getattr(outer, name), getattr(inner, name)
                m.d.comb += ends[0].eq(ends[1]) if member.flow == Out else ends[1].eq(ends[0])

        join(npu.s_axi, self.s_axi, AxiLite())
        join(self.m_axi, npu.m_axi, self.m_axi.signature)
        join(ports.wide, npu.m_axi, ports.wide.signature.flip())
        for number in range(PORTS):
            name = f"m_axi_read{number}"
            join(getattr(self, name), getattr(ports, f"port{number}"), getattr(self, name).signature)
        return m
