"""Save files for viewers of waveforms: what each engine is at, by name, with instructions and states in words.

GTKWave reads a save file (.gtkw) and, of each signal, a file that says what its values mean; Surfer a command file
(.sucl) and the same as mappings, which it looks for in ``.surfer/mappings`` of the folder that it is started in.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cores.arch.instruction import disassemble
from cores.arch.instruction_layout import INDEX_BITS
from cores.arch.registers import ENGINE_STATES, STATE_BITS
from gen.files.printable import printable
from gen.program.program import Program

__all__ = ["SCOPE", "save_files"]

#: Where a simulation has the machine's ports.
SCOPE = "TOP"


@dataclass(frozen=True)
class _Signal:
    """A port, its ``bits``, what it is called in a viewer, and the ``table`` of what its values mean, "" for none."""

    port: str
    bits: int
    title: str
    table: str = ""


@dataclass(frozen=True)
class _Bus:
    """Bits of the ports whose width the machine's configuration gives."""

    address: int
    data: int


def save_files(waves: Path, programs: Sequence[Program]) -> dict[Path, str]:
    """The files to be written beside ``waves`` (VCD), which has a run of ``programs``, all of one machine: path ->
    text. Of several programs each has its own, with a number: an instruction's index says nothing without its program.
    """
    found: dict[Path, str] = {}
    for number, program in enumerate(programs, 1):
        stem = waves.stem if len(programs) == 1 else f"{waves.stem}.{number}"
        tables = _tables(program)
        groups = _groups(_Bus(program.config.address_width, program.config.beat_bits))
        files = {name: waves.with_name(f"{stem}.{name}.txt") for name in tables}
        found |= {files[name]: _filter(table, bits) for name, (bits, table) in tables.items()}
        found[waves.with_name(f"{stem}.gtkw")] = _gtkwave(waves, groups, files)
        # Of the names of formats Surfer takes one word.
        formats = {name: "_".join(f"npugen {stem} {name}".split()) for name in tables}
        mappings = waves.parent / ".surfer" / "mappings"
        found |= {mappings / f"{formats[name]}.txt": _mapping(formats[name], table, bits)
                  for name, (bits, table) in tables.items()}
        found[waves.with_name(f"{stem}.sucl")] = _surfer(groups, formats)
    return found


def _tables(program: Program) -> dict[str, tuple[int, Mapping[int, str]]]:
    """Name -> bits of the values, and what each means."""
    found: dict[str, tuple[int, Mapping[int, str]]] = {
        f"{engine}-state": (STATE_BITS, dict(enumerate(states))) for engine, states in ENGINE_STATES.items()}
    return {**found, "instructions": (INDEX_BITS, dict(enumerate(_instructions(program))))}


def _instructions(program: Program) -> Iterator[str]:
    """Such as ``LOAD_ACT stem @12 offset=8192 ...``, the operation first, as there is little room."""
    for index, (instruction, layer) in enumerate(zip(program.instructions, program.instruction_layers, strict=True)):
        operation, _, fields = disassemble(instruction).partition(" ")
        name = f" {program.layers[layer].name}" if layer >= 0 else ""
        yield printable(" ".join(f"{operation.upper()}{name} @{index} {fields}".split()))


def _groups(bus: _Bus) -> dict[str, list[_Signal]]:
    """Signals by the engine that they tell of."""
    from cores.npu import TRACE  # with it comes Amaranth, which only makes hardware

    engines = {engine: [_Signal(f"trace_{engine}_state", STATE_BITS, f"{engine}: state", f"{engine}-state"),
                        _Signal(f"trace_{engine}_index", INDEX_BITS, f"{engine}: instruction", "instructions")]
               for engine in ENGINE_STATES}

    def channel(name: str, *more: tuple[str, int]) -> list[_Signal]:
        ports = [(f"m_axi_{name}{part}", bits) for part, bits in (("valid", 1), ("ready", 1), *more)]
        return [_Signal(port, bits, port) for port, bits in ports]

    return {
        "host": [_Signal("clk", 1, "clk"), _Signal("irq", 1, "irq"), _Signal("s_axi_awvalid", 1, "register write"),
                 _Signal("s_axi_arvalid", 1, "register read")],
        "fetch": [_Signal("trace_fetch_index", INDEX_BITS, "to be dispatched", "instructions"),
                  _Signal("trace_fetch_waiting", 1, "its queue is full"), _Signal("trace_halt", 1, "being stopped")],
        "load": [*engines["load"], *channel("ar", ("addr", bus.address), ("len", 8)),
                 *channel("r", ("last", 1), ("data", bus.data))],
        "compute": engines["compute"],
        "store": [*engines["store"], _Signal("trace_stores", TRACE["stores"], "stores not yet loaded from"),
                  *channel("aw", ("addr", bus.address), ("len", 8)),
                  *channel("w", ("last", 1), ("data", bus.data)), *channel("b")],
    }


def _filter(table: Mapping[int, str], bits: int) -> str:
    """Of GTKWave: values as it shows them, in hexadecimal."""
    from vcd.gtkw import make_translation_filter

    return make_translation_filter(list(table.items()), datafmt="hex", size=bits) + "\n"


def _gtkwave(waves: Path, groups: Mapping[str, Sequence[_Signal]], files: Mapping[str, Path]) -> str:
    from vcd.gtkw import GTKWSave

    text = io.StringIO()
    save = GTKWSave(text)
    save.dumpfile(str(waves.absolute()))
    save.treeopen(SCOPE)
    save.size(1600, 1000)
    save.signals_width(260)
    save.sst_expanded(False)
    for name, signals in groups.items():
        with save.group(name):
            for one in signals:
                span = f"[{one.bits - 1}:0]" if one.bits > 1 else ""
                save.trace(f"{SCOPE}.{one.port}{span}", alias=one.title, datafmt="hex" if one.bits > 1 else "bin",
                           translate_filter_file=str(files[one.table].absolute()) if one.table else None)
    return text.getvalue()


def _mapping(name: str, table: Mapping[int, str], bits: int) -> str:
    """Of Surfer, in which a # begins a comment."""
    lines = (f"{value} {text.replace('#', '?')}" for value, text in table.items())
    return "\n".join([f"Name = {name}", f"Bits = {bits}", *lines]) + "\n"


def _surfer(groups: Mapping[str, Sequence[_Signal]], formats: Mapping[str, str]) -> str:
    """All is added first: what is added while an item has the focus goes after that one."""
    add, shape, item = [], [], 0
    for name, signals in groups.items():
        add.append(f"divider_add {name}")
        item += 1
        for one in signals:
            add.append(f"variable_add {SCOPE}.{one.port}")
            if one.table:
                shape += [f"item_focus {_letters(item)}", f"item_set_format {formats[one.table]}"]
            item += 1
    return "\n".join([*add, *shape, "item_unfocus", "zoom_fit"]) + "\n"


def _letters(item: int) -> str:
    """How Surfer numbers items: hexadecimal, of the letters a to p."""
    return "".join(chr(ord("a") + int(digit, 16)) for digit in f"{item:02x}")
