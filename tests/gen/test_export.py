"""Files beside the Verilog: they fit it and the tools that read them."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from boards.registry import BOARDS, get_board
from cores.arch.error_codes import ErrorCode
from cores.arch.isa import Opcode, Queue
from cores.arch.isa_features import is_supported
from cores.arch.registers import address_of, registers_of
from cores.config import NpuConfig
from cores.emit import emit_verilog
from gen.families.registry import get_family
from gen.hw.export import driver_header, register_map, vendor_project
from sim.toolchain import verilator_environment
from tests.emitted import emitted
from tests.hollow import hollow_npu
from tests.selection import with_full

CONFIG = NpuConfig.preset(16)


@pytest.fixture(scope="module")
def npu_verilog() -> str:
    return emitted(CONFIG)


def test_driver_header_compiles_as_c_and_cpp(tmp_path: Path):
    (tmp_path / "npugen_regs.h").write_text(driver_header(CONFIG))
    source = f"""#include "npugen_regs.h"
        int check[NPUGEN_REG_STATUS == {address_of("status")} && NPUGEN_ERROR_TIMEOUT == {int(ErrorCode.TIMEOUT)}
                  && NPUGEN_CONFIG_VALUE == {CONFIG.digest}u ? 1 : -1];\n"""
    for language in ("c", "c++"):
        subprocess.run(["g++", "-x", language, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", tmp_path, "-"],
                       input=source, text=True, check=True)


def test_register_map_lists_everything():
    text = register_map(CONFIG)
    for register in registers_of(CONFIG):
        assert f"| 0x{register.address:03X} | `{register.name}` |" in text
    for error in ErrorCode:
        assert f"| {error.value} | {error.name} |" in text
    for opcode in Opcode:
        assert (f"| {opcode.name} | {opcode.value} |" in text) == is_supported(opcode, CONFIG)
    assert "`pad_value` 92..85 signed" in text  # after 21 header bits and 12 + 20 + 24 + 4 + 4 bits of fields
    assert "`kind` 54..51 (DENSE 0, INDEXED 1)" in text
    free = 32 - sum(opcode.queue == Queue.LOAD for opcode in Opcode)
    assert f"load {free}, " in text


@pytest.mark.parametrize("name", ["zu3eg", "zynq7020"])
def test_vivado_wrapper_fits_the_npu(name: str, npu_verilog: str, tmp_path: Path):
    _fits(npu_verilog, vendor_project(get_board(name), CONFIG)["npu_axi.v"], tmp_path)


@pytest.mark.parametrize("npu", with_full([hollow_npu, emit_verilog], emit_verilog))
@pytest.mark.parametrize("board, lanes", [("zu3eg", 32), ("zynq7020", 16)])
def test_vivado_wrapper_with_two_read_ports_fits_the_npu(board: str, lanes: int, npu: Callable[[NpuConfig], str],
                                                         tmp_path: Path):
    """To its ports; and with all that is behind them, no signal follows from itself."""
    wide = NpuConfig(oc_lanes=lanes, ic_lanes=lanes, nnz_lanes=1, pixel_lanes=1, select_fanin=lanes, acc_depth=64,
                     weight_depth=512, queue_depth=4, address_width=get_board(board).address_width)
    wrapper = vendor_project(get_board(board), wide)["npu_axi.v"]
    assert "npu_read_ports read_ports (" in wrapper
    _fits(npu(wide), wrapper, tmp_path)


def _fits(npu: str, wrapper: str, tmp_path: Path) -> None:
    (tmp_path / "npu.v").write_text(npu)
    (tmp_path / "npu_axi.v").write_text(wrapper)
    environment = verilator_environment()
    command = ["verilator", "--lint-only", "-Wall", "-Wno-fatal", "-Wno-DECLFILENAME", "-Wno-PINCONNECTEMPTY",
               "--top-module", "npu_axi", "npu_axi.v", "npu.v"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    # After the wrapper is what Yosys has written, like npu.v.
    own = wrapper[:wrapper.index("endmodule")].count("\n") + 1
    about_wrapper = [line for line in done.stdout.splitlines()
                     if (found := re.match(r"%(?:Warning|Error)\S* npu_axi\.v:(\d+)", line)) and int(found[1]) <= own]
    assert not about_wrapper, "\n".join(about_wrapper)
    assert "%Error:" not in done.stdout, done.stdout
    assert "UNOPTFLAT" not in done.stdout, "a signal, or a part of it, follows from itself"


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_project_files_are_complete(board):
    files = vendor_project(board, CONFIG)
    assert list(files) == list(get_family(board.family).project)
    for name, text in files.items():
        assert board.title in text, name
        if name.endswith(".tcl"):
            plain = re.sub(r"\\.", "", text)
            for pair in ("{}", "[]"):
                assert plain.count(pair[0]) == plain.count(pair[1]), f"{name}: unbalanced {pair}"
            assert plain.count('"') % 2 == 0


@pytest.mark.slow
def test_bus_width_is_what_the_board_takes():
    wide = NpuConfig.preset(256)
    assert wide.beat_bits == 128
    assert "PCW_S_AXI_HP0_DATA_WIDTH {64}" in vendor_project(get_board("zynq7020"), wide)["vivado_project.tcl"]
    assert "PSU__SAXIGP2__DATA_WIDTH {128}" in vendor_project(get_board("zu3eg"), wide)["vivado_project.tcl"]
