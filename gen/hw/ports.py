# amaranth: UnusedElaboratable=no
"""The ports of the machine, as the files beside the Verilog name them."""

from dataclasses import dataclass

from amaranth.lib import wiring

from cores.config import NpuConfig
from cores.npu import Npu

__all__ = ["BUSES", "Port", "ports_of"]

#: The buses of the machine.
BUSES = ("s_axi", "m_axi")


@dataclass(frozen=True)
class Port:
    """``m_axi_awaddr`` is signal ``awaddr`` of bus ``m_axi``; a port of no bus has an empty one."""

    name: str
    bus: str
    signal: str
    direction: str
    width: int


def ports_of(config: NpuConfig) -> tuple[Port, ...]:
    """All ports of ``npu.v``: clock and reset, then those of `cores.npu.Npu`, its order."""
    found = [Port("clk", "", "clk", "input", 1), Port("rst", "", "rst", "input", 1)]
    npu = Npu(config)
    for path, member, value in npu.signature.flatten(npu):
        name = "_".join(map(str, path))
        bus = str(path[0]) if path[0] in BUSES else ""
        direction = "input" if member.flow == wiring.In else "output"
        found.append(Port(name, bus, name.removeprefix(f"{bus}_") if bus else name, direction, len(value)))
    return tuple(found)
