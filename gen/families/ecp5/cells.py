"""How cells are timed that ECP5 alone has."""

from gen.netlist.delays import Delays
from gen.netlist.graph import Arc, Cell, Netlist, nets

__all__ = ["carry", "multiplier"]


def carry(netlist: Netlist, cell: Cell, delays: Delays) -> None:
    """CCU2C: two bits of a carry chain, with the LUTs before them."""
    for number, low in (("0", ()), ("1", ("0",))):
        for port in (f"S{number}", *(("COUT",) if number == "1" else ())):
            leave = delays.carry_out if port[0] == "S" else 0.0
            for output in nets(cell.outputs.get(port, [])):
                for source in nets(cell.inputs.get("CIN", [])):
                    netlist.follow(output, Arc(source, 0, delays.carry + leave, routed=False))
                for half in (*low, number):
                    for operand in "ABCD":
                        for source in nets(cell.inputs.get(f"{operand}{half}", [])):
                            netlist.follow(output, Arc(source, 1, delays.carry_in + leave))


def multiplier(netlist: Netlist, cell: Cell, delays: Delays) -> None:
    """MULT18X18D with the registers that the netlist says are inside: before both operands, after the product, or all;
    nextpnr moves none.

    Without any every bit of a product follows every bit of the operands, by way of one net of no name.
    """
    before, after = (cell.parameters.get(f"REG_{stage}_CLK", "NONE") != "NONE" for stage in ("INPUTA", "OUTPUT"))
    if not (before or after):
        inside = netlist.inside()
        for source in nets(*cell.inputs.values()):
            netlist.follow(inside, Arc(source, 0, delays.multiplier))
        for output in nets(*cell.outputs.values()):
            netlist.follow(output, Arc(inside, 0, 0.0, routed=False))
        return
    netlist.starts.update(dict.fromkeys(nets(*cell.outputs.values()),
                                        delays.product_output if after else delays.multiplier))
    for port, bits in cell.inputs.items():
        operand = port[0] in "AB" and port[1:].isdigit()
        for net in nets(bits) if not port.startswith("CLK") else ():
            netlist.end(net, cell.name, port, delays.product_setup if operand and not before else delays.operand_setup)
