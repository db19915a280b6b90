"""ECP5's registers that many parts of a design read get copies, each for parts that are beside each other.

A register that all lanes read has its wire across the device, most of a cycle, wherever it is placed; nextpnr makes no
copies of one. A part is an instance of the design, by the names that Yosys gives cells of a netlist without hierarchy:
those of the registers that they lead to. Enables and resets of cells stay with the register, as they have wires of
their own. Clocks have no copies, nor has what comes from another clock, or from outside, a register or two before:
copies could take it in different cycles.

Needs Python 3.10 alone; between Yosys and nextpnr it runs by itself: ``python3 copies.py NETLIST.json COPIED.json``
"""

import copy
import json
import re
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["copy_registers", "rewrite"]

#: Parts that must read a register before it gets copies, those that a copy is for, and pins that it drives, if it is
#: for more than one.
_PARTS, _PARTS_OF_COPY, _PINS_OF_COPY = 8, 4, 64
#: Pins that are clocks, and others that stay with the register.
_CLOCK = re.compile(r"(?:[ESW]?C(?:LK|K)I?[AB]?\d?)$")
_CONTROL = re.compile(r"(?:CE|OCE|LSR|RST|WRE|WE|CS)[AB]?\d?$")
#: What names of cells end with, after the signal that they lead to; of memories, which of its cells.
_KIND = re.compile(r"_(?:TRELLIS_\w+?|CCU2C|LUT4|PFUMX|L6MUX21|MULT18X18D|DP16KD)_.*|\$.*")
_OF_MEMORY = re.compile(r"(?:\.\d+){2}$")

#: A net, or one of the constants "0", "1", "x".
_Bit = int | str
_Cell = dict[str, Any]


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
    cells, named = module["cells"], module.setdefault("netnames", {})
    readers: dict[_Bit, list[_Pin]] = defaultdict(list)
    drivers: dict[_Bit, str] = {}
    clocks: set[_Bit] = set()
    for name, cell in cells.items():
        directions = cell.get("port_directions", {})
        for port, bits in cell["connections"].items():
            if directions.get(port) == "output":
                drivers.update(dict.fromkeys(bits, name))
            elif _CLOCK.match(port):
                clocks.update(bits)
            elif not _CONTROL.match(port):
                for place, bit in enumerate(bits):
                    readers[bit].append(_Pin(name, port, place))
    net = max((bit for bits in (readers, drivers, *(one["bits"] for one in named.values())) for bit in bits
               if isinstance(bit, int)), default=0)
    stay = clocks | {bit for one in named.values() if _is_kept(one) for bit in one["bits"]}
    made = 0
    for name in [name for name, cell in cells.items() if cell["type"] == "TRELLIS_FF"]:
        output = cells[name]["connections"].get("Q")
        if not output or output[0] in stay or _is_kept(cells[name]) or _crosses(cells[name], cells, drivers):
            continue
        for number, pins in enumerate(_shares(readers[output[0]])[1:], start=1):
            net += 1
            made += 1
            twin = copy.deepcopy(cells[name])
            twin["connections"]["Q"] = [net]
            cells[f"{name}_COPY_{number}"] = twin
            named[f"{name}_COPY_{number}_Q"] = {"hide_name": 1, "bits": [net], "attributes": {}}
            for pin in pins:
                cells[pin.cell]["connections"][pin.port][pin.place] = net
    return made


def _crosses(register: _Cell, cells: Mapping[str, _Cell], drivers: Mapping[_Bit, str], *, stages: int = 2) -> bool:
    """Whether what a register holds comes from outside or from another clock, by way of fewer than ``stages`` of its
    own clock alone.
    """
    (source,) = register["connections"].get("DI") or ["0"]
    if isinstance(source, str):
        return False
    driver = cells.get(drivers.get(source, ""))
    if driver is None:
        return True
    if driver["type"] != "TRELLIS_FF":
        return False
    if driver["connections"].get("CLK") != register["connections"].get("CLK"):
        return True
    return stages > 1 and _crosses(driver, cells, drivers, stages=stages - 1)


def _is_kept(thing: dict[str, Any]) -> bool:
    """Attributes are numbers in binary, or strings that end with a blank where they could be taken for one."""
    return str(thing.get("attributes", {}).get("keep", "")).strip("0 ") != ""


def _shares(pins: list[_Pin]) -> list[list[_Pin]]:
    """What each copy is to drive, the register itself first."""
    parts: dict[str, list[_Pin]] = defaultdict(list)
    for pin in pins:
        signal = _OF_MEMORY.sub("", _KIND.sub("", pin.cell))
        parts[signal.rpartition(".")[0]].append(pin)
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
    """So that lane 10 comes after lane 9."""
    return [(int(piece) if piece.isdigit() else -1, piece) for piece in re.split(r"(\d+)", name)]


if __name__ == "__main__":
    if len(sys.argv) != 3:
        print("usage: python3 copies.py NETLIST.json COPIED.json", file=sys.stderr)
        sys.exit(2)
    rewrite(*map(Path, sys.argv[1:]))
