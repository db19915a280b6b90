"""A mapped netlist as a graph: nets, what drives them without a clock in between, and where paths begin and end.

A net is a number, as in Yosys's JSON, or below 0 inside of a cell. A path begins at the output of a flip-flop, memory,
multiplier or input port and ends at the input of one, or at an output port. What a cell of a kind does to paths is a
function, a `CellTiming`: `gen.netlist.cells` has those that most families have.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .delays import Delays

__all__ = ["Arc", "Cell", "CellTiming", "End", "Netlist", "nets"]


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

    ``name``: of the register, or of the cell. ``operand``: a multiplier's, without a register inside. ``data``: of a
    register that a multiplier could have inside. ``routed`` as of an `Arc`.
    """

    net: int
    name: str
    port: str
    setup: float
    operand: bool = False
    data: bool = False
    routed: bool = True


#: Clocks of a cell that no family describes.
_CLOCKS = ("C", "CLK", "CLK0", "CLK1", "WCK")


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a netlist. ``inputs`` and ``outputs``: port -> its nets, the lowest bit first; constants are strings.
    """

    name: str
    parameters: Mapping[str, str]
    inputs: Mapping[str, list[Any]]
    outputs: Mapping[str, list[Any]]


@dataclass
class Netlist:
    """``arcs``: net -> what it follows. ``starts``: net -> nanoseconds after the clock; those that ``registers`` and
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
    def of_module(cls, module: Mapping[str, Any], timing: Mapping[str, "CellTiming"], delays: Delays) -> "Netlist":
        """``module``: a flat one of a JSON netlist that Yosys wrote. ``timing``: kind of a cell -> how it is timed."""
        netlist = cls(names=_names(module))
        for name, cell in module["cells"].items():
            netlist.add(_cell(name, cell), timing.get(cell["type"]), delays)
        for name, port in module["ports"].items():
            for net in nets(port["bits"]):
                if port["direction"] == "input":
                    netlist.starts[net] = 0.0
                else:
                    netlist.end(net, name, "output", 0.0)
        netlist._absorb()
        return netlist

    def add(self, cell: Cell, timing: "CellTiming | None", delays: Delays) -> None:
        """A cell without ``timing`` begins and ends paths as a register does."""
        if timing is None:
            self.clocked(cell, output=delays.clock_to_output, setup=delays.setup, clocks=_CLOCKS)
            self.registers.update(nets(*cell.outputs.values()))
        else:
            timing(self, cell, delays)

    # -- what a cell's timing is made of -------------------------------------------------------------------------

    def follow(self, net: int, arc: Arc) -> None:
        """``net`` follows the source of ``arc``."""
        self.arcs.setdefault(net, []).append(arc)
        self.loads[arc.source] = self.loads.get(arc.source, 0) + 1

    def end(self, net: int, name: str, port: str, setup: float, *, operand: bool = False, data: bool = False,
            routed: bool = True) -> None:
        """A path ends at a port, as an `End`."""
        self.ends.append(End(net, name, port, setup, operand, data, routed))
        self.loads[net] = self.loads.get(net, 0) + 1

    def inside(self) -> int:
        """A net inside of a cell, of no name: one that is new once something follows it."""
        return -len(self.arcs) - 1

    def clocked(self, cell: Cell, *, output: float, setup: float, clocks: Collection[str] = (), label: str = "",
                operand: bool = False, data: Collection[str] = ()) -> None:
        """Paths begin at all outputs, ``output`` after the clock, and end at all inputs but ``clocks``; `End` says
        what ``operand`` and ``data``, ports, are. ``label``: of the ends, in place of the cell's name.
        """
        self.starts.update(dict.fromkeys(nets(*cell.outputs.values()), output))
        for port, bits in cell.inputs.items():
            for net in nets(bits) if port not in clocks else ():
                self.end(net, label or cell.name, port, setup, operand=operand, data=port in data)

    def label(self, cell: Cell) -> str:
        """What a register is called: its output, where a designer has named it."""
        net = next(nets(*cell.outputs.values()), None)
        return self.names.get(net, cell.name) if net is not None else cell.name

    def _absorb(self) -> None:
        """Registers right before a multiplier and right after it are its own: paths between them are inside."""
        self.ends = [end for end in self.ends if not (
            (end.operand and end.net in self.registers)
            or (end.data and end.net in self.products))]


#: What a kind of cell does to paths: it adds arcs, starts and ends to a netlist.
CellTiming = Callable[[Netlist, Cell, Delays], None]


def _cell(name: str, cell: Mapping[str, Any]) -> Cell:
    pins, directions = cell["connections"], cell["port_directions"]
    return Cell(name, cell["parameters"],
                inputs={port: bits for port, bits in pins.items() if directions[port] != "output"},
                outputs={port: bits for port, bits in pins.items() if directions[port] == "output"})


def nets(*buses: list[Any]) -> Iterator[int]:
    """Without constants, which are strings."""
    return (net for bits in buses for net in bits if isinstance(net, int))


def _names(module: Mapping[str, Any]) -> dict[int, str]:
    """The shortest of a net's names that a designer gave, with its bit."""
    best: dict[int, tuple[Any, ...]] = {}
    for name, found in module["netnames"].items():
        for bit, net in enumerate(found["bits"]):
            if isinstance(net, int):
                full = name if len(found["bits"]) == 1 else f"{name}[{bit}]"
                rank = (found.get("hide_name", 0), "$" in name, name.count("."), len(full), full)
                if net not in best or rank < best[net]:
                    best[net] = rank
    return {net: rank[-1] for net, rank in best.items()}
