"""A system's files -> a bitstream, by Yosys, nextpnr and ecppack."""

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from gen.hw.route import RouteReport, read_report
from gen.hw.yosys import SynthesisError
from gen.soc.project import NAME
from gen.soc.targets import Target
from npudriver.files import read_file
from sim.toolchain import child_process, find_ecppack, find_nextpnr, find_yosys

__all__ = ["make_bitstream"]


def make_bitstream(target: Target, folder: Path, *, clock_mhz: float,
                   progress: Callable[[str], None] = lambda step: None) -> RouteReport:
    """Run the Makefile among the files of `gen.soc.project.board_files`, which are in ``folder``.

    Returns what nextpnr says of the clock of system and machine, which is to be ``clock_mhz``; ``soc.bit`` is there
    afterwards. That the clock is not reached is no failure: whether it is, is for the caller to say.

    Raises SynthesisError when a tool fails, ToolError when one is missing.
    """
    tools = {"YOSYS": find_yosys(), "NEXTPNR": find_nextpnr("nextpnr-ecp5"), "ECPPACK": find_ecppack(),
             "PYTHON": [sys.executable]}
    command = ["make", "--no-print-directory", *(f"{name}={shlex.join(tool)}" for name, tool in tools.items())]
    said: list[str] = []
    with child_process(command, folder) as process:
        for line in process.stdout or ():
            said = [*said[-20:], line.strip()]
            if len(line) < 80:
                progress(line.removeprefix("Info: ").strip())
    if process.returncode:
        raise SynthesisError(next((line for line in said if "ERROR" in line), "\n".join(said[-1:])))
    report = json.loads(read_file(folder / f"{NAME}.report.json"))
    return read_report(report, target.board.family, target_mhz=clock_mhz)
