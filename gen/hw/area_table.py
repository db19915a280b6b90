"""Makes the table that `gen.hw.area` reckons with: ``python -m gen.hw.area_table [BOARD:MACS[:FEATURES] ...]``.

Synthesises the machines named, or those of all families, which takes minutes each, and writes all that it knows of them
to ``area.json``; a machine that is there already is replaced. Results are kept, as those of ``build --synth`` are.
"""

import json
import sys
from typing import Any

from boards.registry import get_board
from cores.emit import emit_verilog
from cores.errors import NpugenError
from gen.families.registry import FAMILIES
from gen.files.read import read_file
from gen.files.write import write_file
from sim.folders import cache_folder

from .area import TABLE
from .hardware import hardware_digest
from .synth import synthesize

__all__ = ["MACHINES", "measure"]

#: Spread over families, and in each over sizes and over features that go with one component each.
MACHINES = tuple(machine for family in FAMILIES.values() for machine in family.measured)


def measure(machine: str) -> dict[str, Any]:
    """An entry of the table. Raises BoardError, ConfigError, SynthesisError."""
    name, macs, features = (*machine.split(":"), "")[:3]
    board = get_board(name)
    plain = board.config(int(macs))
    config = board.config(int(macs), **plain.feature_fields(features.split(","))) if features else plain
    report = synthesize(emit_verilog(config), "npu", board.family, cache=cache_folder() / "synth")
    return {"family": board.family, "config": config.to_dict(), "components": report.components,
            "hardware": hardware_digest(board.family)}


def main(names: list[str]) -> None:
    entries = json.loads(read_file(TABLE))["machines"] if TABLE.is_file() else []
    for name in names or MACHINES:
        entry = measure(name)
        entries = [one for one in entries if (one["family"], one["config"]) != (entry["family"], entry["config"])]
        entries.append(entry)
        entries.sort(key=lambda one: (one["family"], json.dumps(one["config"], sort_keys=True)))
        lines = ",\n".join(json.dumps(one, sort_keys=True) for one in entries)
        write_file(TABLE, f'{{"machines": [\n{lines}\n]}}\n')
        print(name, entry["family"], flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except NpugenError as error:
        sys.exit(str(error))
