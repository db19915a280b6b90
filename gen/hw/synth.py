"""Area of a design as Yosys maps it: LUTs, flip-flops, DSP slices and block RAMs, in all and per component.

How it is counted: every cell of the technology is counted after mapping, before place and route. A LUT of any size is
one LUT, and so is an inverter left over; a LUT used as memory or shift register is counted by the LUTs it occupies.
Carry chains and the multiplexers after LUTs sit in the same slices and are not counted, nor are registers and adders
inside of a DSP slice. An 18 Kibit block RAM is half a ``bram36``.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gen.families.family import HIDE_ELEMENTS, Family
from gen.families.registry import get_family
from gen.files.read import read_file
from gen.files.results import kept

from .yosys import SynthesisError, cache_key, mapped

__all__ = ["Report", "synthesize"]


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
        resource, each = family.counts.get(cell, (None, 0.0))
        if resource:
            totals[resource] += each * number
    return {name: int(value) if value == int(value) else round(value, 1) for name, value in totals.items()}


def _statistics(verilog: str, commands: list[str], family: Family,
                progress: Callable[[str], None]) -> dict[str, dict[str, int]]:
    """Module name -> cell name -> count, after mapping; of families whose netlists are rewritten, after that."""
    if not family.passes:
        with mapped(verilog, "\n".join([*commands, "tee -q -o statistics.json stat -json", ""]), progress) as folder:
            modules = json.loads(read_file(folder / "statistics.json"))["modules"]
        counts = {name: module["num_cells_by_type"] for name, module in modules.items()}
    else:
        with mapped(verilog, "\n".join([*commands, "write_json netlist.json", ""]), progress) as folder:
            family.rewrite(folder / "netlist.json")
            modules = json.loads(read_file(folder / "netlist.json"))["modules"]
        counts = {name: Counter(cell["type"] for cell in module["cells"].values()) for name, module in modules.items()
                  if not {"blackbox", "whitebox"} & module["attributes"].keys()}
    # Names with a dollar are not of the technology: notes on the former hierarchy.
    return {module.lstrip("\\"): {cell.lstrip("\\"): int(count) for cell, count in found.items()
                                  if not cell.startswith("$")}
            for module, found in counts.items()}


def synthesize(verilog: str, top: str, family: str, *, cache: Path | None = None,
               progress: Callable[[str], None] = lambda step: None) -> Report:
    """Map ``verilog`` to a device family and count what it takes.

    The hierarchy directly below ``top`` is kept, so nothing is optimised across it: the sum is an upper bound of a
    flat run. ``components`` has one entry for each instance in ``top`` and ``(top)`` for the logic of ``top`` itself.
    ``cache``: folder of earlier results, keyed by everything that decides them. ``progress`` is called with the name of
    each pass.

    Raises ValueError for an unknown family, SynthesisError when Yosys fails, ToolError when there is none.
    """
    target = get_family(family)
    instances = _component_modules(verilog, top)
    commands = _commands(instances, top, family)

    def make() -> Report:
        modules = _statistics(verilog, commands, target, progress)
        cells: dict[str, int] = {}
        for module in (*instances.values(), top):
            for cell, count in modules.get(module, {}).items():
                if cell not in modules:
                    cells[cell] = cells.get(cell, 0) + count
        components = {instance: _count(target, modules.get(module, {})) for instance, module in instances.items()}
        components["(top)"] = _count(target, modules.get(top, {}))
        return Report(family, _count(target, cells), dict(sorted(cells.items())), components)

    return kept(cache, f"{synthesis_key(verilog, top, family)}.kept", lambda values: Report(**values), make)


def synthesis_key(verilog: str, top: str, family: str) -> str:
    """Digest of all that decides what `synthesize` gives. Raises ValueError for an unknown family."""
    target = get_family(family)
    commands = _commands(_component_modules(verilog, top), top, family)
    return cache_key(verilog, *commands, "".join(target.scripts().values()), repr((target.resources, target.counts)))


def _commands(instances: Mapping[str, str], top: str, family: str) -> list[str]:
    """Yosys's, with the hierarchy directly below ``top`` kept."""
    keep = [f"setattr -mod -set keep_hierarchy 1 {module}" for module in sorted(set(instances.values()))]
    return ["read_verilog design.v", f"hierarchy -check -top {top}", *keep, HIDE_ELEMENTS,
            *get_family(family).mapping(top)]
