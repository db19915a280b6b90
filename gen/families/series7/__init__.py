"""AMD 7 series: Zynq-7000 and its like."""

from gen.netlist.delays import Delays

from ..family import REFERENCE_FABRIC, Family, Synthesis
from ..xilinx import BLOCK_RAM, FUSESOC, PROJECT, SYNTHESIS, cells

__all__ = ["FAMILY"]

FAMILY = Family(
    name="xc7", title="7 series", package=__name__,
    synthesis=Synthesis(command=f"synth_xilinx -family xc7 {SYNTHESIS}", library="+/xilinx/cells_sim.v"),
    cells=cells(dsp="DSP48E1", bram36="RAMB36E1 RAMB18E1:0.5"),
    delays=Delays(grade="-1", lut=0.12, mux=0.25, carry_in=0.50, carry=0.03, carry_out=0.33, net=0.60,
                  net_doubling=0.08, clock_to_output=0.46, setup=0.10, ram_output=2.45, ram_setup=0.57,
                  multiplier=2.90, operand_setup=0.25, product_setup=1.42, product_output=0.33,
                  addend=1.33, addend_setup=1.25, addend_output=1.67),
    block_ram=BLOCK_RAM, fabric=REFERENCE_FABRIC,
    # Over sizes, and over features that go with one component each.
    measured=("zynq7020:16", "zynq7020:64", "zynq7020:128", "zynq7020:256", "zynq7020:16:gather",
              "zynq7020:64:fusion,gather,binary,winograd", "zynq7020:64:table", "zynq7020:64:product",
              "zynq7020:64:stochastic", "zynq7020:64:turn", "zynq7020:64:rows", "zynq7020:16:limits",
              "zynq7020:16:stages", "zynq7020:16:maximum", "zynq7020:64:int4",
              "zynq7020:128::dense", "zynq7020:256::dense", "zynq7020:16::tiny"),
    measured_ports=(128, 256),
    project=PROJECT, fusesoc=FUSESOC,
)
