"""The parts of `gen bench` that measure machines: layers in the RTL, area, timing, and the tools themselves."""

import argparse
import dataclasses
import time

from gen.cli.bench_part import Part, Rows, simulated
from gen.cli.common import status
from gen.cli.machine import chosen_board, chosen_config
from gen.cli.plots import write_plots
from sim.folders import cache_folder

__all__ = ["PARTS"]

_PLOT = "timing"

#: What 256 MACs should cost at most, without and with all optional units; what SAF-CNN's are published with.
_AREA_GOAL = {"lut": 25_000, "dsp": 145, "bram36": 110}
_AREA_GOAL_ALL = {"lut": 35_000, "dsp": 150, "bram36": 130}
_AREA_PUBLISHED = {"lut": 45_700, "dsp": 330, "bram36": 178}


def _layers(arguments: argparse.Namespace) -> Rows:
    from gen.bench.layers import LAYERS, measure_layer

    rows = []
    with simulated(chosen_config(arguments)) as machine:
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


def _shares(causes: dict[str, int], cycles: int) -> str:
    """The larger causes, in percent of all cycles."""
    shares = sorted(((100 * count / cycles, name) for name, count in causes.items()), reverse=True)
    return ", ".join(f"{name} {share:.1f} %" for share, name in shares if share >= 0.05)


def _large(arguments: argparse.Namespace) -> Rows:
    from gen.bench.large import LARGE, measure_large

    rows: Rows = []
    with simulated(chosen_config(arguments)) as machine:
        for layer in LARGE:
            with status(layer.name):
                rows += measure_large(machine, [layer])
    return rows


def _area(arguments: argparse.Namespace) -> Rows:
    from cores.config import COMPUTING_FEATURES
    from cores.emit import emit_verilog
    from gen.hw.synth import synthesize

    board = chosen_board(arguments)
    machines = {f"{macs} MACs": board.config(macs) for macs in (64, 128, 256)}
    plain = machines["256 MACs"]
    for name in COMPUTING_FEATURES:
        machines[f"256, {name}"] = board.config(256, **plain.feature_fields([name]))
    binary = board.config(256, **plain.feature_fields(["binary"]))
    machines["256, binary, full"] = dataclasses.replace(binary, binary_rows=binary.oc_lanes)
    machines["256, binary as an engine"] = dataclasses.replace(binary, binary_engine=1)
    machines["256, all"] = board.config(256, **plain.feature_fields(COMPUTING_FEATURES))
    rows: Rows = []
    for name, config in machines.items():
        with status(f"yosys, {board.family}, {name} (minutes)") as remark:
            report = synthesize(emit_verilog(config), "npu", board.family, cache=cache_folder() / "synth",
                                progress=remark)
        rows.append({"machine": name, **report.totals})
    if set(_AREA_GOAL) <= set(rows[0]):
        for name, figures in (("goal, 256", _AREA_GOAL), ("goal, all", _AREA_GOAL_ALL),
                              ("SAF-CNN, 256", _AREA_PUBLISHED)):
            rows.append({"machine": name, **{resource: figures.get(resource) for resource in report.totals}})
    return rows


def _timing(arguments: argparse.Namespace) -> Rows:
    from gen.bench.timing import measure, plot

    board = chosen_board(arguments)
    with status("timing") as remark:
        rows = list(measure(board, cache_folder() / "synth", remark))
    if arguments.output is not None:
        write_plots(arguments, arguments.output, _PLOT, plot(rows),
                    title=["levels of logic, of machines and components by the names below",
                           f"{board.title}; clock: {board.clock_mhz:g} MHz, target"])
    # The histogram is for scripts and the plot; a table would be as wide as its longest path.
    return [dataclasses.asdict(row) if arguments.json else
            {name: value for name, value in dataclasses.asdict(row).items() if name != "histogram"} for row in rows]


def _speed(arguments: argparse.Namespace) -> Rows:
    from cores.emit import emit_verilog
    from gen.bench.layers import LAYERS, measure_layer

    config = chosen_config(arguments)
    started = time.perf_counter()
    with status("emitting Verilog"):
        emit_verilog(config)
    emitted = time.perf_counter() - started
    with simulated(chosen_config(arguments)) as machine, status("simulating"):
        rtl = measure_layer(LAYERS[0], machine=machine).rtl
    return [
        {"what": "Verilog of the machine, seconds", "figure": emitted, "goal": "under 60"},
        {"what": "simulated cycles a second, in thousands", "figure": rtl.cycles / rtl.seconds / 1000,
         "goal": "50 and more"},
    ]


PARTS = (
    Part("layers", "layers, from start to done in the RTL", _layers),
    Part("large", "many pixels and large windows, from start to done in the RTL", _large),
    Part("area", "resources, as mapped by Yosys", _area),
    Part("timing", "longest paths before place and route: LUT levels, and nanoseconds by the delay model", _timing,
         _PLOT),
    Part("speed", "the tools on this machine", _speed),
)
