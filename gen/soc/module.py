"""The machine as a module of LiteX: its ports as LiteX's interfaces, its interrupt as an event."""

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Shape
from litex.gen import LiteXModule
from litex.soc.interconnect.axi import AXIInterface, AXILiteInterface
from litex.soc.interconnect.csr_eventmanager import EventManager, EventSourceLevel
from migen import ClockSignal, Instance, ResetSignal, Signal

from cores.arch.registers import port_bits
from cores.bus.axi import Axi4Read, Axi4Write, AxiLite
from cores.config import ConfigError, NpuConfig

__all__ = ["NpuModule"]

#: Bits of LiteX's addresses.
_ADDRESS_BITS = 32
#: Longest first: ``awvalid`` is of channel ``aw``, ``wvalid`` of ``w``.
_CHANNELS = ("aw", "ar", "w", "b", "r")


class NpuModule(LiteXModule):
    """Module ``npu`` of the generated Verilog, in the clock domain ``sys``.

    Each signal of its buses (`cores.bus.axi`) is joined to the one of that name in LiteX's interface.

    Raises ConfigError for a machine whose addresses have more bits than LiteX's.
    """

    def __init__(self, config: NpuConfig) -> None:
        if config.address_width > _ADDRESS_BITS:
            raise ConfigError(f"address_width must be at most {_ADDRESS_BITS} in LiteX, not {config.address_width!r}",
                              code="configuration-rule", parameter="address_width", found=config.address_width)
        #: AXI4 to memory; the machine is its master.
        self.memory = AXIInterface(data_width=config.beat_bits, address_width=_ADDRESS_BITS, id_width=1)
        #: AXI4-Lite registers; the machine is its slave.
        self.control = AXILiteInterface(data_width=32, address_width=_ADDRESS_BITS)
        #: Interrupt, while DONE or ERROR.
        self.irq = Signal()
        self.ev = EventManager()
        self.ev.done = EventSourceLevel(description="A program is done, or has failed.")
        self.ev.finalize()

        # # #

        self.comb += self.ev.done.trigger.eq(self.irq)
        bus = {"address_width": config.address_width, "data_bits": config.beat_bits}
        members = {**Axi4Read(**bus).members, **Axi4Write(**bus).members}
        self.specials.npu = Instance(
            "npu", i_clk=ClockSignal("sys"), i_rst=ResetSignal("sys"), o_irq=self.irq,
            **_ports("m_axi", members, self.memory, outputs="o"),
            **_ports("s_axi", AxiLite(address_width=port_bits(config)).members, self.control, outputs="i"))


def _ports(prefix: str, members: Mapping[str, Any], interface: Any, *, outputs: str) -> dict[str, Signal]:
    """Port of the Verilog, with its direction -> signal of ``interface``.

    ``outputs``: direction, ``i`` or ``o``, of what a master drives.
    """
    inputs = "o" if outputs == "i" else "i"
    ports = {}
    for name, member in members.items():
        channel = next(one for one in _CHANNELS if name.startswith(one))
        direction = outputs if member.flow.name == "Out" else inputs
        signal = getattr(getattr(interface, channel), name.removeprefix(channel))
        # LiteX's addresses are longer than those of the registers.
        ports[f"{direction}_{prefix}_{name}"] = signal[:Shape.cast(member.shape).width]
    return ports
