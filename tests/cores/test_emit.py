"""The emitted Verilog: the same bytes every time, the ports that scripts rely on, nothing that a linter objects to."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cores.config import NpuConfig
from cores.emit import _share_modules, emit_verilog
from sim.toolchain import find_yosys, verilator_environment
from tests.bench import WAIVED

ROOT = Path(__file__).parents[2]
CONFIG = NpuConfig.preset(16)
PORTS = """
    clk rst irq
    s_axi_{awaddr[11:0],awprot[2:0],awvalid,awready,wdata[31:0],wstrb[3:0],wvalid,wready,bresp[1:0],bvalid,bready}
    s_axi_{araddr[11:0],arprot[2:0],arvalid,arready,rdata[31:0],rresp[1:0],rvalid,rready}
    m_axi_{arid,araddr[39:0],arlen[7:0],arsize[2:0],arburst[1:0],arcache[3:0],arprot[2:0],arvalid,arready}
    m_axi_{rid,rdata[63:0],rresp[1:0],rlast,rvalid,rready}
    m_axi_{awid,awaddr[39:0],awlen[7:0],awsize[2:0],awburst[1:0],awcache[3:0],awprot[2:0],awvalid,awready}
    m_axi_{wdata[63:0],wstrb[7:0],wlast,wvalid,wready,bid,bresp[1:0],bvalid,bready}
    trace_{load_state[3:0],load_index[23:0],compute_state[3:0],compute_index[23:0],store_state[3:0],store_index[23:0]}
    trace_{fetch_index[23:0],fetch_waiting,stores[15:0],halt}
"""
#: Besides what Yosys writes on purpose: one file of modules whose signals may be called as an instance is, or be
#: without use in this configuration.
NOT_MEANT = [*WAIVED, "DECLFILENAME", "VARHIDDEN", "UNUSEDSIGNAL"]
_SCRIPT = """
import sys
from cores.config import NpuConfig
from cores.emit import emit_verilog
sys.stdout.write(emit_verilog(NpuConfig.preset(16)))
"""


@pytest.fixture(scope="module")
def verilog():
    return emit_verilog(CONFIG)


def test_instances_of_any_name_are_of_the_module_that_is_kept():
    """The second is called as a port of its parent is, so that Yosys has another name for it, which it escapes."""
    module = "\nmodule \\top.{name} (clk);\n  input clk;\nendmodule\n"
    text = ("module top(other);\n  \\top.first  first (\n    .clk(other)\n  );\n"
            "  \\top.other$9  \\other$9  (\n    .clk(other)\n  );\nendmodule\n"
            + module.format(name="first") + module.format(name="other$9"))
    shared = _share_modules(text)
    assert re.findall(r"^module (\S+)", shared, re.MULTILINE) == ["top(other);", "\\top.first"]
    assert re.findall(r"^  (\\top\S+)  ?(\S+)  ?\(", shared, re.MULTILINE) == [
        ("\\top.first", "first"), ("\\top.first", "\\other$9")]


def expected_ports() -> set[str]:
    ports = set()
    for line in PORTS.split("\n"):
        prefix, _, group = line.strip().partition("{")
        ports |= {prefix + name for name in group.rstrip("}").split(",")} if group else set(prefix.split())
    return ports


def test_ports(verilog):
    body = re.search(r"^module npu\(.*?^endmodule", verilog, re.MULTILINE | re.DOTALL).group()
    found = re.findall(r"^  (?:input|output) (?:reg )?(?:(\[\d+:0\]) )?(\w+);", body, re.MULTILINE)
    assert {name + width for width, name in found} == expected_ports()


def test_same_bytes_every_time(verilog, tmp_path):
    """As in this process, whose hashes are others."""
    hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _SCRIPT]
    result = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert result.stdout.decode() == verilog


def test_no_paths(verilog):
    assert str(ROOT) not in verilog
    assert "src =" not in verilog


@pytest.mark.parametrize("language", ["1364-2005", "1800-2017"])
def test_lint(verilog, tmp_path, language):
    (tmp_path / "npu.v").write_text(verilog)
    result = subprocess.run(
        ["verilator", "--lint-only", "-Wall", "--language", language, *(f"-Wno-{name}" for name in NOT_MEANT),
         "--top-module", "npu", "npu.v"],
        cwd=tmp_path, env=verilator_environment(), capture_output=True, text=True,
    )
    assert result.returncode == 0, result.stderr[:4000]


@pytest.mark.full
def test_yosys_reads_both_languages(verilog, tmp_path):
    """The same cells by both, of all modules together."""
    (tmp_path / "npu.v").write_text(verilog)
    found = []
    for option in ("", "-sv"):
        read = f"read_verilog {option} npu.v; hierarchy -check -top npu; proc; check -assert"
        command = [*find_yosys(), "-q", "-p", f"{read}; tee -q -o cells.txt stat"]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
        found.append((tmp_path / "cells.txt").read_text())
    assert found[0] == found[1]


def test_nothing_waits_for_a_first_event(verilog):
    """A block that does would be asleep where SystemVerilog sets variables before blocks start."""
    assert "always @(posedge clk)" in verilog
    assert set(re.findall(r"always\S* .*", verilog)) == {"always @(posedge clk)", "always @(posedge clk) begin"}


def test_the_interrupt_is_a_register(verilog, tmp_path):
    """No path without a clock leads to it, from no input and no register: it has no glitches."""
    # What a module drives that is left out has no driver here.
    parts = (part.group() for part in re.finditer(r"^module .*?^endmodule\n", verilog, re.MULTILINE | re.DOTALL))
    (tmp_path / "npu.v").write_text("".join(part for part in parts if re.search(r"irq|wvalid", part)))
    script = "read_verilog npu.v; hierarchy -top npu; proc; flatten; opt_clean; write_json npu.json"
    subprocess.run([*find_yosys(), "-q", "-p", script], cwd=tmp_path, check=True, capture_output=True)
    module = json.loads((tmp_path / "npu.json").read_text())["modules"]["npu"]

    def source(port: str) -> str:
        """The cell that drives ``port``."""
        bit, = module["ports"][port]["bits"]
        return next(cell["type"] for cell in module["cells"].values() for name, bits in cell["connections"].items()
                    if cell.get("port_directions", {}).get(name) == "output" and bit in bits)

    assert "dff" in source("irq")
    assert source("m_axi_wvalid") == "$and"     # follows registers: that one is found is no matter of course


def test_protection_of_bursts(verilog):
    """Both address channels have the configuration's AxPROT."""
    other = CONFIG.axi_prot ^ 2
    for prot, text in ((CONFIG.axi_prot, verilog), (other, emit_verilog(NpuConfig.preset(16, axi_prot=other)))):
        for channel in ("ar", "aw"):
            assert f"  assign m_axi_{channel}prot = 3'h{prot};\n" in text
