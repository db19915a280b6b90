"""What synthesis makes of the hardware works as the hardware does: reported areas are those of a working machine."""

import pytest
from amaranth.hdl import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from cores.config import NpuConfig
from cores.lib.bits import select
from cores.load.load_engine import LoadEngine
from tests.bench import run_bench
from tests.netlist import prove_netlist, xilinx_netlist


class Selection(wiring.Component):
    """What stands in front of every multiplier: one of 16 channels, two pixels packed."""

    def __init__(self):
        super().__init__({"index": In(4), "channels": In(data.ArrayLayout(17, 16)), "chosen": Out(17)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.chosen.eq(select(self.index, list(self.channels)))
        return m


def test_selection(tmp_path):
    cells = prove_netlist(Selection(), tmp_path)
    assert "MUXF8" in cells     # the multiplexers after the LUTs are used


@pytest.mark.full
def test_load_engine(tmp_path):
    config = NpuConfig.preset(16)
    engine = LoadEngine(config)
    run_bench(engine, module="tests.cores.bench_load_engine", name="netlist_load_engine",
              parameters={"config": config.to_dict()}, verilog=xilinx_netlist(engine, tmp_path))
