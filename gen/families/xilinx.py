"""What 7 series and UltraScale+ share: cells, how they are timed, and Vivado's project."""

from gen.netlist.cells import block_ram, lut, lut_ram, mux, register
from gen.netlist.delays import Delays
from gen.netlist.graph import Arc, Cell, Netlist, nets

from .family import BlockRam, Cells, FuseSoc

__all__ = ["BLOCK_RAM", "FUSESOC", "PROJECT", "SYNTHESIS", "cells"]

#: From how many inputs on a multiplexer uses those after the LUTs. With 5, the least that would pay, Yosys 0.70 makes
#: netlists that lack registers of the load engine; those made with 9 pass the engines' benches.
SYNTHESIS = "-widemux 9 -flatten -noiopad -noclkbuf"

#: RAMB18 is half a block.
BLOCK_RAM = BlockRam(name="bram36", forms=(
    *((512 << step, width, 0.5) for step, width in enumerate((36, 18, 9, 4, 2, 1))), (4096, 9, 1.0)))

FUSESOC = FuseSoc(tool="vivado", options={"part": "{part}", "pnr": "none"})

#: Each family has a ``processor.tcl.jinja`` of its own, which the project's script includes.
PROJECT = {
    "vivado_project.tcl": "vivado_project.tcl.jinja",
    "npu_axi.v": "npu_axi.v.jinja",
    # The NPU by itself, for a catalogue of IP.
    "component.xml": "component.xml.jinja", "npu_gui.tcl": "npu_gui.tcl.jinja",
    "npu_ooc.xdc": "npu_ooc.xdc.jinja",
    "npu.bif": "npu.bif.jinja",
    # With Linux on the processor beside the fabric.
    "npu.dtso": "npu.dtso.jinja", "load.sh": "load.sh.jinja",
    # A folder of recipes for PetaLinux, which is made with Yocto.
    "npu-fabric.bb": "npu-fabric.bb.jinja", "npu.service": "npu.service.jinja", "u-dma-buf.bb": "u-dma-buf.bb.jinja",
    "linux-xlnx_%.bbappend": "linux-npu.bbappend.jinja", "npu.cfg": "npu.cfg.jinja",
}


def cells(*, dsp: str, bram36: str) -> tuple[Cells, ...]:
    """``dsp``, ``bram36``: the names that differ between the families."""
    return (
        Cells(lut, "LUT1 LUT2 LUT3 LUT4 LUT5 LUT6 INV", "lut"),
        Cells(register(data="D", clock="CLK"), "SRL16E SRLC16E SRLC32E", "lut"),
        Cells(lut_ram, "RAM32X1S RAM64X1S RAM128X1S:2 RAM256X1S:4 RAM512X1S:8 RAM16X1D:2 RAM32X1D:2 RAM64X1D:2 "
                       "RAM128X1D:4 RAM256X1D:8 RAM32M:4 RAM64M:4 RAM32M16:8 RAM64M8:8", "lut"),
        Cells(register(data="D", clock="C"), "FDRE FDSE FDCE FDPE", "ff"),
        Cells(dsp_slice, dsp, "dsp"),
        Cells(block_ram(), bram36, "bram36"),
        Cells(mux("S"), "MUXF7 MUXF8 MUXF9"),
        Cells(carry, "CARRY4 CARRY8"),
    )


def carry(netlist: Netlist, cell: Cell, delays: Delays) -> None:
    """A piece of a carry chain, of four bits or eight."""
    first = list(nets(*(cell.inputs.get(port, []) for port in ("CI", "CYINIT", "CI_TOP"))))
    for port in ("O", "CO"):        # sums and carries, a bit each
        for bit, output in enumerate(cell.outputs.get(port, [])):
            if not isinstance(output, int):
                continue
            leave = delays.carry_out if port == "O" else 0.0
            for source in first:
                # From the chain's piece below over its own wire, or a signal's over the routing.
                netlist.follow(output, Arc(source, 0, delays.carry * (bit + 1) + leave, routed=False))
            for operand in ("S", "DI"):
                for place, source in enumerate(cell.inputs.get(operand, [])[:bit + 1]):
                    if isinstance(source, int):
                        # S comes from the LUT beside it, DI from anywhere.
                        netlist.follow(output, Arc(
                            source, 0, delays.carry_in + delays.carry * (bit - place) + leave, routed=operand == "DI"))


def dsp_slice(netlist: Netlist, cell: Cell, delays: Delays) -> None:
    """With the registers that the netlist says are inside. One that has none on a side takes those beside it.

    A product's only register may as well be after the adder, if nothing is added. A path ends at an operand even if no
    register comes after it.
    """
    def has(register: str) -> bool:
        return int(cell.parameters.get(f"{register}REG", "0"), 2) != 0

    adds = any(bit != "0" for bit in cell.inputs.get("OPMODE", [])[4:7])
    between = has("M") and (adds or has("P"))
    outputs = list(nets(*cell.outputs.values()))
    if has("P") or has("M") and not adds:
        output = delays.product_output
    elif between:
        output = delays.addend_output
    else:
        output = delays.multiplier
        netlist.products.update(outputs)
    netlist.starts.update(dict.fromkeys(outputs, output))
    through = []        # what a sum follows in the same cycle
    for port, bits in cell.inputs.items():
        operand, setup = False, delays.operand_setup        # controls too
        if port in ("A", "B", "D") and not has(port):
            operand, setup = True, delays.product_setup if between else delays.multiplier
        elif port == "PCIN" or port in ("C", "OPMODE") and not has(port):
            setup = delays.addend_setup
            if not has("P"):
                through += [Arc(net, 0, delays.addend, routed=port != "PCIN") for net in nets(bits)]
                continue
        for net in nets(bits) if port != "CLK" else ():
            # Cascades have wires of their own.
            netlist.end(net, cell.name, port, setup, operand=operand, routed=not port.endswith("CIN"))
    if through:
        inside = netlist.inside()
        for arc in through:
            netlist.follow(inside, arc)
        for net in outputs:
            netlist.follow(net, Arc(inside, 0, 0.0, routed=False))
