"""ECP5's multipliers take in the registers that Yosys leaves beside them, and lose the copies of their operands' signs.

Yosys maps products to MULT18X18D, with signs in the upper bits of narrow operands, between flip-flops that nextpnr has
to place near. The cell has registers of its own before and after: with them a path ends at the multiplier, or begins
there. And a narrow operand can stand in the upper bits, zeros below it, with the product as much higher: zeros need no
wires. Cells that already have registers, or use anything else than operands and product, stay as they are.

Needs Python 3.10 alone; between Yosys and nextpnr it runs by itself: ``python3 multipliers.py MAPPED.json PACKED.json``
"""

import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["pack_multipliers", "rewrite"]

#: Bits of an operand, and of a product.
_WIDTH, _PRODUCT = 18, 36
_STAGES = ("INPUTA", "INPUTB", "INPUTC", "PIPELINE", "OUTPUT")
#: A net, or one of the constants "0", "1", "x".
_Bit = int | str
_Cell = dict[str, Any]


class _Control(NamedTuple):
    """What registers have in common: clock, the net that enables them or "1", and whether the global reset does."""

    clock: _Bit
    enable: _Bit
    gsr: str


def rewrite(source: Path, destination: Path) -> None:
    """`pack_multipliers` of all modules of a netlist; the two may be the same file."""
    netlist = json.loads(source.read_text())
    for module in netlist["modules"].values():
        pack_multipliers(module)
    destination.write_text(json.dumps(netlist))


def pack_multipliers(module: dict[str, Any]) -> int:
    """Change ``module``, of a JSON netlist that Yosys wrote; returns how many registers went."""
    before = len(module["cells"])
    wires = _Wires(module)
    multipliers = [cell for cell in module["cells"].values() if _is_bare(cell, wires)]
    for step in (_align, _take_product, _take_operands):
        for cell in multipliers:
            step(cell, wires)
        wires = _Wires(module)      # each step has those that the last one left
    return before - len(module["cells"])


class _Wires:
    """What drives each net of a module, by name, how often it is read, and the last cell and port that read it."""

    def __init__(self, module: dict[str, Any]) -> None:
        self.cells: dict[str, _Cell] = module["cells"]
        self.loads = Counter(bit for port in module["ports"].values() for bit in port["bits"])
        for net in module.get("netnames", {}).values():
            if _is_kept(net):
                self.loads.update(net["bits"])
        self.drivers: dict[_Bit, str] = {}
        self.readers: dict[_Bit, tuple[str, str]] = {}
        for name, cell in self.cells.items():
            directions = cell.get("port_directions", {})
            for port, bits in cell["connections"].items():
                if directions.get(port) == "output":
                    self.drivers.update(dict.fromkeys(bits, name))
                else:
                    self.loads.update(bits)
                    self.readers.update(dict.fromkeys(bits, (name, port)))

    def source(self, bit: _Bit) -> _Cell | None:
        """The register that a net comes from."""
        cell = self.cells.get(self.drivers.get(bit, ""))
        return cell if cell and _is_plain(cell) else None

    def sink(self, bit: _Bit) -> str:
        """Name of the register that alone reads a net; "" if there is none."""
        name, port = self.readers.get(bit, ("", ""))
        return name if self.loads[bit] == 1 and port == "DI" and _is_plain(self.cells[name]) else ""


def _align(cell: _Cell, wires: _Wires) -> None:
    """Copies of a sign above an operand become zeros below it, as far as the product has room above."""
    product = _bits(cell, "P", _PRODUCT)
    room = _PRODUCT - 1 - max((place for place, bit in enumerate(product) if wires.loads[bit]), default=_PRODUCT - 1)
    up = 0
    for side in "AB":
        operand = _bits(cell, side, _WIDTH)
        if not isinstance(operand[-1], int) or cell["connections"].get(f"SIGNED{side}") != ["1"]:
            continue
        own = _WIDTH - 1
        while own and operand[own - 1] == operand[-1]:
            own -= 1
        copies = min(_WIDTH - 1 - own, room - up)
        _connect(cell, side, ["0"] * copies + operand[:_WIDTH - copies])
        up += copies
    _connect(cell, "P", [None] * up + product[:_PRODUCT - up])


def _take_product(cell: _Cell, wires: _Wires) -> None:
    """The registers after a product, if all of it goes to some that are alike."""
    names = {place: wires.sink(bit) for place, bit in enumerate(_bits(cell, "P", _PRODUCT)) if wires.loads[bit]}
    registers = {place: wires.cells.get(name) for place, name in names.items()}
    control = _common(registers.values())
    if control is None:
        return
    _switch_on(cell, "OUTPUT", control)
    _connect(cell, "P", [register["connections"]["Q"][0] if (register := registers.get(place)) else None
                         for place in range(_PRODUCT)])
    for name in names.values():
        del wires.cells[name]


def _take_operands(cell: _Cell, wires: _Wires) -> None:
    """The registers in front of both operands: nextpnr knows no delays of a cell with those of one, and one clock.

    Another multiplier may have taken the same ones, each for itself. Those that nothing else reads go.
    """
    operands = {side: _bits(cell, side, _WIDTH) for side in "AB"}
    registers = {side: {bit: wires.source(bit) for bit in bits if bit not in ("0", "x", None)}
                 for side, bits in operands.items()}
    controls = {side: _common(found.values()) for side, found in registers.items()}
    shared = {(control.clock, control.gsr) if control else None for control in controls.values()}
    if "CLK0" in cell["connections"]:
        shared.add((cell["connections"]["CLK0"][0], cell["parameters"]["GSR"]))
    if len(shared) > 1 or None in shared:
        return
    for side, bits in operands.items():
        found, control = registers[side], controls[side]
        assert control is not None
        _switch_on(cell, f"INPUT{side}", control)
        _connect(cell, side, [register["connections"]["DI"][0] if (register := found.get(bit)) else bit
                              for bit in bits])
        for bit in bits:
            wires.loads[bit] -= 1
            if bit in found and not wires.loads[bit]:
                del wires.cells[wires.drivers[bit]]


def _is_bare(cell: _Cell, wires: _Wires) -> bool:
    """Whether it is a multiplier of which operands and product are all that is used."""
    pins, settings = cell["connections"], cell.get("parameters", {})
    constant = all(isinstance(bit, str) for port, bits in pins.items() for bit in bits
                   if port.startswith(("CLK", "CE", "RST", "SOURCE")))
    directions = cell.get("port_directions", {})
    others = [bit for port, bits in pins.items() for bit in bits
              if directions.get(port) == "output" and not (port[0] == "P" and port[1:].isdigit())]
    return (cell["type"] == "MULT18X18D" and bool(directions) and constant and not _is_kept(cell)
            and all(settings.get(f"REG_{stage}_CLK", "NONE") == "NONE" for stage in _STAGES)
            and settings.get("MULT_BYPASS", "DISABLED") == "DISABLED"
            and "1" not in (*pins.get("SOURCEA", ()), *pins.get("SOURCEB", ()))
            and not any(wires.loads[bit] for bit in others))


def _is_plain(cell: _Cell) -> bool:
    """Whether it is a register without reset, 0 at first, whose bit a multiplier could hold."""
    if cell["type"] != "TRELLIS_FF" or _is_kept(cell):
        return False
    pins = cell["connections"]
    settings = {name: value.strip() for name, value in cell["parameters"].items() if isinstance(value, str)}
    return (settings.get("REGSET", "RESET") == "RESET" and settings.get("CLKMUX", "CLK") == "CLK"
            and settings.get("CEMUX", "CE") in ("CE", "1") and settings.get("LSRMUX", "LSR") == "LSR"
            and pins.get("LSR", []) in ([], ["0"], ["x"]) and pins.get("M", []) in ([], ["0"], ["x"])
            and all(pins.get(port) for port in ("CLK", "DI", "Q")))


def _is_kept(thing: dict[str, Any]) -> bool:
    """Attributes are numbers in binary, or strings that end with a blank where they could be taken for one."""
    return str(thing.get("attributes", {}).get("keep", "")).strip("0 ") != ""


def _common(registers: Iterable[_Cell | None]) -> _Control | None:
    """What all registers share; None unless all are there and alike."""
    found = set()
    for register in registers:
        if register is None:
            return None
        pins, settings = register["connections"], register["parameters"]
        always = settings.get("CEMUX", "CE").strip() == "1" or not pins.get("CE")
        found.add(_Control(pins["CLK"][0], "1" if always else pins["CE"][0], settings.get("GSR", "ENABLED")))
    return found.pop() if len(found) == 1 else None


def _switch_on(cell: _Cell, stage: str, control: _Control) -> None:
    """A stage of a multiplier in place of registers with ``control``."""
    pins, settings = cell["connections"], cell["parameters"]
    taken = {settings[f"REG_{other}_CE"] for other in _STAGES if settings.get(f"REG_{other}_CLK", "NONE") != "NONE"}
    port = next((name for name in sorted(taken) if pins[name] == [control.enable]), f"CE{len(taken)}")
    for name, bit in (("CLK0", control.clock), (port, control.enable), ("RST0", "0")):
        pins[name] = [bit]
        cell["port_directions"][name] = "input"
    settings.update({f"REG_{stage}_CLK": "CLK0", f"REG_{stage}_CE": port, f"REG_{stage}_RST": "RST0",
                     "GSR": control.gsr})


def _bits(cell: _Cell, port: str, width: int) -> list[Any]:
    """The nets of a port, the lowest first; None where there is none."""
    return [(cell["connections"].get(f"{port}{place}") or [None])[0] for place in range(width)]


def _connect(cell: _Cell, port: str, bits: list[_Bit | None]) -> None:
    direction = "output" if port == "P" else "input"
    for place, bit in enumerate(bits):
        name = f"{port}{place}"
        cell["connections"].pop(name, None)
        if bit is not None:
            cell["connections"][name], cell["port_directions"][name] = [bit], direction


if __name__ == "__main__":
    if len(sys.argv) != 3:
        print("usage: python3 multipliers.py MAPPED.json PACKED.json", file=sys.stderr)
        sys.exit(2)
    rewrite(*map(Path, sys.argv[1:]))
