"""Netlists that Yosys makes for an FPGA: as Verilog that a bench can run on, and against the design by proof."""

import subprocess
from pathlib import Path

from amaranth.lib import wiring

from gen.families.family import HIDE_ELEMENTS
from gen.families.registry import FAMILIES
from sim.toolchain import find_yosys
from tests.bench import verilog_of

__all__ = ["prove_netlist", "xilinx_netlist"]

#: Module ``top`` mapped to UltraScale+ cells as area reports have it, the cells replaced by their models. Without DSP
#: slices and block RAMs, whose models do not say all that these cells do.
_MAPPED = [
    "read_verilog design.v", HIDE_ELEMENTS,
    *FAMILIES["xcup"].mapping("top", "-nodsp", "-nobram"),
    "tee -q -o cells.txt stat",
    "delete =A:blackbox", "read_verilog -overwrite +/xilinx/cells_sim.v", "hierarchy -top top",
    "proc", "flatten", "opt_clean",
]


def _yosys(component: wiring.Component, folder: Path, script: list[str]) -> subprocess.CompletedProcess:
    (folder / "design.v").write_text(verilog_of(component))
    (folder / "script.ys").write_text("\n".join(script))
    return subprocess.run([*find_yosys(), "-s", "script.ys"], cwd=folder, capture_output=True, text=True)


def xilinx_netlist(component: wiring.Component, folder: Path) -> str:
    """The netlist as Verilog.

    Verilator may take it for a loop that one bit of a wire follows from another one of it, where models of cells have
    two bits in one assignment. Real loops are errors of `gen.hw.timing`, which looks at bits.
    """
    ran = _yosys(component, folder, [*_MAPPED, "write_verilog -noattr netlist.v"])
    assert not ran.returncode, ran.stdout[-1000:] + ran.stderr
    return "/* verilator lint_off UNOPTFLAT */\n" + (folder / "netlist.v").read_text()


def prove_netlist(component: wiring.Component, folder: Path) -> str:
    """Prove that a component without registers and its netlist are the same function; the netlist's cells."""
    ran = _yosys(component, folder, [
        "read_verilog design.v", "hierarchy -top top", "proc", "flatten", "rename top design", "design -stash design",
        *_MAPPED, "rename top netlist", "design -copy-from design design", "miter -equiv -flatten design netlist miter",
        "sat -verify -prove trigger 0 miter"])
    assert not ran.returncode, f"the netlist differs: {ran.stdout[-1000:]}{ran.stderr}"
    return (folder / "cells.txt").read_text()
