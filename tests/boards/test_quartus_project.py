"""The Quartus projects: their scripts in a mock of the tools' commands, and what they would make."""

from pathlib import Path

import pytest

from boards.registry import BOARDS
from gen.families.registry import get_family
from gen.hw.export import vendor_project
from gen.hw.ports import ports_of
from tests.boards.mock_quartus import MockComponent, MockPlatformDesigner, MockQuartus
from tests.boards.tcl_mock import MockError
from tests.boards.test_vivado_project import change

QUARTUS = [board for board in BOARDS.values() if "quartus_project.tcl" in get_family(board.family).project]
CONFIG = QUARTUS[0].config(64)


def written(board, folder: Path) -> Path:
    (folder / "npu.v").write_text("")
    for name, text in vendor_project(board, board.config(64)).items():
        (folder / name).write_text(text)
    return folder


def component(folder: Path) -> MockComponent:
    mock = MockComponent(folder)
    mock.run("npu_hw.tcl")
    return mock


@pytest.mark.parametrize("board", QUARTUS, ids=lambda board: board.name)
def test_the_component_has_the_ports_of_the_npu(board, tmp_path: Path):
    found = component(written(board, tmp_path)).component
    assert found.files == ["npu.v"]
    ports = {port: (direction.lower(), width) for _, port, _, direction, width in found.ports}
    assert ports == {port.name: (port.direction, port.width) for port in ports_of(CONFIG)
                     if not port.name.startswith("trace_")}
    assert {bus for bus, *_ in found.ports} == {"clock", "reset", "interrupt", "s_axi", "m_axi"}


@pytest.mark.parametrize("board", QUARTUS, ids=lambda board: board.name)
def test_the_system_is_whole(board, tmp_path: Path):
    found = component(written(board, tmp_path)).component
    system = MockPlatformDesigner(tmp_path, found)
    system.run("system.tcl")
    assert system.saved == "system.qsys"
    # What the processor adds to the bridge's first byte.
    offset = int(system.connections["hps.h2f_lw_axi_master/npu.s_axi"]["baseAddress"], 0)
    assert 0xFF20_0000 + offset == board.registers_base
    assert system.options["hps"]["F2SDRAM_Width"] == "128"
    assert "hps.f2h_irq0/npu.interrupt" in system.connections
    assert float(system.options["pll"]["gui_output_clock_frequency0"]) == board.clock_mhz


@pytest.mark.parametrize("board, pin", [("cyclonev", "PIN_V11"), ("de1-soc", "PIN_AF14")])
def test_the_project_makes_a_bitstream(board: str, pin: str, tmp_path: Path):
    quartus = MockQuartus(written(BOARDS[board], tmp_path), "compile")
    quartus.run("quartus_project.tcl")
    assert quartus.steps == ["qsys-script", "qsys-generate", "project_new", "export_assignments", "map", "fit", "asm",
                             "sta", "project_close"]
    assert quartus.pins == {"clk50_clk": pin}
    assert quartus.assignments["DEVICE"] == BOARDS[board].part and quartus.assignments["SDC_FILE"] == "system.sdc"
    assert "get_ports clk50_clk" in (tmp_path / "system.sdc").read_text()


def test_the_npu_by_itself(tmp_path: Path):
    quartus = MockQuartus(written(QUARTUS[0], tmp_path))
    quartus.run("quartus_area.tcl")
    assert quartus.steps == ["project_new", "export_assignments", "project_close"]
    assert quartus.assignments["TOP_LEVEL_ENTITY"] == "npu"


@pytest.mark.parametrize("old, new, said", [
    ("add_connection npu.m_axi hps.f2h_sdram0_data", "add_connection npu.s_axi hps.f2h_sdram0_data", "cannot be"),
    ("hps.f2h_irq0 npu.interrupt", "hps.f2h_irq0 npu.irq", "no interface npu.irq"),
    ("LWH2F_Enable", "LWH2F_On", "has no parameter LWH2F_On"),
    ("add_connection hps.h2f_reset npu.reset", "", "npu.reset is not connected"),
    ("EXPORT_OF hps.memory", "EXPORT_OF hps.mem", "no interface hps.mem"),
])
def test_the_mock_finds_faults(old: str, new: str, said: str, tmp_path: Path):
    found = component(written(QUARTUS[0], tmp_path)).component
    change(tmp_path / "system.tcl", old, new)
    with pytest.raises(MockError, match=said):
        MockPlatformDesigner(tmp_path, found).run("system.tcl")


def test_a_missing_file_is_found(tmp_path: Path):
    written(QUARTUS[0], tmp_path)
    (tmp_path / "system.sdc").unlink()
    with pytest.raises(MockError, match="no file system.sdc"):
        MockQuartus(tmp_path).run("quartus_project.tcl")
