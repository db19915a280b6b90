"""Timing of cells that most families of devices have. Where a family names the ports otherwise, it says their names."""

import re

from .delays import Delays
from .graph import Arc, Cell, CellTiming, Netlist, nets

__all__ = ["block_ram", "carry_bit", "lut", "lut_ram", "multiplier", "mux", "register"]

#: Ports of LUTs used as memory that are addresses of reads.
_ADDRESS = re.compile(r"A\d|A$|AD$|ADDR|DPRA|RAD|B1ADDR")


def lut(netlist: Netlist, cell: Cell, delays: Delays) -> None:
    """A look-up table of any size."""
    for output in nets(*cell.outputs.values()):
        for source in nets(*cell.inputs.values()):
            netlist.follow(output, Arc(source, 1, delays.lut))


def mux(*choices: str) -> CellTiming:
    """A multiplexer after LUTs: its data come from those beside it, ``choices`` over the routing."""
    def timing(netlist: Netlist, cell: Cell, delays: Delays) -> None:
        for output in nets(*cell.outputs.values()):
            for port, bits in cell.inputs.items():
                for source in nets(bits):
                    netlist.follow(output, Arc(source, 0, delays.mux, routed=port in choices))

    return timing


def carry_bit(*, total: str, carry_in: str) -> CellTiming:
    """A bit of a carry chain with the LUTs before it: ``total`` is its sum, another output the carry; all inputs but
    ``carry_in`` go to the LUTs.
    """
    def timing(netlist: Netlist, cell: Cell, delays: Delays) -> None:
        for port, bits in cell.outputs.items():
            leave = delays.carry_out if port == total else 0.0
            for output in nets(bits):
                for source in nets(cell.inputs.get(carry_in, [])):
                    netlist.follow(output, Arc(source, 0, delays.carry + leave, routed=False))
                for operand, sources in cell.inputs.items():
                    for source in nets(sources) if operand != carry_in else ():
                        netlist.follow(output, Arc(source, 1, delays.carry_in + leave))

    return timing


def lut_ram(netlist: Netlist, cell: Cell, delays: Delays) -> None:
    """LUTs as memory: read at once, written with the clock.

    A read port's own address has its name or is of the only ones.
    """
    for port, bits in cell.outputs.items():
        own = cell.inputs.get(f"ADDR{port[2:]}") if port.startswith("DO") else None
        addresses = own if own is not None else [
            net for other, found in cell.inputs.items() if _ADDRESS.match(other) for net in found]
        for output in nets(bits):
            for source in nets(addresses):
                netlist.follow(output, Arc(source, 1, delays.lut))
            netlist.starts.setdefault(output, delays.clock_to_output)
    label = netlist.label(cell)
    for port, bits in cell.inputs.items():
        for net in nets(bits):
            netlist.end(net, label, port, delays.setup)


def register(*, data: str, clock: str) -> CellTiming:
    """A flip-flop, or a shift register, by its ports for data and clock."""
    def timing(netlist: Netlist, cell: Cell, delays: Delays) -> None:
        netlist.clocked(cell, output=delays.clock_to_output, setup=delays.setup, clocks=(clock,), data=(data,),
                        label=netlist.label(cell))
        netlist.registers.update(nets(*cell.outputs.values()))

    return timing


def block_ram(*clocks: str) -> CellTiming:
    """A block RAM without a register after its data; paths end at ``clocks`` never."""
    def timing(netlist: Netlist, cell: Cell, delays: Delays) -> None:
        netlist.clocked(cell, output=delays.ram_output, setup=delays.ram_setup, clocks=clocks)

    return timing


def multiplier(netlist: Netlist, cell: Cell, delays: Delays) -> None:
    """A multiplier that the tool for place and route moves registers into, those right before it and right after it.

    One that has none on a side takes as long there as the whole of it.
    """
    netlist.clocked(cell, output=delays.multiplier, setup=delays.multiplier, operand=True)
    netlist.products.update(nets(*cell.outputs.values()))
