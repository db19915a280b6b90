"""The files that go with the Verilog: register map, driver header, vendor project.

Everything in them comes from the tables that the hardware is made from.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import jinja2

from boards.board import Board
from cores.arch.error_codes import ERROR_CODES, ERROR_TEXTS
from cores.arch.instruction_layout import INDEX_BITS
from cores.arch.isa import HEADER, HEADER_BITS, INSTRUCTION_BYTES, LAYOUTS, QUEUE_OPERATIONS, Opcode, Queue
from cores.arch.isa_features import is_supported, kinds_of, reserved_fields
from cores.arch.registers import (
    BASE_ALIGNMENT,
    ENGINE_STATES,
    LIMITS_PAGE,
    MAGIC,
    VERSION,
    Control,
    Status,
    counters_of,
    port_bits,
    registers_of,
)
from cores.arch.stochastic import LENGTH_BITS
from cores.bus.read_ports import PORTS, ReadPorts
from cores.config import NpuConfig
from cores.emit import emit_component
from gen.families.registry import get_family

from .fields import described_registers
from .logs import standing
from .ports import ports_of

__all__ = ["DESCRIPTIONS", "descriptions", "driver_header", "manifest", "register_map", "vendor_project"]

#: What describes the machine to people and to tools of any vendor; each is made of the template of its name.
DESCRIPTIONS = ("npu.md", "npu.rdl", "npu.ipxact.xml", "npu.core")


def _environment() -> jinja2.Environment:
    # Undefined names are errors: a template must not quietly leave something out.
    return jinja2.Environment(loader=jinja2.PackageLoader("gen"), undefined=jinja2.StrictUndefined,
                              keep_trailing_newline=True)


def _operations(config: NpuConfig) -> list[dict[str, Any]]:
    """Every operation of the machine, with the bit positions and kinds of its fields."""
    operations = []
    for opcode in Opcode:
        if not is_supported(opcode, config):
            continue
        fields, position = [], HEADER_BITS
        reserved = reserved_fields(opcode, config)
        for field in LAYOUTS[opcode]:
            if field.name not in reserved:
                kinds = [f"{kind.name} {kind.value}" for kind in kinds_of(field, config)]
                fields.append({"name": field.name, "low": position, "high": position + field.bits - 1,
                               "signed": field.signed, "kinds": ", ".join(kinds)})
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
        "config": config, "magic": MAGIC, "version": VERSION, "registers": registers_of(config),
        "control": list(Control), "status": list(Status), "errors": list(ERROR_CODES), "error_texts": ERROR_TEXTS,
        "base_alignment": BASE_ALIGNMENT, "counters": counters_of(config), "states": ENGINE_STATES,
        "header": header, "operations": _operations(config), "room": _room(), "instruction_bytes": INSTRUCTION_BYTES,
        "instruction_limit": 1 << INDEX_BITS, "stream_shift_most": (1 << LENGTH_BITS) - 1,
    }


def _room() -> dict[str, int]:
    """Opcodes of each queue that no operation of any machine has."""
    return {queue.name.lower(): QUEUE_OPERATIONS - sum(opcode.queue == queue for opcode in Opcode) - (not queue)
            for queue in Queue}


def register_map(config: NpuConfig) -> str:
    """Markdown: registers, their bits, error codes and the instruction layouts."""
    return _environment().get_template("register_map.md.jinja").render(_tables(config))


def driver_header(config: NpuConfig) -> str:
    """C and C++ header with the addresses and codes that a driver needs."""
    return _environment().get_template("npugen_regs.h.jinja").render(_tables(config))


def descriptions(board: Board, config: NpuConfig) -> dict[str, str]:
    """File name -> content of what describes the build to people, and the machine to tools of any vendor."""
    environment, family = _environment(), get_family(board.family)
    values = {
        **_tables(config), "board": board, "ports": ports_of(config), "registers_bytes": 1 << port_bits(config),
        "described_registers": described_registers(config), "fusesoc": family.fusesoc,
        "standing": standing(board.name), "project": list(family.project),
    }
    return {name: environment.get_template(f"{name}.jinja").render(values) for name in DESCRIPTIONS}


def vendor_project(board: Board, config: NpuConfig) -> dict[str, str]:
    """File name -> content of what the board's vendor tool needs beside ``npu.v``."""
    family = get_family(board.family)
    # The widest bus that the board's memory port has up to ours; the interconnect converts the rest.
    narrower = [bits for bits in board.memory_bus_bits if bits <= config.beat_bits]
    shared = board.shares_reads(config.beat_bits)
    values = {
        "board": board, "config": config, "ports": ports_of(config), "period": f"{1000 / board.clock_mhz:.3f}",
        "standing": standing(board.name),
        "memory_bus_bits": max(narrower, default=min(board.memory_bus_bits)),
        "read_ports": PORTS if shared else 1, "read_ports_verilog": _read_ports(config) if shared else "",
        # What place and route begins with, from ``npu.v`` to ``npu.mapped.json``.
        "synthesis": ["read_verilog npu.v", *family.flat_netlist("npu", "npu.mapped.json")], "linux": board.linux,
        "rewrites": family.scripts(), "nextpnr": family.route_command(board),
        "registers_bytes": 1 << port_bits(config), "limits_page": LIMITS_PAGE if config.limits else 0,
        "version": VERSION, "described_registers": described_registers(config),
        **family.project_values(board),
    }
    return {name: family.render(template, values) for name, template in family.project.items()}


def _read_ports(config: NpuConfig) -> str:
    """Verilog of `ReadPorts`, module ``npu_read_ports``."""
    return read_ports_verilog(config.address_width, config.beat_bits)


def read_ports_verilog(address_width: int, beat_bits: int) -> str:
    """Verilog of two ports for reads of beats of so many bits, module ``npu_read_ports``."""
    return emit_component(ReadPorts(address_width=address_width, data_bits=beat_bits), name="npu_read_ports",
                          separator="_")


def manifest(board: Board, config: NpuConfig, files: Mapping[str, str | bytes]) -> str:
    """JSON: what the ``files`` (name -> content) are of, and their SHA-256. Nothing in it depends on when or where."""
    values = {
        "board": board.name, "part": board.part, "macs": config.macs, "config_digest": f"0x{config.digest:08X}",
        "register_map": VERSION, "registers_base": board.registers_base, "clock_target_mhz": board.clock_mhz,
        "files": {name: hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()
                  for name, content in sorted(files.items())},
    }
    return json.dumps(values, indent=2) + "\n"
