"""The reference of instructions and registers, from the tables that the hardware is made of.

What a field means is the comment beside it in ``cores/arch/isa.py``, what an operation does the one above it.
"""

import ast
import inspect
from collections.abc import Iterator

from cores.arch import isa
from cores.arch.error_codes import ERROR_CODES, ERROR_TEXTS
from cores.arch.registers import COUNTERS, ENGINE_STATES, REGISTERS, VERSION, Control, Status
from tests import ROOT
from tests.site.comments import Comments

__all__ = ["instructions_page", "registers_page"]

_UNITS = """"With X" marks what only a machine has whose `NpuConfig` field X is not 0: elsewhere the
operation or kind is illegal, and the field must be zero."""

_HEADER = """
## Header

Token flags name the *other* queue: `wait_X` takes a token that X posted to this queue, `post_X` gives one to X.
`stores` is how many tokens of the store queue a load takes before it starts.

| bits | field |
|---|---|"""

_REGISTERS = """32-bit registers on AXI4-Lite, addresses in bytes.
Reserved addresses read as zero. While BUSY the regions cannot be written. `build` writes the map of one machine as
`register_map.md`, as a C header, and in SystemRDL and IP-XACT.

| address | name | access | meaning |
|---|---|---|---|"""

_COUNTERS = """
## Counters

64 bits in two registers, the low half first: reading it holds the high half. Cleared by START. Those of an engine count
the cycles in one of its states ({states}).

| address | counter |
|---|---|"""

_SOURCE = ROOT / "cores" / "arch" / "isa.py"


def _remarks() -> tuple[dict[str, str], dict[tuple[str, str], str]]:
    """Of operations, by their names; of fields, by those of operation and field."""
    comments = Comments(_SOURCE)
    operations: dict[str, str] = {}
    fields: dict[tuple[str, str], str] = {}
    for node in ast.parse(comments.text).body:
        target = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(target, ast.Name) and target.id == "OPERATIONS" and isinstance(node.value, ast.Dict):
            for key, value in zip(node.value.keys, node.value.values, strict=True):
                assert isinstance(key, ast.Attribute)
                operations[key.attr] = comments.above(key.lineno)
                for call in ast.walk(value):
                    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Field":
                        fields[key.attr, ast.literal_eval(call.args[0])] = comments.of(call.lineno)
    return operations, fields


def _sentence(text: str) -> str:
    text = text.replace("``", "`")
    return f"{text[:1].upper()}{text[1:]}" + ("" if not text or text[-1] in ".:" else ".")


def _unit(name: str) -> str:
    return f"`{name}`" if name else ""


def _kinds(field: isa.Field) -> str:
    return ", ".join(f"{kind.name} {kind.value}" + (f" (with {_unit(kind.unit)})" if kind.unit else "")
                     for kind in field.kinds)


def _fields(opcode: isa.Opcode, remarks: dict[tuple[str, str], str]) -> Iterator[str]:
    yield "| bits | field | meaning |"
    yield "|---|---|---|"
    position = isa.HEADER_BITS
    for field in isa.LAYOUTS[opcode]:
        words = [*(["signed"] if field.signed else []), *([f"at least {field.minimum}"] if field.minimum else []),
                 *([f"with {_unit(field.unit)}"] if field.unit else []),
                 *([_kinds(field)] if field.kinds else [])]
        meaning = remarks.get((opcode.name, field.name), "").replace("``", "`").replace("|", "\\|")
        yield (f"| {position + field.bits - 1}..{position} | `{field.name}` | "
               f"{'; '.join(part for part in (meaning, ', '.join(words)) if part)} |")
        position += field.bits


def instructions_page() -> str:
    """Markdown: every operation with its opcode, tokens and fields."""
    operations, fields = _remarks()
    document = (ast.get_docstring(ast.parse(_SOURCE.read_text())) or "").split("\n\n", 1)[1]
    lines = [f"# Instructions\n\nInstruction set {VERSION}, generated from `cores/arch/isa.py`. {_UNITS}\n",
             document.replace("``", "`"), _HEADER]
    position = 0
    for field in isa.HEADER:
        lines.append(f"| {position + field.bits - 1}..{position} | `{field.name}` |")
        position += field.bits
    lines.append("")
    for queue in isa.Queue:
        lines += [f"## Queue {queue.name}", ""]
        for opcode in isa.Opcode:
            if opcode.queue != queue:
                continue
            operation = isa.OPERATIONS[opcode]
            lines += [f"### {opcode.name} ({int(opcode)})", ""]
            words = [_sentence(operations.get(opcode.name, ""))]
            if operation.unit:
                words.append(f"With {_unit(operation.unit)}.")
            if operation.after:
                words.append("Illegal before " + ", ".join(f"`{other.name}`" for other in operation.after) + ".")
            if operation.some:
                words.append("At least one of " + ", ".join(f"`{name}`" for name in operation.some)
                             + " is not zero.")
            if operation.tokens:
                words.append("Tokens: " + ", ".join(f"`{name}`" for name in sorted(operation.tokens)) + ".")
            lines += [" ".join(word for word in words if word), ""]
            if operation.fields:
                lines += [*_fields(opcode, fields), ""]
    return "\n".join(lines)


def registers_page() -> str:
    """Markdown: every register, the bits of control and status, counters and error codes."""
    lines = [f"# Registers\n\nRegister map {VERSION}, generated from `cores/arch/registers.py`. {_REGISTERS}"]
    shown = [register for register in REGISTERS if not register.name.startswith("counter_")]
    for register in sorted(shown, key=lambda register: register.address):
        text = register.text.replace("|", "\\|")
        with_unit = f"{'; ' if text else ''}with {_unit(register.feature)}" if register.feature else ""
        lines.append(f"| 0x{register.address:03X} | `{register.name}` | "
                     f"{'read, write' if register.writable else 'read'} | {text}{with_unit} |")
    for title, kinds in ("Control", Control), ("Status", Status):
        lines += ["", f"## {title}", "", "| bit | name |", "|---|---|",
                  *(f"| {bit.value.bit_length() - 1} | {bit.name} |" for bit in kinds)]
    states = "; ".join(f"{engine}: {', '.join(states)}" for engine, states in ENGINE_STATES.items())
    lines += ["", inspect.getdoc(Control) or "", _COUNTERS.format(states=states)]
    addresses = {register.name: register.address for register in REGISTERS}
    lines += [f"| 0x{addresses[f'counter_{name}_low']:03X} | `{name}` |" for name in COUNTERS]
    lines += ["", "## Error codes", "", "| code | name | meaning |", "|---|---|---|"]
    lines += [f"| {code.value} | `{code.name}` | {ERROR_TEXTS[code]} |" for code in ERROR_CODES]
    return "\n".join(lines) + "\n"
