"""Netlists that Yosys makes for an FPGA, as Verilog that a bench can run on."""

import subprocess
from pathlib import Path

from amaranth.lib import wiring

from gen.synth import FAMILIES, HIDE_ELEMENTS
from sim.toolchain import find_yosys
from tests.bench import verilog_of

__all__ = ["xilinx_netlist"]


def xilinx_netlist(component: wiring.Component, folder: Path) -> str:
    """Module ``top`` mapped to UltraScale+ cells as area reports have it, the cells replaced by their models.

    Without DSP slices and block RAMs, whose models do not say all that these cells do.
    """
    (folder / "design.v").write_text(verilog_of(component))
    (folder / "script.ys").write_text("\n".join([
        "read_verilog design.v", HIDE_ELEMENTS,
        f"{FAMILIES['xcup'].command} -nodsp -nobram -top top",
        "delete =A:blackbox", "read_verilog -overwrite +/xilinx/cells_sim.v", "hierarchy -top top",
        "proc", "flatten", "opt_clean", "write_verilog -noattr netlist.v"]))
    subprocess.run([*find_yosys(), "-q", "-s", "script.ys"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return (folder / "netlist.v").read_text()
