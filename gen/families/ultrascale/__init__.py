"""AMD UltraScale+: Zynq UltraScale+ and its like."""

from gen.netlist.delays import Delays

from ..family import REFERENCE_FABRIC, Family, Synthesis
from ..xilinx import BLOCK_RAM, FUSESOC, PROJECT, SYNTHESIS, cells

__all__ = ["FAMILY"]

#: Picoseconds of a wire that ABC9 reckons with in place of 300. Its look-up tables are those of 7 series, whose inputs
#: differ by 500 ps: with wires as short it takes two tables in a row by fast inputs for quicker than one by a slow one,
#: which on UltraScale+, where a wire takes twice as long as a table, they are not.
_WIRE = "scratchpad -set synth_xilinx.abc9.W 1000"

#: Registers and sums after products move into slices, which Yosys does for 7 series alone. UltraScale+'s slices have
#: the same by the same names, so they go through that pass (of Yosys 0.70) under the older name. What must not go in:
#: sums before products, whose settings differ, and comparisons of sums, which are no longer the same; the slices' own
#: are marked as used. Choices between addends, whose sense is lost; their multiplexers are not selected.
#: What the pass has wrong beyond that, the parts with multipliers do not have (tests/gen/test_slices.py): a sum with a
#: part of a product whose upper bits are left out, or with a signed one whose upper bits are zeros there; a register
#: after a product that a reset sets to anything but 0; a register wider than its sum, whose copies of the sign are
#: left without a driver: `check` finds these.
_INTO_SLICES = (
    "chtype -set DSP48E1 t:DSP48E2",
    'setparam -set USE_DPORT "TRUE" -set USE_PATTERN_DETECT "PATDET" t:DSP48E1',
    "xilinx_dsp -family xc7 t:* t:$mux %d",
    "setparam -unset USE_DPORT -unset USE_PATTERN_DETECT t:DSP48E1",
    "chtype -set DSP48E2 t:DSP48E1",
    "opt_clean", "check -assert",
)

FAMILY = Family(
    name="xcup", title="UltraScale+", package=__name__,
    synthesis=Synthesis(command=f"synth_xilinx -family xcup {SYNTHESIS}", for_timing=(_WIRE,),
                        after_products=_INTO_SLICES, library="+/xilinx/cells_sim.v"),
    cells=cells(dsp="DSP48E2", bram36="RAMB36E2 RAMB18E2:0.5"),
    delays=Delays(grade="-1", lut=0.15, mux=0.08, carry_in=0.18, carry=0.01, carry_out=0.12, net=0.30,
                  net_doubling=0.03, clock_to_output=0.10, setup=0.05, ram_output=1.20, ram_setup=0.30,
                  multiplier=1.60, operand_setup=0.14, product_setup=0.78, product_output=0.18,
                  addend=0.73, addend_setup=0.69, addend_output=0.92),
    block_ram=BLOCK_RAM, fabric=REFERENCE_FABRIC,
    measured=("zu3eg:64:fusion,gather", "zu3eg:256:fusion,gather,binary,winograd", "zu3eg:512",
              "zu3eg:512::dense", "zu3eg:512:depthwise,gather:dense", "zcu102:1024:depthwise,gather:dense"),
    measured_ports=(256,),
    project=PROJECT, fusesoc=FUSESOC,
)
