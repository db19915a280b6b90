"""The files that go with the Verilog: register map, driver header, vendor project.

Everything in them comes from the tables that the hardware is made from.
"""

from dataclasses import dataclass
from typing import Any

import jinja2
from amaranth.lib import wiring

from boards.board import Board
from cores.arch.isa import ERROR_TEXTS, HEADER, INSTRUCTION_BYTES, LAYOUTS, ErrorCode, Opcode
from cores.arch.registers import BASE_ALIGNMENT, COUNTERS, ENGINE_STATES, MAGIC, REGISTERS, VERSION, Control, Status
from cores.bus.axi import Axi4Read, Axi4Write, AxiLite
from cores.config import NpuConfig
from cores.npu import TRACE

__all__ = ["driver_header", "register_map", "vendor_project"]


@dataclass(frozen=True)
class _Port:
    """A port of an AXI bus as a vendor project names it: ``m_axi_awaddr`` is signal ``awaddr`` of bus ``m_axi``."""

    name: str
    bus: str
    signal: str
    direction: str
    width: int


def _environment(package: str) -> jinja2.Environment:
    # Undefined names are errors: a template must not quietly leave something out.
    return jinja2.Environment(loader=jinja2.PackageLoader(package), undefined=jinja2.StrictUndefined,
                              keep_trailing_newline=True)


def _bus_ports(config: NpuConfig) -> list[_Port]:
    memory = {"address_width": config.address_width, "data_bits": config.beat_bits}
    buses = (("s_axi", AxiLite().flip()), ("m_axi", Axi4Read(**memory)), ("m_axi", Axi4Write(**memory)))
    ports = []
    for bus, signature in buses:
        for (signal,), member, value in signature.flatten(signature.create()):
            direction = "input" if member.flow == wiring.In else "output"
            ports.append(_Port(f"{bus}_{signal}", bus, signal, direction, len(value)))
    return ports


def _operations() -> list[dict[str, Any]]:
    """Every operation with the bit positions of its fields."""
    operations = []
    for opcode in Opcode:
        fields, position = [], 0
        for number, field in enumerate(HEADER + LAYOUTS[opcode]):
            if number >= len(HEADER):
                fields.append({"name": field.name, "low": position, "high": position + field.bits - 1,
                               "signed": field.signed})
            position += field.bits
        operations.append({"name": opcode.name, "code": int(opcode), "queue": opcode.queue.name.lower(),
                           "fields": fields})
    return operations


def _tables(config: NpuConfig) -> dict[str, Any]:
    header, position = [], 0
    for field in HEADER:
        header.append({"name": field.name, "low": position, "high": position + field.bits - 1})
        position += field.bits
    return {
        "config": config, "magic": MAGIC, "version": VERSION, "registers": REGISTERS, "control": list(Control),
        "status": list(Status), "errors": list(ErrorCode), "error_texts": ERROR_TEXTS,
        "base_alignment": BASE_ALIGNMENT, "counters": COUNTERS, "states": ENGINE_STATES,
        "header": header, "operations": _operations(), "instruction_bytes": INSTRUCTION_BYTES,
    }


def register_map(config: NpuConfig) -> str:
    """Markdown: registers, their bits, error codes and the instruction layouts."""
    return _environment("gen").get_template("register_map.md.jinja").render(_tables(config))


def driver_header(config: NpuConfig) -> str:
    """C and C++ header with the addresses and codes that a driver needs."""
    return _environment("gen").get_template("npugen_regs.h.jinja").render(_tables(config))


def vendor_project(board: Board, config: NpuConfig) -> dict[str, str]:
    """File name -> content of what the board's vendor tool needs beside ``npu.v``."""
    environment = _environment("boards")
    # The widest bus that the board's memory port has up to ours; the interconnect converts the rest.
    narrower = [bits for bits in board.memory_bus_bits if bits <= config.beat_bits]
    values = {
        "board": board, "config": config, "ports": _bus_ports(config),
        "trace_ports": [f"trace_{name}" for name in TRACE],
        "memory_bus_bits": max(narrower, default=min(board.memory_bus_bits)),
    }
    return {name: environment.get_template(template).render(values) for name, template in board.project.items()}
