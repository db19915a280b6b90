"""A mapped netlist as a graph: nets, what drives them without a clock in between, and where paths begin and end.

A net is a number, as in Yosys's JSON, or below 0 inside of a cell. A path begins at the output of a flip-flop, memory,
multiplier or input port and ends at the input of one, or at an output port. Where registers stay as they are in the
netlist (`Delays.multiplier_registers`) paths go through multipliers without any inside.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .families import Delays

__all__ = ["Arc", "End", "Netlist"]


@dataclass(frozen=True, slots=True)
class Arc:
    """A net that another one follows: so many LUTs and nanoseconds later, the wire to the cell not counted.

    ``routed``: the wire is of the device's routing, not one inside a slice.
    """

    source: int
    luts: int
    delay: float
    routed: bool = True


@dataclass(frozen=True, slots=True)
class End:
    """Where a path ends: ``net`` at ``port`` of a cell, ``setup`` nanoseconds before the clock.

    ``name``: of the register, or of the cell. ``operand``: a multiplier's, without a register inside. ``routed`` as of
    an `Arc`.
    """

    net: int
    name: str
    port: str
    setup: float
    operand: bool = False
    routed: bool = True


#: Cells by what they are: the rest begin and end paths. A cell's first matching pattern counts.
_LUT = re.compile(r"LUT[1-6]$|INV$|MISTRAL_ALUT[2-6]$|MISTRAL_NOT$")
_MUX = re.compile(r"MUXF[7-9]$|PFUMX$|L6MUX21$")
_LUT_RAM = re.compile(r"RAM\d+[XM]|TRELLIS_DPR16X4$|MISTRAL_MLAB$")
_REGISTER = re.compile(r"FD[RSCP]E$|TRELLIS_FF$|MISTRAL_FF$|SRL")
#: Clocks of cells with registers.
_CLOCKS = ("C", "CLK", "CLK0", "CLK1", "WCK")
#: Data inputs of registers.
_REGISTER_DATA = ("D", "DI", "DATAIN")
_RAM = re.compile(r"RAMB|DP16KD$|MISTRAL_M10K$")
_MULTIPLIER = re.compile(r"MULT18X18D$|MISTRAL_MUL")
_SLICE = re.compile(r"DSP48E")


@dataclass
class Netlist:
    """``arcs``: net -> what it follows. ``starts``: net -> nanoseconds behind the clock; those that ``registers`` and
    multipliers (``products``) make are told apart.
    """

    arcs: dict[int, list[Arc]] = field(default_factory=dict)
    starts: dict[int, float] = field(default_factory=dict)
    ends: list[End] = field(default_factory=list)
    loads: dict[int, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    registers: set[int] = field(default_factory=set)
    products: set[int] = field(default_factory=set)

    @classmethod
    def of_module(cls, module: Mapping[str, Any], delays: Delays) -> "Netlist":
        """``module``: a flat one of a JSON netlist that Yosys wrote."""
        netlist = cls(names=_names(module))
        for name, cell in module["cells"].items():
            netlist._add(name, cell, delays)
        for name, port in module["ports"].items():
            for net in _nets(port["bits"]):
                if port["direction"] == "input":
                    netlist.starts[net] = 0.0
                else:
                    netlist._end(net, name, "output", 0.0)
        netlist._absorb()
        return netlist

    # -- cells ---------------------------------------------------------------------------------------------------

    def _add(self, name: str, cell: Mapping[str, Any], delays: Delays) -> None:
        kind, pins, directions = cell["type"], cell["connections"], cell["port_directions"]
        outputs = {port: bits for port, bits in pins.items() if directions[port] == "output"}
        inputs = {port: bits for port, bits in pins.items() if directions[port] != "output"}
        if _LUT.match(kind):
            self._lut(inputs, outputs, delays)
        elif _MUX.match(kind):
            self._mux(inputs, outputs, delays)
        elif kind.startswith("CARRY"):
            self._xilinx_carry(pins, delays)
        elif kind == "CCU2C":
            self._lattice_carry(pins, delays)
        elif kind == "MISTRAL_ALUT_ARITH":
            self._intel_carry(pins, delays)
        elif _LUT_RAM.match(kind):
            self._lut_ram(name, inputs, outputs, delays)
        elif _SLICE.match(kind):
            self._slice(name, cell["parameters"], inputs, outputs, delays)
        elif _MULTIPLIER.match(kind) and not delays.multiplier_registers:
            self._multiplier(name, cell["parameters"], inputs, outputs, delays)
        else:
            self._clocked(name, kind, inputs, outputs, delays)

    def _follow(self, net: int, arc: Arc) -> None:
        self.arcs.setdefault(net, []).append(arc)
        self.loads[arc.source] = self.loads.get(arc.source, 0) + 1

    def _end(self, net: int, name: str, port: str, setup: float, *, operand: bool = False,
             routed: bool = True) -> None:
        self.ends.append(End(net, name, port, setup, operand, routed))
        self.loads[net] = self.loads.get(net, 0) + 1

    def _lut(self, inputs: Mapping[str, list], outputs: Mapping[str, list], delays: Delays) -> None:
        for output in _nets(*outputs.values()):
            for source in _nets(*inputs.values()):
                self._follow(output, Arc(source, 1, delays.lut))

    def _mux(self, inputs: Mapping[str, list], outputs: Mapping[str, list], delays: Delays) -> None:
        for output in _nets(*outputs.values()):
            for port, bits in inputs.items():
                # Data come from the LUTs beside it, the choice over the routing.
                choice = port in ("S", "SD", "C0")
                for source in _nets(bits):
                    self._follow(output, Arc(source, 0, delays.mux, routed=choice))

    def _xilinx_carry(self, pins: Mapping[str, list], delays: Delays) -> None:
        first = list(_nets(*(pins.get(port, []) for port in ("CI", "CYINIT", "CI_TOP"))))
        for port in ("O", "CO"):        # sums and carries, a bit each
            for bit, output in enumerate(pins.get(port, [])):
                if not isinstance(output, int):
                    continue
                leave = delays.carry_out if port == "O" else 0.0
                for source in first:
                    # From the chain's piece below over its own wire, or a signal's over the routing.
                    self._follow(output, Arc(source, 0, delays.carry * (bit + 1) + leave, routed=False))
                for operand in ("S", "DI"):
                    for place, source in enumerate(pins.get(operand, [])[:bit + 1]):
                        if isinstance(source, int):
                            # S comes from the LUT beside it, DI from anywhere.
                            self._follow(output, Arc(source, 0, delays.carry_in + delays.carry * (bit - place) + leave,
                                                     routed=operand == "DI"))

    def _lattice_carry(self, pins: Mapping[str, list], delays: Delays) -> None:
        for number, low in (("0", ()), ("1", ("0",))):
            for port in (f"S{number}", *(("COUT",) if number == "1" else ())):
                leave = delays.carry_out if port[0] == "S" else 0.0
                for output in _nets(pins.get(port, [])):
                    for source in _nets(pins.get("CIN", [])):
                        self._follow(output, Arc(source, 0, delays.carry + leave, routed=False))
                    for half in (*low, number):
                        for operand in "ABCD":
                            for source in _nets(pins.get(f"{operand}{half}", [])):
                                self._follow(output, Arc(source, 1, delays.carry_in + leave))

    def _intel_carry(self, pins: Mapping[str, list], delays: Delays) -> None:
        for port, leave in (("SO", delays.carry_out), ("CO", 0.0)):
            for output in _nets(pins.get(port, [])):
                for source in _nets(pins.get("CI", [])):
                    self._follow(output, Arc(source, 0, delays.carry + leave, routed=False))
                for operand in ("A", "B", "C", "D0", "D1"):
                    for source in _nets(pins.get(operand, [])):
                        self._follow(output, Arc(source, 1, delays.carry_in + leave))

    def _lut_ram(self, name: str, inputs: Mapping[str, list], outputs: Mapping[str, list], delays: Delays) -> None:
        """Read at once, written with the clock. A read port's own address has its name or is of the only ones."""
        for port, bits in outputs.items():
            own = inputs.get(f"ADDR{port[2:]}") if port.startswith("DO") else None
            addresses = own if own is not None else [
                net for other, found in inputs.items() if re.match(r"A\d|A$|ADDR|DPRA|RAD|B1ADDR", other)
                for net in found]
            for output in _nets(bits):
                for source in _nets(addresses):
                    self._follow(output, Arc(source, 1, delays.lut))
                self.starts.setdefault(output, delays.clock_to_output)
        label = self._label(name, outputs)
        for port, bits in inputs.items():
            for net in _nets(bits):
                self._end(net, label, port, delays.setup)

    def _multiplier(self, name: str, settings: Mapping[str, str], inputs: Mapping[str, list],
                    outputs: Mapping[str, list], delays: Delays) -> None:
        """With the registers that the netlist says are inside: in front of both operands, behind the product, or all.

        Without any every bit of a product follows every bit of the operands, by way of one net of no name.
        """
        front, behind = (settings.get(f"REG_{stage}_CLK", "NONE") != "NONE" for stage in ("INPUTA", "OUTPUT"))
        if not (front or behind):
            inside = -len(self.arcs) - 1
            for source in _nets(*inputs.values()):
                self._follow(inside, Arc(source, 0, delays.multiplier))
            for output in _nets(*outputs.values()):
                self._follow(output, Arc(inside, 0, 0.0, routed=False))
            return
        self.starts.update(dict.fromkeys(_nets(*outputs.values()),
                                         delays.product_output if behind else delays.multiplier))
        for port, bits in inputs.items():
            operand = re.match(r"[AB]\d", port)
            for net in _nets(bits) if not port.startswith("CLK") else ():
                self._end(net, name, port, delays.product_setup if operand and not front else delays.operand_setup)

    def _slice(self, name: str, settings: Mapping[str, str], inputs: Mapping[str, list],
               outputs: Mapping[str, list], delays: Delays) -> None:
        """With the registers that the netlist says are inside. One that has none on a side takes those beside it.

        A product's only register may as well be behind the adder, if nothing is added. A path ends at an operand even
        if no register is behind it.
        """
        def has(register: str) -> bool:
            return int(settings.get(f"{register}REG", "0"), 2) != 0

        adds = any(bit != "0" for bit in inputs.get("OPMODE", [])[4:7])
        between = has("M") and (adds or has("P"))
        nets = list(_nets(*outputs.values()))
        if has("P") or has("M") and not adds:
            output = delays.product_output
        elif between:
            output = delays.addend_output
        else:
            output = delays.multiplier
            self.products.update(nets)
        self.starts.update(dict.fromkeys(nets, output))
        through = []        # what a sum follows in the same cycle
        for port, bits in inputs.items():
            operand, setup = False, delays.operand_setup        # controls too
            if port in ("A", "B", "D") and not has(port):
                operand, setup = True, delays.product_setup if between else delays.multiplier
            elif port == "PCIN" or port in ("C", "OPMODE") and not has(port):
                setup = delays.addend_setup
                if not has("P"):
                    through += [Arc(net, 0, delays.addend, routed=port != "PCIN") for net in _nets(bits)]
                    continue
            for net in _nets(bits) if port != "CLK" else ():
                # Cascades have wires of their own.
                self._end(net, name, port, setup, operand=operand, routed=not port.endswith("CIN"))
        if through:
            inside = -len(self.arcs) - 1
            for arc in through:
                self._follow(inside, arc)
            for net in nets:
                self._follow(net, Arc(inside, 0, 0.0, routed=False))

    def _clocked(self, name: str, kind: str, inputs: Mapping[str, list], outputs: Mapping[str, list],
                 delays: Delays) -> None:
        nets, is_operand = list(_nets(*outputs.values())), False
        if _RAM.match(kind):
            output, setup = delays.ram_output, delays.ram_setup
        elif _MULTIPLIER.match(kind):
            output, setup, is_operand = delays.multiplier, delays.multiplier, True
            self.products.update(nets)
        else:
            output, setup = delays.clock_to_output, delays.setup
            self.registers.update(nets)
        self.starts.update(dict.fromkeys(nets, output))
        label = self._label(name, outputs) if _REGISTER.match(kind) else name
        for port, bits in inputs.items():
            if port in _CLOCKS:
                continue
            for net in _nets(bits):
                self._end(net, label, port, setup, operand=is_operand)

    def _label(self, name: str, outputs: Mapping[str, list]) -> str:
        net = next(_nets(*outputs.values()), None)
        return self.names.get(net, name) if net is not None else name

    def _absorb(self) -> None:
        """Registers right in front of a multiplier and right behind it are its own: paths between them are inside."""
        self.ends = [end for end in self.ends if not (
            (end.operand and end.net in self.registers)
            or (end.port in _REGISTER_DATA and end.net in self.products))]


def _nets(*buses: list) -> Iterator[int]:
    """Without constants, which are strings."""
    return (net for bits in buses for net in bits if isinstance(net, int))


def _names(module: Mapping[str, Any]) -> dict[int, str]:
    """The shortest of a net's names that a designer gave, with its bit."""
    best: dict[int, tuple] = {}
    for name, found in module["netnames"].items():
        for bit, net in enumerate(found["bits"]):
            if isinstance(net, int):
                full = name if len(found["bits"]) == 1 else f"{name}[{bit}]"
                rank = (found.get("hide_name", 0), "$" in name, name.count("."), len(full), full)
                if net not in best or rank < best[net]:
                    best[net] = rank
    return {net: rank[-1] for net, rank in best.items()}
