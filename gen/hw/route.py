"""Place and route with nextpnr, for the families that it knows: the clock that a device really gives."""

import importlib.util
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gen.files.write import write_file
from sim.toolchain import ToolError, child_process

from .families import FAMILIES, HIDE_ELEMENTS
from .yosys import SynthesisError, cache_key, run_yosys

__all__ = ["ROUTED_FAMILIES", "RouteReport", "place_and_route"]

#: Family -> options of nextpnr for the part of our board.
ROUTED_FAMILIES = {"ecp5": ("nextpnr-ecp5", "--85k", "--package", "CABGA381", "--speed", "6", "--out-of-context")}


@dataclass(frozen=True)
class RouteReport:
    """``mhz``: of the slowest path between registers. ``path``: what it passes, with nanoseconds of logic and wires."""

    family: str
    mhz: float
    logic_ns: float
    wires_ns: float
    path: tuple[str, ...]
    used: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def _command(tool: str) -> list[str]:
    """The wheel's, else that on PATH. Raises ToolError when there is neither."""
    module = f"yowasp_{tool.replace('-', '_')}"
    if importlib.util.find_spec(module):
        call = f"import sys, {module} as tool; sys.exit(tool.run_{tool.replace('-', '_')}(sys.argv[1:]))"
        return [sys.executable, "-c", call]
    if found := shutil.which(tool):
        return [found]
    raise ToolError(f"{tool} is not installed: pip install yowasp-{tool}")


def _read(report: dict[str, Any], family: str) -> RouteReport:
    clock, found = min(report["fmax"].items(), key=lambda item: item[1]["achieved"])
    path: list[dict[str, Any]] = next((one["path"] for one in report["critical_paths"] if one["from"] == one["to"]), [])
    wires = sum(step["delay"] for step in path if step["type"] == "routing")
    names = [step["net"] for step in path if step.get("net")]
    return RouteReport(
        family=family, mhz=round(found["achieved"], 1), wires_ns=round(wires, 2),
        logic_ns=round(sum(step["delay"] for step in path) - wires, 2), path=tuple(dict.fromkeys(names)),
        used={name: use["used"] for name, use in report["utilization"].items() if use["used"]})


def place_and_route(verilog: str, top: str, family: str, *, target_mhz: float, seed: int = 1,
                    cache: Path | None = None, progress: Callable[[str], None] = lambda step: None) -> RouteReport:
    """Map ``verilog``, place and route it by itself, without pins, and time what came out.

    ``target_mhz``: what the tool aims at; it stops no earlier and fails for no lower rate. ``cache``: folder of earlier
    results.

    Raises ValueError for a family that nextpnr does not know here, SynthesisError when it or Yosys fails, ToolError
    when one of them is missing.
    """
    if family not in ROUTED_FAMILIES:
        raise ValueError(f"family must be one of {', '.join(ROUTED_FAMILIES)}, not {family!r}")
    tool, *options = ROUTED_FAMILIES[family]
    script = "\n".join(["read_verilog design.v", f"hierarchy -check -top {top}", "flatten", HIDE_ELEMENTS,
                        f"{FAMILIES[family].command} -top {top} -json netlist.json", ""])
    options += ["--freq", f"{target_mhz:g}", "--seed", str(seed), "--timing-allow-fail"]
    entry = cache / f"{cache_key(verilog, script, *options)}.route.json" if cache else None
    if entry is not None and entry.is_file():
        with suppress(OSError, ValueError, TypeError):     # a damaged entry is made again
            values = json.loads(entry.read_text())
            return RouteReport(**{**values, "path": tuple(values["path"])})
    command = _command(tool)
    with tempfile.TemporaryDirectory(prefix="npugen-route-") as name:
        folder = Path(name)
        (folder / "design.v").write_text(verilog)
        run_yosys(script, folder, progress)
        said = ""
        with child_process([*command, *options, "--json", "netlist.json", "--report", "report.json"],
                           folder) as process:
            for line in process.stdout or ():
                said = line if "ERROR" in line or not said.startswith("ERROR") else said
                if line.startswith("Info: ") and len(line) < 80:
                    progress(line.removeprefix("Info: ").strip())
        if process.returncode or not (folder / "report.json").is_file():
            raise SynthesisError(f"{tool} failed: {said.strip() or f'status {process.returncode}'}")
        report = _read(json.loads((folder / "report.json").read_text()), family)
    if entry is not None:
        with suppress(OSError):
            write_file(entry, json.dumps(report.to_dict()))
    return report
