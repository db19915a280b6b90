"""The Vivado project: its script in a mock of Vivado's commands, and what it would make."""

from pathlib import Path

import pytest

from boards.registry import BOARDS
from gen.families.registry import get_family
from gen.hw.export import vendor_project
from gen.hw.logs import standing
from tests.boards.mock_vivado import MockVivado
from tests.boards.tcl_mock import MockError

VIVADO = [board for board in BOARDS.values() if "vivado_project.tcl" in get_family(board.family).project]


def written(board, folder: Path, macs: int = 16) -> Path:
    (folder / "npu.v").write_text("")
    for name, text in vendor_project(board, board.config(macs)).items():
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("board", VIVADO, ids=lambda board: board.name)
@pytest.mark.parametrize("installed", [True, False])
def test_the_script_makes_a_whole_design(board, installed: bool, tmp_path: Path):
    vivado = MockVivado(written(board, tmp_path), boards=(board.vendor_board,) if installed else ())
    vivado.run("vivado_project.tcl")
    assert vivado.properties["project", "part"] == board.part
    assert (("project", "board_part") in vivado.properties) == installed
    assert [said.startswith("WARNING: no files of the board") for said in vivado.said] == [True] * (not installed)
    assert vivado.addresses == {"npu/s_axi/reg0": board.registers_base}
    assert vivado.drivers["processor/pl_ps_irq0" if board.family == "xcup" else "processor/IRQ_F2P"] == "npu/irq"
    assert vivado.drivers["npu/s_axi"] == "registers/M00_AXI" and vivado.drivers["memory/S00_AXI"] == "npu/m_axi"
    assert "launch_runs" not in vivado.steps


@pytest.mark.parametrize("slacks, error", [
    ({}, None), ({"slack": -0.2}, "150 MHz are not reached"), ({"hold": -0.01}, "hold times are not met")])
def test_bit_makes_what_pynq_vitis_and_linux_want(tmp_path: Path, slacks, error):
    """Reports too; a clock that is not reached is an error once all is written."""
    board = BOARDS["zynq7020"]
    vivado = MockVivado(written(board, tmp_path), **slacks)
    if error is None:
        vivado.run("vivado_project.tcl", "bit")
    else:
        with pytest.raises(Exception, match=error):
            vivado.run("vivado_project.tcl", "bit")
    assert vivado.steps[-3:] == ["wait_on_run", "open_run", "bootgen"]
    reports = [f"reports/{name}.rpt" for name in ("timing", "utilisation", "cdc", "methodology")]
    for name in ("npu.bit", "npu.hwh", "npu.xsa", board.linux.bitstream, *reports):
        assert (tmp_path / name).is_file()
    for name in reports:
        assert (tmp_path / name).read_text() == f"{standing(board.name)}\nmade by the mock\n"


def test_strategies(tmp_path: Path):
    vivado = MockVivado(written(BOARDS["zynq7020"], tmp_path))
    vivado.run("vivado_project.tcl", environment={"NPUGEN_STRATEGY": "Performance_Explore"})
    assert vivado.properties["impl_1", "strategy"] == "Performance_Explore"
    with pytest.raises(MockError, match="impl_1 has no strategy fast"):
        MockVivado(tmp_path).run("vivado_project.tcl", environment={"NPUGEN_STRATEGY": "fast"})


@pytest.mark.rtl
@pytest.mark.parametrize("board", [board for board in VIVADO if board.read_ports > 1], ids=lambda board: board.name)
def test_reads_over_two_ports(board, tmp_path: Path):
    """Where a beat is twice as wide as a port: reads on both, writes on the first."""
    # 512 MACs have a beat of 256 bits, 256 one of 128, 16 one of 64.
    macs, narrow = (512, 256) if board.family == "xcup" else (256, 16)
    vivado = MockVivado(written(board, tmp_path, macs))
    vivado.run("vivado_project.tcl")
    assert [vivado.drivers[f"memory/{port}"] for port in ("S00_AXI", "S01_AXI")] == ["npu/m_axi", "npu/m_axi_read0"]
    ultra, half = board.family == "xcup", macs // 4
    first, second, width = (("S_AXI_HP0_FPD", "S_AXI_HP1_FPD", "PSU__SAXIGP3__DATA_WIDTH") if ultra
                            else ("S_AXI_HP0", "S_AXI_HP2", "PCW_S_AXI_HP2_DATA_WIDTH"))
    assert vivado.drivers[f"processor/{first}"] == "memory/M00_AXI"
    assert vivado.drivers["memory1/S00_AXI"] == "npu/m_axi_read1"
    assert vivado.drivers[f"processor/{second}"] == "memory1/M00_AXI"
    assert vivado.properties["processor", f"CONFIG.{width}"] == str(max(board.memory_bus_bits))
    assert ("<4 0>, <5 0>, <6 0>, <7 0>;" in (tmp_path / "npu.dtso").read_text()) == ultra
    wrapper = (tmp_path / "npu_axi.v").read_text()
    assert wrapper.count(f"wire [{half - 1}:0] m_axi_read") == 2 and "output wire m_axi_araddr" not in wrapper
    assert "npu_read_ports" not in (written(board, tmp_path, narrow) / "npu_axi.v").read_text()


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize("name, old, new, said", [
    ("vivado_project.tcl", "create_bd_design system", "", "before create_bd_design"),
    ("vivado_project.tcl", "PSU__USE__IRQ0 {1}", "PSU__USE__IRQ0 {0}", "has no pl_ps_irq0"),
    ("vivado_project.tcl", "PSU__USE__S_AXI_GP2", "PSU__USE__S_AXI_HP0", "has no option PSU__USE__S_AXI_HP0"),
    ("vivado_project.tcl", "npu/irq", "npu/interrupt", "has no interrupt"),
    ("vivado_project.tcl", "[get_bd_intf_pins npu/m_axi]", "[get_bd_intf_pins npu/s_axi]", "slave to slave"),
    ("vivado_project.tcl", "{npu/resetn registers/aresetn", "{registers/aresetn", "npu/resetn is not connected"),
    ("vivado_project.tcl", "npu_axi.v", "npu_axis.v", "no file"),
    ("vivado_project.tcl", "0xA0000000", "0x40000000", "not in the range"),
    ("vivado_project.tcl", "-arch zynqmp", "-arch zynq", "zynq is not the processor's architecture"),
    ("npu.bif", "npu.bit", "system.bit", "no file system.bit"),
    ("vivado_project.tcl", "validate_bd_design", "", "before validate_bd_design"),
    ("npu_axi.v", "m_axi AWADDR", "m_axi AWADR", "has no m_axi"),
])
def test_the_mock_finds_faults(name: str, old: str, new: str, said: str, tmp_path: Path):
    written(BOARDS["zu3eg"], tmp_path)
    change(tmp_path / name, old, new)
    with pytest.raises(MockError, match=said):
        MockVivado(tmp_path).run("vivado_project.tcl", "bit")
