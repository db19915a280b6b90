"""The Quartus projects: their scripts in a mock of the tools' commands, and what they would make."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from boards.registry import BOARDS
from gen.families.registry import get_family
from gen.hw.export import vendor_project
from gen.hw.logs import standing
from gen.hw.ports import ports_of
from tests.boards.mock_quartus import MockComponent, MockPlatformDesigner, MockQuartus, MockTiming
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
    # The preset for a system of one's own sets the same of the processor.
    (preset,) = ElementTree.fromstring((tmp_path / "npu_processor.qprs").read_text()).iter("preset")
    assert preset.get("kind") == "altera_hps"
    assert {one.get("name"): one.get("value") for one in preset} == system.options["hps"]


@pytest.mark.parametrize("board, pin", [("cyclonev", "PIN_V11"), ("de1-soc", "PIN_AF14")])
def test_the_project_makes_a_bitstream(board: str, pin: str, tmp_path: Path):
    quartus = MockQuartus(written(BOARDS[board], tmp_path), "compile")
    quartus.run("quartus_project.tcl")
    assert quartus.steps == ["qsys-script", "qsys-generate", "project_new", "export_assignments", "map", "fit", "asm",
                             "sta", "drc", "project_close", "quartus_sta"]
    assert quartus.pins == {"clk50_clk": pin}
    assert quartus.assignments["DEVICE"] == BOARDS[board].part and quartus.assignments["SDC_FILE"] == "system.sdc"
    assert "get_ports clk50_clk" in (tmp_path / "system.sdc").read_text()


REPORTS = ("timing", "cdc", "unconstrained", "utilisation", "design_assistant")


@pytest.mark.parametrize("slacks, error", [
    ({}, None), ({("setup", "slow_85c"): -0.2}, "setup -0.2 ns at Corner slow_85c"),
    ({("hold", "fast_0c"): -0.01}, "hold -0.01 ns at Corner fast_0c"),
    ({("recovery", "slow_0c"): -0.3}, "recovery -0.3 ns at Corner slow_0c")])
def test_compile_reports_and_ends_by_slack(tmp_path: Path, slacks, error):
    """At all corners; all is written before an error."""
    quartus = MockQuartus(written(QUARTUS[0], tmp_path), "compile", slacks=slacks)
    if error is None:
        quartus.run("quartus_project.tcl")
    else:
        with pytest.raises(Exception, match=error):
            quartus.run("quartus_project.tcl")
    for name in REPORTS:
        text = (tmp_path / f"reports/{name}.rpt").read_text()
        assert text.startswith(f"{standing(QUARTUS[0].name)}\n") and len(text.splitlines()) > 1
    timing = (tmp_path / "reports/timing.rpt").read_text()
    for corner in MockTiming.CORNERS:
        assert f"Corner: Corner {corner}" in timing
        for check in ("setup", "hold"):
            assert f"{corner} -{check} -append" in timing and f"{corner} -{check} -npaths 10" in timing


def test_an_edition_without_design_assistant(tmp_path: Path):
    quartus = MockQuartus(written(QUARTUS[0], tmp_path), "compile", assistant=False)
    quartus.run("quartus_project.tcl")
    (said,) = quartus.said
    assert said.startswith("WARNING: no report of the Design Assistant")
    assert quartus.steps[-1] == "quartus_sta"


def test_seeds_and_strategies(tmp_path: Path):
    quartus = MockQuartus(written(QUARTUS[0], tmp_path))
    quartus.run("quartus_project.tcl", environment={"NPUGEN_SEED": "3", "NPUGEN_STRATEGY": "AGGRESSIVE PERFORMANCE"})
    assert (quartus.assignments["SEED"], quartus.assignments["OPTIMIZATION_MODE"]) == ("3", "AGGRESSIVE PERFORMANCE")
    with pytest.raises(MockError, match="OPTIMIZATION_MODE cannot be FAST"):
        MockQuartus(tmp_path).run("quartus_project.tcl", environment={"NPUGEN_STRATEGY": "FAST"})
    plain = MockQuartus(tmp_path)
    plain.run("quartus_project.tcl")
    assert not {"SEED", "OPTIMIZATION_MODE"} & set(plain.assignments)


@pytest.mark.parametrize("old, new, said", [
    ("read_sdc", "", "set_operating_conditions before read_sdc"),
    ("    update_timing_netlist", "", "a report of"),
    ("-append", "", "replaces those before"),
])
def test_the_mock_finds_faults_of_reports(old: str, new: str, said: str, tmp_path: Path):
    written(QUARTUS[0], tmp_path)
    change(tmp_path / "quartus_reports.tcl", old, new)
    with pytest.raises(MockError, match=said):
        MockTiming(tmp_path).run("quartus_reports.tcl")


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
