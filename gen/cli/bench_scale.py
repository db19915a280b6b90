"""The part of `gen bench` that measures presets of all sizes."""

import argparse
import dataclasses
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from gen.cli.bench_part import Part, Rows, named_folder
from gen.cli.common import console, status
from gen.cli.errors import UsageError
from gen.cli.journal import Journal
from gen.cli.machine import chosen_board, chosen_config
from gen.cli.plots import write_plots
from sim.folders import cache_folder

if TYPE_CHECKING:
    from gen.bench.scale import Size

__all__ = ["PARTS"]

_PLOT = "scale"
#: Trained in floats, for what pruning leaves of it.
_TRAINED = "resnet20_cifar10_bn.onnx"
#: Of whose lanes a row of the array is synthesised.
_ROW_MACS = 512


def _scale(arguments: argparse.Namespace) -> Rows:
    """Rows of machines, networks and fan-ins, which their key ``table`` tells apart; shown unless JSON is asked for.

    Raises UsageError, ConfigError, OSError.
    """
    from gen.bench import fanin, scale

    if arguments.config is not None:
        raise UsageError("bench scale measures presets; leave --config out", code="option-conflict")
    board = chosen_board(arguments)
    presets = [arguments.macs] if arguments.macs is not None else scale.MACS
    configs = [chosen_config(argparse.Namespace(**{**vars(arguments), "macs": macs})) for macs in presets]
    with status("scale") as remark, Journal() as journal:
        if arguments.synth:
            for config in configs:
                scale.synthesise(board, config, cache_folder() / "synth", remark)
        sizes = [(config, scale.size_of(board, config)) for config in configs]
        where = f"{board.name} {[(config.digest, str(size.clock), size.resources) for config, size in sizes]}"
        inferences: Rows = []
        for name in dict.fromkeys(network.name for network in scale.NETWORKS):
            networks = [network for network in scale.NETWORKS if network.name == name]
            inferences += journal.row(f"scale {networks} on {where}", lambda own=networks: {  # type: ignore[misc]
                "rows": [dataclasses.asdict(row) for row in scale.infer(board, sizes, own, remark)]})["rows"]
        folder = named_folder(arguments.models)
        trained = None if folder is None or not (folder / _TRAINED).is_file() else folder / _TRAINED
        fan_ins = [dataclasses.asdict(row) for row in fanin.measure(
            board, board.config(_ROW_MACS), trained, cache_folder() / "synth", remark)]
    if arguments.output is not None:
        write_plots(arguments, arguments.output, _PLOT, scale.plot(
            [size for _, size in sizes], [scale.Inference(**row) for row in inferences]),
            title=["presets with features " + (", ".join(configs[0].features) or "none"),
                   f"on {board.title}, memory of a beat a cycle; clock: " + ", ".join(
                       f"{size.clock.mhz:.0f} MHz ({size.macs})" for _, size in sizes)])
    machines = [_machine(size) for _, size in sizes]
    published = [{"macs": one.macs, "gops": one.gops, "gops_a_klut": one.gops_a_klut, "lut": one.lut, "dsp": one.dsp,
                  "bram36": one.bram36, "clock_mhz": one.mhz} for one in scale.PUBLISHED]
    tables = {"machines": machines, "networks": inferences, "published": published, "fan_in": fan_ins}
    if not arguments.json:
        _show(f"presets on {board.title}", [_shown(row, ("clock_basis",)) for row in machines])
        _show("networks, on a memory of a beat a cycle each way; GOPS count what was pruned too",
              [_shown(row, ("density",)) for row in inferences])
        _show("published, ZU3EG: SAF-CNN, 75 % sparse", published)
        _show(f"a row of {_ROW_MACS} MACs by fan-in, for each MAC; energy that {100 * fanin.DENSITY:g} % of the "
              "weights keep, %", fan_ins)
    return [{"table": name, **row} for name, rows in tables.items() for row in rows]


def _machine(size: "Size") -> dict[str, Any]:
    return {"macs": size.macs, "lanes": size.lanes, "bus": size.bus, **size.resources, "levels": size.levels,
            "clock_mhz": size.clock.mhz, "clock_basis": size.clock.basis, "area": size.area}


def _shown(row: dict[str, Any], without: tuple[str, ...]) -> dict[str, Any]:
    """Without what scripts alone need; a clock with its word."""
    if "clock_basis" in row:
        row = {**row, "clock_mhz": f"{row['clock_mhz']:g}, {row['clock_basis']}"}
    return {name: value for name, value in row.items() if name not in without}


def _show(title: str, rows: Rows) -> None:
    """A table without columns that are empty in all rows."""
    names = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    table = Table(title=title, title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0))
    for name in names:
        text = isinstance(rows[0][name], str)
        table.add_column(name.replace("_", " "), justify="left" if text else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(_text(row[name]) for name in names))
    console.print(table)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.1f}" if value >= 10 else f"{value:.2f}"
    return value if isinstance(value, str) else f"{round(value):,}"


PARTS = (Part("scale", "", _scale, _PLOT),)
