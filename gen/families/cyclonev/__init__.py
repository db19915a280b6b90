"""Intel Cyclone V, with Quartus."""

from collections.abc import Mapping
from typing import Any

from boards.board import Board
from gen.netlist.cells import block_ram, carry_bit, lut, lut_ram, multiplier, register
from gen.netlist.delays import Delays

from ..family import BlockRam, Cells, Family, FuseSoc, Synthesis

__all__ = ["FAMILY"]


#: What synth_intel_alm has there, but for ABC9's wires of 600 ps: beside its tables, whose inputs differ by as much, it
#: takes one more in a row for quicker than a slow input, which it is not, as a table and its wire take a nanosecond.
_LUTS = ("techmap -map +/intel_alm/common/abc9_map.v", "abc9 -maxlut 6 -W 1000",
         "techmap -map +/intel_alm/common/abc9_unmap.v", "techmap -map +/intel_alm/common/alm_map.v", "opt -fast",
         "autoname", "clean")

#: Parameters of the processor's component in Platform Designer that the NPU needs, beside the width of its memory port.
_PROCESSOR = {"F2S_Width": "0", "S2F_Width": "0", "LWH2F_Enable": "true", "F2SDRAM_Type": "AXI-3",
              "F2SINTERRUPT_Enable": "true"}


def _project_values(board: Board) -> Mapping[str, Any]:
    """``fabric_clock``: the board's oscillator, as the design begins at a pin. ``processor``: `_PROCESSOR`."""
    platform: Any = board.platform()
    clock = next(one for one in platform.resources if (one.name, one.number) == (platform.default_clk, 0))
    pins, description = clock.ios[0], clock.clock
    mhz = description.frequency / 1e6
    # Platform Designer calls the port of an exported interface after both.
    return {"processor": _PROCESSOR, "fabric_clock": {
        "name": clock.name, "port": f"{clock.name}_clk", "pin": pins.names[0],
        "io_standard": clock.attrs["io_standard"], "mhz": f"{mhz:g}", "hertz": round(description.frequency),
        "period": f"{1000 / mhz:.3f}"}}


FAMILY = Family(
    name="cyclonev", title="Cyclone V", package=__name__,
    synthesis=Synthesis(
        command="synth_intel_alm -family cyclonev -noiopad -noclkbuf", luts_for_timing=_LUTS,
        library="-D cyclonev " + " ".join(f"+/intel_alm/common/{name}_sim.v" for name in ("alm", "dff", "dsp", "mem"))),
    cells=(
        Cells(lut, "MISTRAL_ALUT2 MISTRAL_ALUT3 MISTRAL_ALUT4 MISTRAL_ALUT5 MISTRAL_ALUT6", "lut"),
        Cells(carry_bit(total="SO", carry_in="CI"), "MISTRAL_ALUT_ARITH", "lut"),
        Cells(lut, "MISTRAL_NOT", "lut"),
        Cells(lut_ram, "MISTRAL_MLAB", "lut"),
        Cells(register(data="DATAIN", clock="CLK"), "MISTRAL_FF", "ff"),
        Cells(multiplier, "MISTRAL_MUL27X27 MISTRAL_MUL18X18:0.5 MISTRAL_MUL9X9:0.333", "dsp"),
        Cells(block_ram("CLK1"), "MISTRAL_M10K", "m10k"),
    ),
    delays=Delays(grade="-7", lut=0.40, mux=0.10, carry_in=0.70, carry=0.06, carry_out=0.40, net=0.60,
                  net_doubling=0.10, clock_to_output=0.30, setup=0.20, ram_output=2.60, ram_setup=0.30,
                  multiplier=3.60),
    block_ram=BlockRam(name="m10k", lanes_apart=True, stacked=False,
                       forms=tuple((512 << step, width, 1.0) for step, width in enumerate((20, 10, 5, 2, 1)))),
    fabric="cyclonev", measured=("cyclonev:64", "cyclonev:128", "cyclonev:256"),
    project={
        "npu_hw.tcl": "npu_hw.tcl.jinja",
        "system.tcl": "system.tcl.jinja",
        "npu_processor.qprs": "npu_processor.qprs.jinja",
        "quartus_project.tcl": "quartus_project.tcl.jinja",
        "quartus_reports.tcl": "quartus_reports.tcl.jinja",
        "system.sdc": "system.sdc.jinja",
        "quartus_area.tcl": "quartus_area.tcl.jinja",
        "npu.sdc": "npu.sdc.jinja",
        # With Linux on the processor beside the fabric.
        "npu.dtso": "npu.dtso.jinja", "load.sh": "load.sh.jinja",
    },
    project_values=_project_values,
    fusesoc=FuseSoc(tool="quartus", options={"family": "Cyclone V", "device": "{part}"}),
)
