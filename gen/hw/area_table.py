"""Makes the table that `gen.hw.area` reckons with: ``python -m gen.hw.area_table [MACHINE ...]``, a machine being
``BOARD:MACS[:FEATURES[:PURPOSE]]``.

Synthesises the machines named, or those of all families, which takes minutes each, and writes all that it knows of them
to ``area.json``; a machine that is there already is replaced. One of which the Verilog and all else that synthesis goes
by is as it was (``key``) is not synthesised again. Results are kept, as those of ``build --synth`` are.
``--list`` synthesises nothing: it prints what the table has; with ``--components`` what each component takes of the
machines named.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from boards.board import Board
from boards.registry import BOARDS, get_board
from cores.config import PURPOSES, NpuConfig
from cores.emit import emit_verilog
from cores.errors import NpugenError
from gen.families.registry import FAMILIES
from gen.files.read import read_file
from gen.files.write import write_file
from sim.folders import cache_folder

from .area import TABLE, from_others, machines
from .export import read_ports_verilog
from .hardware import hardware_digest
from .synth import synthesis_key, synthesize

__all__ = ["MACHINES", "MEASURED_PORTS", "components", "listed", "measure", "measure_ports"]

#: Spread over families, and in each over sizes and over features that go with one component each.
MACHINES = tuple(machine for family in FAMILIES.values() for machine in family.measured)


#: Families and bits of a beat of the read ports that boards' projects have.
MEASURED_PORTS = tuple((family.name, bits) for family in FAMILIES.values() for bits in family.measured_ports)
#: What they are called among machines.
_PORTS = "ports"


def _machine(machine: str) -> tuple[Board, NpuConfig]:
    """Raises BoardError, ConfigError."""
    name, macs, features, purpose = (*machine.split(":"), "", "")[:4]
    board, preset = get_board(name), (int(macs), purpose or PURPOSES[0])
    plain = board.config(*preset)
    return board, board.config(*preset, **plain.feature_fields(features.split(","))) if features else plain


def measure(machine: str, known: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """An entry of the table, made of that of the same machine among ``known`` ones where nothing that decides it has
    changed. Raises BoardError, ConfigError, SynthesisError.
    """
    board, config = _machine(machine)
    verilog = emit_verilog(config)
    entry = {"family": board.family, "config": config.to_dict(), "hardware": hardware_digest(board.family),
             "key": synthesis_key(verilog, "npu", board.family)}
    for one in known:
        if all(one.get(name) == entry[name] for name in ("family", "config", "key")):
            return {**one, **entry}
    report = synthesize(verilog, "npu", board.family, cache=cache_folder() / "synth")
    return {**entry, "components": report.components}


def measure_ports(family: str, beat_bits: int) -> dict[str, Any]:
    """The table's entry of read ports of boards' projects. Raises SynthesisError."""
    address_width = max(board.address_width for board in BOARDS.values() if board.family == family)
    report = synthesize(read_ports_verilog(address_width, beat_bits), "npu_read_ports", family,
                        cache=cache_folder() / "synth")
    return {"family": family, "beat_bits": beat_bits, "totals": report.totals}


def listed() -> list[dict[str, Any]]:
    """The machines in the table, named as in ``MACHINES``: what each takes, also in percent of its board's device.

    ``error_%``: how far the estimate from the other machines is from that. ``now``: whether it was synthesised from the
    sources at hand.
    """
    known = {(one.family, one.config): number for number, one in enumerate(machines())}
    rows = []
    for name in MACHINES:
        board, config = _machine(name)
        number = known.get((board.family, config))
        if number is None:
            continue
        one, reckoned = machines()[number], from_others(number)
        rows.append({
            "machine": name, **one.totals,
            "of_device_%": {kind: 100 * total / board.resources[kind] for kind, total in one.totals.items()},
            "error_%": None if reckoned is None else {
                kind: 100 * (reckoned[kind] / total - 1) for kind, total in one.totals.items() if total},
            "now": one.hardware == hardware_digest(one.family)})
    return rows


def components(names: Sequence[str]) -> list[dict[str, Any]]:
    """What each component of machines that are in the table takes. Raises BoardError, ConfigError, and NpugenError for
    a machine that is not there.
    """
    known = {(one.family, one.config): one for one in machines()}
    rows = []
    for name in names or MACHINES:
        board, config = _machine(name)
        if (board.family, config) not in known:
            raise NpugenError(f"{name} is not in {TABLE.name}: `python -m gen.hw.area_table {name}` synthesises it",
                              code="unknown-name")
        rows.append({"machine": name, **known[board.family, config].components})
    return rows


def _print_components(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        print(row["machine"])
        for name, taken in row.items():
            if name != "machine":
                print(f"  {name}: {', '.join(f'{kind} {count:,.10g}' for kind, count in taken.items() if count)}")


def _print(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        taken = ", ".join(f"{kind} {row[kind]:,.10g} ({share:.0f} %)" for kind, share in row["of_device_%"].items())
        errors = row["error_%"]
        near = ("the others do not say" if errors is None else
                "from the others " + ", ".join(f"{kind} {error:+.1f} %" for kind, error in errors.items()))
        print(f"{row['machine']}: {taken}; {near}{'' if row['now'] else '; of an earlier state'}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m gen.hw.area_table", description="Makes the table of areas.")
    parser.add_argument("machines", nargs="*", metavar="BOARD:MACS[:FEATURES[:PURPOSE]]",
                        help="default: those of all families, "
                             "and ports, the read ports of boards' projects")
    parser.add_argument("--list", action="store_true", help="synthesise nothing; print what the table has")
    parser.add_argument("--components", action="store_true", help="of --list: what each component takes")
    parser.add_argument("--json", action="store_true", help="of --list: as JSON")
    return parser.parse_args()


def main(names: list[str]) -> None:
    table = json.loads(read_file(TABLE)) if TABLE.is_file() else {}
    entries, ports = table.get("machines", []), table.get("ports", [])
    if not names or _PORTS in names:
        ports = [measure_ports(*one) for one in MEASURED_PORTS]
        names = [name for name in names if name != _PORTS] or ([] if names else list(MACHINES))
    _write(entries, ports)
    for name in names:
        entry = measure(name, entries)
        entries = [one for one in entries if (one["family"], one["config"]) != (entry["family"], entry["config"])]
        entries.append(entry)
        entries.sort(key=lambda one: (one["family"], json.dumps(one["config"], sort_keys=True)))
        _write(entries, ports)
        print(name, entry["family"], flush=True)


def _write(entries: Sequence[Mapping[str, Any]], ports: Sequence[Mapping[str, Any]]) -> None:
    rows = {"machines": entries, "ports": ports}
    lists = (f'"{name}": [\n' + ",\n".join(json.dumps(one, sort_keys=True) for one in found) + "\n]"
             for name, found in rows.items())
    write_file(TABLE, "{" + ",\n".join(lists) + "}\n")


if __name__ == "__main__":
    arguments = _arguments()
    try:
        if arguments.list:
            rows = components(arguments.machines) if arguments.components else listed()
            show = _print_components if arguments.components else _print
            print(json.dumps(rows)) if arguments.json else show(rows)
        else:
            main(arguments.machines)
    except NpugenError as error:
        sys.exit(str(error))
