"""ECP5's multipliers take in the registers that Yosys leaves beside them, and lose the copies of their operands' signs.

Yosys maps products to MULT18X18D, with signs in the upper bits of narrow operands, between flip-flops that nextpnr has
to place near. The cell has registers of its own in front and behind: with them a path ends at the multiplier, or begins
there. And a narrow operand can stand in the upper bits, zeros below it, with the product as much higher: zeros need no
wires.

Needs Python 3.10 alone; between Yosys and nextpnr it runs by itself: ``python3 multipliers.py MAPPED.json PACKED.json``
"""

import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["pack_file", "pack_multipliers"]

#: Of an operand and of a product.
_WIDTH, _PRODUCT = 18, 36
#: A net, or one of the constants "0", "1", "x".
_Bit = int | str
_Cell = dict[str, Any]


def pack_file(source: Path, destination: Path) -> None:
    """`pack_multipliers` of all modules of a netlist; the two may be the same file."""
    netlist = json.loads(source.read_text())
    for module in netlist["modules"].values():
        pack_multipliers(module)
    destination.write_text(json.dumps(netlist))


def pack_multipliers(module: dict[str, Any]) -> int:
    """Change ``module``, of a JSON netlist that Yosys wrote; returns how many registers went."""
    before = len(module["cells"])
    for step in (_align, _take_product, _take_operands):
        wires = _Wires(module)      # each step has those that the last one left
        for cell in [cell for cell in module["cells"].values() if cell["type"] == "MULT18X18D"]:
            step(cell, wires)
    return before - len(module["cells"])


class _Wires:
    """What drives each net of a module, by name, how often it is read, and the last cell and port that read it."""

    def __init__(self, module: dict[str, Any]) -> None:
        self.cells: dict[str, _Cell] = module["cells"]
        self.loads = Counter(bit for port in module["ports"].values() for bit in port["bits"])
        self.drivers: dict[_Bit, str] = {}
        self.readers: dict[_Bit, tuple[str, str]] = {}
        for name, cell in self.cells.items():
            for port, bits in cell["connections"].items():
                if cell["port_directions"][port] == "output":
                    self.drivers.update(dict.fromkeys(bits, name))
                else:
                    self.loads.update(bits)
                    self.readers.update(dict.fromkeys(bits, (name, port)))

    def source(self, bit: _Bit) -> "_Cell | None":
        """The register that a net comes from."""
        cell = self.cells.get(self.drivers.get(bit, ""))
        return cell if cell and _is_plain(cell) else None

    def sink(self, bit: _Bit) -> str:
        """Name of the register that alone reads a net; "" if there is none."""
        name, port = self.readers.get(bit, ("", ""))
        return name if self.loads[bit] == 1 and port in ("DI", "M") and _is_plain(self.cells[name]) else ""


def _align(cell: _Cell, wires: _Wires) -> None:
    """Copies of a sign above an operand become zeros below it, as far as the product has room above."""
    product = _bits(cell, "P", _PRODUCT)
    room = _PRODUCT - 1 - max((place for place, bit in enumerate(product) if wires.loads[bit]), default=_PRODUCT - 1)
    up = 0
    for side in "AB":
        operand = _bits(cell, side, _WIDTH)
        if isinstance(operand[-1], str) or cell["connections"].get(f"SIGNED{side}") != ["1"]:
            continue
        own = _WIDTH - 1
        while own and operand[own - 1] == operand[-1]:
            own -= 1
        copies = min(_WIDTH - 1 - own, room - up)
        _connect(cell, side, ["0"] * copies + operand[:_WIDTH - copies])
        up += copies
    _connect(cell, "P", [None] * up + product[:_PRODUCT - up])


def _take_product(cell: _Cell, wires: _Wires) -> None:
    """The registers behind a product, if all of it goes to some that are alike."""
    names = {place: wires.sink(bit) for place, bit in enumerate(_bits(cell, "P", _PRODUCT)) if wires.loads[bit]}
    registers = {place: wires.cells.get(name) for place, name in names.items()}
    if _register(cell, "OUTPUT", registers.values()):
        _connect(cell, "P", [register["connections"]["Q"][0] if (register := registers.get(place)) else None
                             for place in range(_PRODUCT)])
        for name in names.values():
            del wires.cells[name]


def _take_operands(cell: _Cell, wires: _Wires) -> None:
    """The registers in front of both operands: nextpnr knows no delays of a cell with those of one.

    Another multiplier may have taken the same ones, each for itself. Those that nothing else reads go.
    """
    operands = {side: _bits(cell, side, _WIDTH) for side in "AB"}
    registers = {side: {bit: wires.source(bit) for bit in bits if bit not in ("0", "x", None)}
                 for side, bits in operands.items()}
    if not all(_alike(found.values()) for found in registers.values()):
        return
    for side, bits in operands.items():
        found = registers[side]
        _register(cell, f"INPUT{side}", found.values())
        _connect(cell, side, [_data(register) if (register := found.get(bit)) else bit for bit in bits])
        for bit in bits:
            wires.loads[bit] -= 1
            if bit in found and not wires.loads[bit]:
                del wires.cells[wires.drivers[bit]]


def _is_plain(cell: _Cell) -> bool:
    """Whether it is a register without reset, 0 at first, whose bit a multiplier could hold."""
    settings = {name: value.strip() for name, value in cell["parameters"].items()}
    return (cell["type"] == "TRELLIS_FF" and settings.get("REGSET", "RESET") == "RESET"
            and settings.get("CLKMUX", "CLK") == "CLK" and settings.get("CEMUX", "CE") in ("CE", "1")
            and cell["connections"].get("LSR", ["0"]) in (["0"], ["x"]))


def _alike(registers: Iterable[_Cell | None]) -> tuple[_Bit, _Bit] | None:
    """The clock of all registers and what enables them; None unless all are there and alike."""
    found = set()
    for register in registers:
        if register is None:
            return None
        pins, free = register["connections"], register["parameters"].get("CEMUX", "CE").strip() == "1"
        found.add((pins["CLK"][0], "1" if free else pins.get("CE", ["1"])[0]))
    return found.pop() if len(found) == 1 else None


def _register(cell: _Cell, stage: str, registers: Iterable[_Cell | None]) -> bool:
    """Switch a stage of a multiplier on in place of ``registers``; False, and nothing done, unless they are alike."""
    control = _alike(registers)
    if control is None:
        return False
    clock, enable = control
    pins, settings = cell["connections"], cell["parameters"]
    ports = {name: pins[name] for name in ("CE0", "CE1", "CE2") if name in pins}
    port = next((name for name, bits in ports.items() if bits == [enable]), f"CE{len(ports)}")
    for name, bit in (("CLK0", clock), (port, enable), ("RST0", "0")):
        pins[name] = [bit]
        cell["port_directions"][name] = "input"
    settings.update({f"REG_{stage}_CLK": "CLK0", f"REG_{stage}_CE": port, f"REG_{stage}_RST": "RST0",
                     "GSR": "DISABLED"})
    return True


def _data(register: _Cell) -> _Bit:
    pins = register["connections"]
    return (pins.get("DI") or pins["M"])[0]


def _bits(cell: _Cell, port: str, width: int) -> list[Any]:
    """The nets of a port, the lowest first; None where there is none."""
    return [cell["connections"].get(f"{port}{place}", [None])[0] for place in range(width)]


def _connect(cell: _Cell, port: str, bits: list[_Bit | None]) -> None:
    direction = "output" if port == "P" else "input"
    for place, bit in enumerate(bits):
        name = f"{port}{place}"
        cell["connections"].pop(name, None)
        if bit is not None:
            cell["connections"][name], cell["port_directions"][name] = [bit], direction


if __name__ == "__main__":
    pack_file(*map(Path, sys.argv[1:]))
