"""Verilog of the machine and of its parts: the same bytes for the same configuration, every time."""

import os
import re

from amaranth.back import rtlil, verilog  # type: ignore[attr-defined]
from amaranth.hdl import Value
from amaranth.hdl._ir import PortDirection  # `convert` takes it, no public module has it
from amaranth.lib import wiring

from .config import NpuConfig

__all__ = ["emit_component", "emit_verilog"]


def _ports(component: wiring.Component, separator: str) -> dict[str, tuple[Value, PortDirection]]:
    ports = {}
    for path, member, value in component.signature.flatten(component):
        direction = PortDirection.Input if member.flow == wiring.In else PortDirection.Output
        ports[separator.join(map(str, path))] = (Value.cast(value), direction)
    return ports


#: Processes become assignments. Yosys's other way of writing them, ``always @*`` blocks that also look at a variable
#: with an initial value, waits for ever by the rules of SystemVerilog, which sets such variables before blocks start.
#: Wires that nothing reads go: they were a fifth of the text.
_SCRIPT = """
proc -norom
opt_clean -purge
memory_collect
attrmap {attributes}
attrmap -modattr {attributes}
write_verilog
"""
#: Notes of Amaranth and Yosys that no other tool reads.
_ATTRIBUTES = ("generator", "top", "src", "amaranth.hierarchy", "amaranth.decoding", "unused_bits")


def emit_component(component: wiring.Component, *, name: str = "top", separator: str = "__") -> str:
    """Verilog of one component, the same by the rules of Verilog (2005) and SystemVerilog.

    A port is called after its path in the signature, joined by ``separator``: stream ``o`` becomes ``o__valid``,
    ``o__ready`` and ``o__payload``. Ports with a layout are one vector each. Clock and reset are ``clk`` and ``rst``.

    Raises amaranth's YosysError when no Yosys of version 0.40 or later is installed.
    """
    # A system Yosys of another version would write other bytes, so the pinned wheel goes first.
    os.environ.setdefault("AMARANTH_USE_YOSYS", "builtin,system")
    yosys = verilog.find_yosys(lambda version: version >= (0, 40))
    # Source locations are paths of this machine: without them the text depends on the design alone.
    design = rtlil.convert(component, name=name, ports=_ports(component, separator), emit_src=False)
    script = _SCRIPT.format(attributes=" ".join(f"-remove {attribute}" for attribute in _ATTRIBUTES))
    return _share_modules(yosys.run(["-q", "-"], f"read_rtlil <<rtlil\n{design}\nrtlil\n{script}"))


_MODULE = re.compile(r"^module (\S+) ?\(.*?^endmodule\n", re.MULTILINE | re.DOTALL)
#: The module an instance is of. Escaped names end with a space; instances stand at the start of a line.
_INSTANCE = re.compile(r"(?<=^  )\\\S+(?=  ?\S+  ?\()", re.MULTILINE)


def _share_modules(text: str) -> str:
    """Keep one of several modules that differ only in name, such as the rows of the array.

    Amaranth writes a module for every instance. One for all of a kind makes the text a tenth as long and spares every
    tool that reads it the repetition.
    """
    shared = True
    while shared:  # modules become alike when those inside them have become one
        text, shared = _share_alike(text)
    return text


def _share_alike(text: str) -> tuple[str, bool]:
    kept: dict[str, str] = {}     # text without its name -> name
    twins: dict[str, str] = {}    # name -> name of the module kept
    for match in _MODULE.finditer(text):
        name = match.group(1)
        first = kept.setdefault(match.group().replace(name, "", 1), name)
        if first != name:
            twins[name] = first
    text = _MODULE.sub(lambda match: "" if match.group(1) in twins else match.group(), text)
    return _INSTANCE.sub(lambda match: twins.get(match.group(), match.group()), text), bool(twins)


def emit_verilog(config: NpuConfig) -> str:
    """Verilog of the whole machine: module ``npu``, ports such as ``s_axi_awaddr`` and ``trace_load_state``."""
    from .npu import Npu  # imported here: the parts are emitted for their own benches without the whole

    return emit_component(Npu(config), name="npu", separator="_")
