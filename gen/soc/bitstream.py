"""A system's files -> a bitstream, by Yosys, nextpnr and the packer of the device's family."""

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from gen.families.registry import get_family
from gen.hw.route import RouteReport, read_report
from gen.hw.yosys import SynthesisError
from gen.soc.project import NAME, system_build
from gen.soc.targets import Target
from npudriver.files import read_file
from sim.toolchain import child_process, find_nextpnr, find_tool, find_yosys

__all__ = ["make_bitstream"]


def make_bitstream(target: Target, folder: Path, *, clock_mhz: float,
                   progress: Callable[[str], None] = lambda step: None) -> RouteReport:
    """Run the Makefile among the files of `gen.soc.project.board_files`, which are in ``folder``.

    Returns what nextpnr says of the clock of system and machine, which is to be ``clock_mhz``; ``soc.bit`` is there
    afterwards. That the clock is not reached is no failure: whether it is, is for the caller to say.

    Raises SynthesisError when a tool fails, ToolError when one is missing.
    """
    build, nextpnr = system_build(target), get_family(target.board.family).route_command(target.board)[0]
    tools = {"YOSYS": find_yosys(), "NEXTPNR": find_nextpnr(nextpnr),
             build.packer: find_tool(build.tool, wheel=build.wheel, script=build.script), "PYTHON": [sys.executable]}
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
