"""Place and route with nextpnr, for boards whose device it knows: the clock that this really gives."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from boards.board import Board
from gen.families.registry import get_family
from gen.files.read import read_file
from gen.files.results import kept
from sim.toolchain import child_process, find_nextpnr

from .flat import FlatDesign
from .yosys import SynthesisError, cache_key

__all__ = ["RouteReport", "place_and_route", "read_report"]

_REPORT = "report.json"


@dataclass(frozen=True)
class RouteReport:
    """``mhz``: of the slowest path between registers. ``path``: what it passes, with nanoseconds of logic and wires.

    ``seeds``: of the placer, by number or ``default``, and the clock that each gave; this report is of the fastest.
    """

    family: str
    mhz: float
    logic_ns: float
    wires_ns: float
    path: tuple[str, ...]
    used: dict[str, int]
    seeds: dict[str, float] = field(default_factory=dict)

    @property
    def critical(self) -> str:
        """The slowest path in a line, by the signals that it passes."""
        # What Yosys appends for a net inside of cells: their kinds and ports.
        inside = re.compile(rf"_({'|'.join(map(re.escape, get_family(self.family).timing))})_.*|\$.*")
        signals = dict.fromkeys(name for net in self.path if (name := inside.sub("", net)))
        return f"{self.logic_ns:.2f} ns of logic and {self.wires_ns:.2f} ns of wires through {' > '.join(signals)}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def read_report(report: dict[str, Any], family: str, *, target_mhz: float | None = None) -> RouteReport:
    """Of the slowest clock, or of the slowest of those that the tool was to make run at ``target_mhz``.

    Raises SynthesisError when there is none.
    """
    rates = {net: found["achieved"] for net, found in report["fmax"].items()
             if target_mhz is None or abs(found["constraint"] - target_mhz) < 0.01 * target_mhz}
    if not rates:
        raise SynthesisError("nextpnr has timed no clock" + (f" of {target_mhz:g} MHz" if target_mhz else ""))
    slowest = min(rates, key=lambda net: rates[net])
    paths = (one["path"] for one in report["critical_paths"] if one["from"] == one["to"] and slowest in one["from"])
    path: list[dict[str, Any]] = next(paths, [])
    wires = sum(step["delay"] for step in path if step["type"] == "routing")
    names = [step["net"] for step in path if step.get("net")]
    return RouteReport(
        family=family, mhz=round(rates[slowest], 1), wires_ns=round(wires, 2),
        logic_ns=round(sum(step["delay"] for step in path) - wires, 2), path=tuple(dict.fromkeys(names)),
        used={name: use["used"] for name, use in report["utilization"].items() if use["used"]})


def _run_nextpnr(command: Sequence[str], folder: Path, progress: Callable[[str], None]) -> dict[str, Any]:
    """Run the tool in ``folder``; returns its report. Raises SynthesisError with the first error that it says."""
    said = ""
    with child_process([*command, "--report", _REPORT], folder) as process:
        for line in process.stdout or ():
            said = line if "ERROR" in line or not said.startswith("ERROR") else said
            if line.startswith("Info: ") and len(line) < 80:
                progress(line.removeprefix("Info: ").strip())
    if process.returncode or not (folder / _REPORT).is_file():
        raise SynthesisError(f"nextpnr failed: {said.strip() or f'status {process.returncode}'}")
    return json.loads(read_file(folder / _REPORT))


def place_and_route(design: FlatDesign, board: Board, *, seeds: int = 1, cache: Path | None = None,
                    progress: Callable[[str], None] = lambda step: None) -> RouteReport:
    """Place and route a design by itself, without pins, and time what came out; the fastest of so many ``seeds``.

    The tool aims at the board's clock and does not fail below it. ``cache``: folder of earlier results, one of each
    seed.

    Raises ValueError for a board that has no nextpnr, SynthesisError when it or Yosys fails, ToolError when one of them
    is missing.
    """
    family = get_family(board.family)
    if family.nextpnr is None or not board.nextpnr:
        raise ValueError(f"{board.name} has no nextpnr")
    tool, *options = family.route_command(board)
    options += ["--freq", f"{board.clock_mhz:g}", *family.nextpnr.alone]
    command = find_nextpnr(tool)    # one that is missing is told before minutes of mapping

    def routed(seed: int) -> RouteReport:
        mine = [*options, *(["--seed", str(seed)] if seed > 1 else [])]
        remark = progress if seeds == 1 else lambda step: progress(f"seed {seed} of {seeds}: {step}")

        def make() -> RouteReport:
            netlist = design.netlist(remark)
            report = _run_nextpnr([*command, *mine, "--json", netlist.name], netlist.parent, remark)
            return read_report(report, board.family)

        return kept(cache, f"{cache_key(design.key, *mine)}.route.kept", _from_dict, make)

    # The first is the tool's own, which has no number.
    reports = {str(seed) if seed > 1 else "default": routed(seed) for seed in range(1, seeds + 1)}
    best = max(reports.values(), key=lambda report: report.mhz)
    return replace(best, seeds={seed: report.mhz for seed, report in reports.items()})


def _from_dict(values: dict[str, Any]) -> RouteReport:
    return RouteReport(**{**values, "path": tuple(values["path"])})
