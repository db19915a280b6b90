"""Verilog with the machine's ports and nothing behind them, for what only connects it."""

from amaranth.hdl import Value
from amaranth.lib import wiring

from cores.config import NpuConfig
from cores.npu import Npu

__all__ = ["hollow_npu"]


def hollow_npu(config: NpuConfig) -> str:
    """Module ``npu`` as `cores.emit.emit_verilog` names its ports; outputs are 0."""
    npu, ports, silence = Npu(config), ["input clk", "input rst"], []
    for path, member, value in npu.signature.flatten(npu):
        name, driven = "_".join(map(str, path)), member.flow == wiring.Out
        ports.append(f"{'output' if driven else 'input'} [{len(Value.cast(value)) - 1}:0] {name}")
        silence += [f"assign {name} = 0;\n"] if driven else []
    return f"module npu({', '.join(ports)});\n{''.join(silence)}endmodule\n"
