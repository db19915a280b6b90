"""``gen bench``"""

import argparse
import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from gen.cli import bench_datapaths, bench_stochastic
from gen.cli.common import add_json_option, console, messages, print_json, status
from gen.cli.errors import FAILED, UsageError
from gen.cli.journal import Journal
from gen.cli.machine import add_machine_options, chosen_board, chosen_config
from gen.cli.memory import add_memory_option, chosen_memory
from gen.files.write import require_writable, write_file
from gen.name import speaker
from sim.folders import cache_folder, checkout

if TYPE_CHECKING:
    from cores.config import NpuConfig
    from sim.rtl.machine import RtlMachine

EXAMPLE = """example:
  %(prog)s layers
The published figures beside ours are NNgen's, measured from start to done on its own bus model, and SAF-CNN's."""

PARTS = ("layers", "large", "datapaths", "networks", "memory", "models", "quantization", "partition", "driver", "area",
         "timing", *bench_stochastic.TITLES, "speed")

#: Parts with a plot, and its file.
_PLOTS = {"datapaths": bench_datapaths.PLOT, "timing": "timing.png", "stochastic-network": bench_stochastic.PLOT}

#: What 256 MACs should cost at most, without and with all optional units; what SAF-CNN's are published with.
_AREA_GOAL = {"lut": 25_000, "dsp": 145, "bram36": 110}
_AREA_GOAL_ALL = {"lut": 35_000, "dsp": 150, "bram36": 130}
_AREA_PUBLISHED = {"lut": 45_700, "dsp": 330, "bram36": 178}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument("--models", type=Path, metavar="DIR", help="folder of the networks (default: NPUGEN_MODELS, or "
                        "../shared/models beside a checkout); without it that part is left out")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR",
                        help="folder for plots of the datapaths, of the timing and of the stochastic network")
    add_memory_option(parser)
    add_machine_options(parser)
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    unknown = [part for part in arguments.parts if part not in PARTS]
    if unknown:
        raise UsageError(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    parts = tuple(dict.fromkeys(arguments.parts)) or PARTS
    if arguments.output is not None:
        plots = [name for part, name in _PLOTS.items() if part in parts]
        if not plots:
            raise UsageError(f"-o is for plots of {' and '.join(_PLOTS)}, which are not among the parts")
        for name in plots:
            require_writable(arguments.output / name)
    with Journal() as journal:
        results = _measured(parts, arguments, journal)
    if arguments.json:
        print_json(results)
    if any(row.get("wrong") for rows in results.values() for row in rows):
        messages.print(f"{speaker('bench')}: error: values differ from the reference")
        return FAILED
    return 0


def _measured(parts: Sequence[str], arguments: argparse.Namespace, journal: Journal) -> dict[str, list[dict[str, Any]]]:
    """The rows of each part, which are shown on the way unless JSON is asked for."""
    measures: dict[str, Callable[[argparse.Namespace], list[dict[str, Any]]]] = {
        "layers": _layers, "large": _large, "datapaths": partial(bench_datapaths.measure, journal=journal),
        "networks": _networks, "memory": _memory, "models": _compared, "quantization": _quantization,
        "partition": _partition, "driver": _driver, "area": _area, "timing": _timing,
        "stochastic": bench_stochastic.measure_errors, "stochastic-area": bench_stochastic.measure_area,
        "stochastic-network": lambda arguments: bench_stochastic.measure_network(arguments, _models(arguments)),
        "speed": _speed}
    titles = {
        "layers": "layers, from start to done in the RTL",
        "large": "many pixels and large windows, from start to done in the RTL",
        "networks": "networks, whole inferences in the RTL, beside the time model and its worst layer",
        "memory": "networks on the memories of all boards, by the time model; lost: percent of the cycles that an "
                  "ideal memory does not need",
        "models": "every quantised model of the folder: cycles by the time model, values of layers that differ from "
                  "onnxruntime's, values of the simulator that differ from the reference",
        "quantization": "float networks quantised: shares of right labels, noise of the output, values of layers that "
                        "differ from onnxruntime's",
        "partition": "a model of which a part is on the processor, before and after reconstruction; the accelerator's "
                     "time by its board's clock, the processor's on this one",
        "driver": "inferences a second through the driver: the device's time by the time model and its board's clock, "
                  "the processor's on this computer; published: frames a second on the ZU3EG",
        "area": "resources, as mapped by Yosys",
        "timing": "longest paths before place and route: LUT levels, and nanoseconds by the delay model",
        **bench_stochastic.TITLES,
        "speed": "the tools on this machine"}
    results = {}
    for part in parts:
        rows = measures[part](arguments)
        results[part] = rows
        if part == "datapaths" and (folder := _models(arguments)) is not None:
            results["narrow_errors"] = bench_datapaths.narrow_errors(arguments, folder)
        if rows and part in titles and not arguments.json:
            _show(titles[part], rows)
    return results


def _show(title: str, rows: list[dict[str, Any]]) -> None:
    """Figures as a table; remarks, which are long, below it."""
    first = next(iter(rows[0]))
    remarks = [name for name, value in rows[0].items() if isinstance(value, str) and name != first]
    table = Table(title=title, title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0))
    for name in rows[0]:
        if name not in remarks:
            table.add_column(name.replace("_", " "), justify="left" if name == first else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(_text(value) for name, value in row.items() if name not in remarks))
    console.print(table)
    for name in remarks:
        for row in rows:
            if row[name]:
                console.print(f"  {name.replace('_', ' ')}, {row[first]}: {row[name]}", soft_wrap=True)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.1f}" if value >= 1 else f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _machine(config: "NpuConfig") -> "RtlMachine":
    from sim.rtl.machine import RtlMachine

    with status("building the simulation"):
        return RtlMachine(config)


def _layers(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    from gen.bench.layers import LAYERS, measure_layer

    rows = []
    with _machine(chosen_config(arguments)) as machine:
        for layer in LAYERS:
            with status(layer.name):
                measured = measure_layer(layer, machine=machine)
            counters = measured.rtl.counters
            causes = {name.removeprefix("compute_wait_"): counters[name] for name in counters
                      if name.startswith("compute_wait_") and counters[name]}
            rest = measured.rtl.cycles - counters["compute_busy"] - sum(causes.values())
            rows.append({
                "layer": layer.name, "cycles": measured.rtl.cycles, "ideal": round(measured.ideal),
                "used_%": 100 * measured.utilisation, "goal_%": None if layer.goal is None else 100 * layer.goal,
                "wrong": measured.mismatches,
                "where_the_rest_goes": _shares(
                    {"idle array": counters["compute_busy"] - round(measured.ideal), **causes, "start, end": rest},
                    measured.rtl.cycles),
                "published": layer.peer})
    return rows


def _large(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    from gen.bench.large import LARGE, measure_large

    rows: list[dict[str, Any]] = []
    with _machine(chosen_config(arguments)) as machine:
        for layer in LARGE:
            with status(layer.name):
                rows += measure_large(machine, [layer])
    return rows


def _shares(causes: dict[str, int], cycles: int) -> str:
    """The larger causes, in percent of all cycles."""
    shares = sorted(((100 * count / cycles, name) for name, count in causes.items()), reverse=True)
    return ", ".join(f"{name} {share:.1f} %" for share, name in shares if share >= 0.05)


def _models(arguments: argparse.Namespace) -> Path | None:
    root = checkout()
    usual = None if root is None else root.parent / "shared" / "models"
    named = os.environ.get("NPUGEN_MODELS")
    folder = arguments.models or (Path(named) if named else usual)
    if folder is not None and folder.is_dir():
        return folder
    if arguments.models:
        raise UsageError(f"--models {folder}: no such folder")
    messages.print(f"no networks{f' in {folder}' if folder else ''}: give --models DIR", soft_wrap=True)
    return None


def _networks(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    from gen.bench.networks import NETWORKS, measure
    from gen.hw.clock import clock_of
    from gen.run.memory import bus_of

    folder = _models(arguments)
    if folder is None:
        return []
    config, clock = chosen_config(arguments), clock_of(chosen_board(arguments), chosen_config(arguments))
    rows = []
    with _machine(config) as machine:
        machine.set_bus(bus_of(chosen_memory(arguments), config, clock.mhz))
        for network in NETWORKS:
            with status(network.title):
                row = measure(network, folder, machine)
            rows.append({
                "network": network.title, "cycles": row.cycles, "goal": network.goal if config.macs == 256 else None,
                "used_%": 100 * row.used,
                "time_model": row.model, "worst_layer_%": round(100 * row.worst_layer, 2),
                "fps": clock.per_second(row.cycles), "clock": str(clock), "wrong": row.wrong,
                "published": network.peer})
    return rows


def _memory(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    from gen.bench.memory import measure

    folder = _models(arguments)
    if folder is None:
        return []
    with status("memory") as remark:
        rows = [dataclasses.asdict(row) for row in measure(folder, chosen_config(arguments), remark)]
    words = set() if arguments.json else {"clock", "bound"}
    return [{name: value for name, value in row.items() if name not in words} for row in rows]


#: How float networks are quantised for the figures.
_QUANTIZATIONS: tuple[dict[str, Any], ...] = (
    {"method": "entropy"}, {"method": "mse"}, {"method": "mse", "equalize": True, "bias_correction": True})


def _compared(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    from gen.bench.models import measure

    folder = _models(arguments)
    if folder is None:
        return []
    with status("models") as remark:
        return [dataclasses.asdict(row) for row in measure(folder, chosen_config(arguments), remark)]


def _quantization(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    from gen.bench.quantization import NETWORKS, measure
    from gen.quantize.options import QuantizeOptions

    folder = _models(arguments)
    if folder is None:
        return []
    rows = []
    for network in NETWORKS:
        for options in _QUANTIZATIONS:
            method = ", ".join([options["method"], *(name.split("_")[0] for name in options if name != "method")])
            with status(f"{network.title}, {method}") as remark:
                result = measure(network, folder, QuantizeOptions(**options), remark)
            shares = {"float_%": result.float_right, "quantised_%": result.quantized_right,
                      "machine_%": result.machine_right, "same_%": result.same_answer}
            rows.append({
                "network": f"{network.title}: {method}", "samples": result.samples,
                **{name: None if share is None else 100 * share for name, share in shares.items()},
                "SQNR_dB": result.sqnr_db, "PSNR_dB": result.psnr_db, "differing": result.differing,
                "values": result.values, "largest": result.largest})
    return rows


def _partition(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    from gen.bench.partition import measure

    with status("SSD-MobileNetV1") as remark:
        return [dataclasses.asdict(row) for row in measure(chosen_board(arguments), remark)]


def _driver(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    from gen.bench.driver import measure

    with status("driver") as remark:
        return [dataclasses.asdict(row) for row in measure(chosen_board(arguments), remark)]


def _area(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    from cores.config import FEATURES
    from cores.emit import emit_verilog
    from gen.hw.synth import synthesize

    board = chosen_board(arguments)
    machines = {f"{macs} MACs": board.config(macs) for macs in (64, 128, 256)}
    plain = machines["256 MACs"]
    for name in FEATURES:
        machines[f"256, {name}"] = board.config(256, **plain.feature_fields([name]))
    binary = board.config(256, **plain.feature_fields(["binary"]))
    machines["256, binary, full"] = dataclasses.replace(binary, binary_rows=binary.oc_lanes)
    machines["256, binary as an engine"] = dataclasses.replace(binary, binary_engine=1)
    machines["256, all"] = board.config(256, **plain.feature_fields(tuple(FEATURES)))
    rows: list[dict[str, Any]] = []
    for name, config in machines.items():
        with status(f"yosys, {board.family}, {name}") as remark:
            report = synthesize(emit_verilog(config), "npu", board.family, cache=cache_folder() / "synth",
                                progress=remark)
        rows.append({"machine": name, **report.totals})
    if set(_AREA_GOAL) <= set(rows[0]):
        for name, figures in (("goal, 256", _AREA_GOAL), ("goal, all", _AREA_GOAL_ALL),
                              ("SAF-CNN, 256", _AREA_PUBLISHED)):
            rows.append({"machine": name, **{resource: figures.get(resource) for resource in report.totals}})
    return rows


def _timing(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    from gen.bench.timing import measure, plot

    with status("timing") as remark:
        rows = list(measure(chosen_board(arguments), cache_folder() / "synth", remark))
    if arguments.output is not None:
        write_file(arguments.output / _PLOTS["timing"], plot(rows))
    # The histogram is for scripts and the plot; a table would be as wide as its longest path.
    return [dataclasses.asdict(row) if arguments.json else
            {name: value for name, value in dataclasses.asdict(row).items() if name != "histogram"} for row in rows]


def _speed(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    from cores.emit import emit_verilog
    from gen.bench.layers import LAYERS, measure_layer

    config = chosen_config(arguments)
    started = time.perf_counter()
    with status("emitting Verilog"):
        emit_verilog(config)
    emitted = time.perf_counter() - started
    with _machine(chosen_config(arguments)) as machine, status("simulating"):
        rtl = measure_layer(LAYERS[0], machine=machine).rtl
    return [
        {"what": "Verilog of the machine, seconds", "figure": emitted, "goal": "under 60"},
        {"what": "simulated cycles a second, in thousands", "figure": rtl.cycles / rtl.seconds / 1000,
         "goal": "50 and more"},
    ]
