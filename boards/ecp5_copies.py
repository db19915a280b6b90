"""ECP5's registers that many parts of a design read get copies, each for parts that are beside each other.

A register that all lanes read has its wire across the device, 5 to 9 ns of it, wherever it is placed; nextpnr makes no
copies of one. A part is an instance of the design, by the names that Yosys gives cells of a netlist without hierarchy:
those of the registers that they lead to. Clocks, enables and resets stay with the register, as they have wires of their
own.

Needs Python 3.10 alone; between Yosys and nextpnr it runs by itself: ``python3 copies.py NETLIST.json COPIED.json``
"""

import copy
import json
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["copy_registers", "rewrite"]

#: Parts that must read a register before it gets copies, those that a copy is for, and pins that it drives, if there
#: is more than one part.
_PARTS, _PARTS_OF_COPY, _PINS_OF_COPY = 8, 4, 64
#: Pins of a register that do not count.
_CONTROLS = ("CLK", "CE", "LSR")
#: What names of cells end with, behind the signal that they lead to.
_KIND = re.compile(r"_(?:TRELLIS_\w+?|CCU2C|LUT4|PFUMX|L6MUX21|MULT18X18D|DP16KD)_.*|\$.*")


class _Pin(NamedTuple):
    """A cell's pin: the port's ``place``-th bit."""

    cell: str
    port: str
    place: int


def rewrite(source: Path, destination: Path) -> None:
    """`copy_registers` of all modules of a netlist; the two may be the same file."""
    netlist = json.loads(source.read_text())
    for module in netlist["modules"].values():
        copy_registers(module)
    destination.write_text(json.dumps(netlist))


def copy_registers(module: dict[str, Any]) -> int:
    """Change ``module``, of a JSON netlist that Yosys wrote; returns how many copies were made."""
    cells = module["cells"]
    readers: dict[int, list[_Pin]] = defaultdict(list)
    for name, cell in cells.items():
        directions = cell.get("port_directions", {})
        for port, bits in cell["connections"].items():
            if directions.get(port) != "output" and not (cell["type"] == "TRELLIS_FF" and port in _CONTROLS):
                for place, bit in enumerate(bits):
                    readers[bit].append(_Pin(name, port, place))
    named = module.get("netnames", {}).values()
    net = max((bit for bits in (readers, *(one["bits"] for one in named)) for bit in bits if isinstance(bit, int)),
              default=0)
    kept = {bit for one in named if _is_kept(one) for bit in one["bits"]}
    registers = {name: cell["connections"]["Q"][0] for name, cell in cells.items()
                 if cell["type"] == "TRELLIS_FF" and cell["connections"].get("Q") and not _is_kept(cell)}
    made = 0
    for name, output in registers.items():
        for number, pins in enumerate(_shares(readers[output])[1:] if output not in kept else (), start=1):
            net += 1
            made += 1
            twin = copy.deepcopy(cells[name])
            twin["connections"]["Q"] = [net]
            cells[f"{name}_COPY_{number}"] = twin
            for pin in pins:
                cells[pin.cell]["connections"][pin.port][pin.place] = net
    return made


def _is_kept(thing: dict[str, Any]) -> bool:
    return int(str(thing.get("attributes", {}).get("keep", "0")), 2) != 0


def _shares(pins: list[_Pin]) -> list[list[_Pin]]:
    """What each copy is to drive, the register itself first."""
    parts: dict[str, list[_Pin]] = defaultdict(list)
    for pin in pins:
        parts[_KIND.sub("", pin.cell).rpartition(".")[0]].append(pin)
    if len(parts) < _PARTS:
        return [pins]
    shares: list[list[_Pin]] = []
    room = 0
    for part in sorted(parts, key=_natural):
        if not room or len(shares[-1]) + len(parts[part]) > _PINS_OF_COPY:
            shares.append([])
            room = _PARTS_OF_COPY
        shares[-1] += parts[part]
        room -= 1
    return shares


def _natural(name: str) -> list[tuple[int, str]]:
    """So that lane 10 comes behind lane 9."""
    return [(int(piece) if piece.isdigit() else -1, piece) for piece in re.split(r"(\d+)", name)]


if __name__ == "__main__":
    if len(sys.argv) != 3:
        print("usage: python3 copies.py NETLIST.json COPIED.json", file=sys.stderr)
        sys.exit(2)
    rewrite(*map(Path, sys.argv[1:]))
