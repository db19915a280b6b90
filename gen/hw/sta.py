"""Yosys's own timing of a mapped netlist: the delays of its library's cells, with wires that take no time.

A second opinion beside the delay model of `gen.hw.timing`, by numbers that others keep. Paths begin and end at cells
whose model in the library has no delays: multipliers, block RAMs and LUTs used as memory, for the most part.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from gen.files.read import read_text

from .flat import FlatDesign
from .yosys import LOG, run_yosys

__all__ = ["cell_delay"]

#: The design alone, in the folder of its netlist.
_TOP = "top.json"
_LATEST = re.compile(r"^Latest arrival time in '.*' is (\d+):$", re.MULTILINE)


def cell_delay(design: FlatDesign, module: dict[str, Any], progress: Callable[[str], None]) -> float | None:
    """Nanoseconds of the longest path of ``design``, whose netlist is ``module``.

    None for a family whose library has no delays, or without any path.

    Raises SynthesisError when Yosys fails, ToolError when there is no Yosys.
    """
    library = design.family.synthesis.library
    if library is None:
        return None
    folder = design.netlist(progress).parent
    # Without the library's modules, which are read again with their delays.
    (folder / _TOP).write_text(json.dumps({"modules": {design.top: module}}))
    progress("sta")
    run_yosys("\n".join([f"read_verilog -lib -specify {library}", f"read_json {_TOP}", f"hierarchy -top {design.top}",
                         "sta", ""]), folder, progress)
    found = _LATEST.search(read_text(folder / LOG, errors="replace"))
    return int(found.group(1)) / 1000 if found else None
