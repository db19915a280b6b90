"""The parts of `gen bench` that measure networks: in the RTL, on boards' memories, quantised, partitioned, driven."""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from gen.cli.bench_part import Part, Rows, has_torch, models_folder, simulated
from gen.cli.common import messages, status
from gen.cli.journal import Journal
from gen.cli.machine import chosen_board, chosen_config, described
from gen.cli.memory import chosen_memory
from gen.cli.plots import write_plots
from gen.cli.summary import speed_of, work_of
from sim.folders import cache_folder

__all__ = ["PARTS"]

_PLOT = "zoo"

#: How float networks are quantised for the figures.
_QUANTIZATIONS: tuple[dict[str, Any], ...] = (
    {"method": "auto"}, {"method": "minmax"}, {"method": "entropy"}, {"method": "mse"},
    {"method": "mse", "equalize": True, "bias_correction": True})


def _networks(arguments: argparse.Namespace) -> Rows:
    from gen.bench.networks import NETWORKS, measure
    from gen.hw.clock import clock_of
    from gen.run.memory import bus_of

    folder = models_folder(arguments)
    if folder is None:
        return []
    config, clock = chosen_config(arguments), clock_of(chosen_board(arguments), chosen_config(arguments))
    rows = []
    with simulated(config) as machine:
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


def _memory(arguments: argparse.Namespace) -> Rows:
    from gen.bench.memory import measure

    folder = models_folder(arguments)
    if folder is None:
        return []
    with status("memory") as remark:
        rows = [dataclasses.asdict(row) for row in measure(folder, chosen_config(arguments), remark)]
    words = set() if arguments.json else {"clock", "bound"}
    return [{name: value for name, value in row.items() if name not in words} for row in rows]


def _zoo(arguments: argparse.Namespace) -> Rows:
    from boards.registry import BOARDS
    from gen.bench import zoo

    chosen = None if arguments.board is None else [chosen_board(arguments)]
    where, small = zoo.fitted(chosen_config(arguments), chosen or BOARDS.values())
    if small:
        messages.print(f"the machine does not fit {', '.join(board.name for board in small)}", soft_wrap=True)
    machines = [f"{one.board.name} {one.config.digest:08x} {one.clock}" for one in where]
    found: Rows = []
    with Journal() as journal, status("zoo") as remark:
        for network in zoo.NETWORKS:
            found += journal.row(f"zoo {network} on {machines}", lambda network=network: {  # type: ignore[misc]
                "rows": [dataclasses.asdict(row) for row in zoo.measure(where, [network], remark)]})["rows"]
    if found and arguments.output is not None:
        write_plots(arguments, arguments.output, _PLOT, zoo.plot([zoo.Row(**row) for row in found]),
                    title=["networks of the zoo on the memories of boards, with the machine's clock on each",
                           described(chosen_config(arguments), None)])
    if arguments.json:
        return found
    # Milliseconds for people; seconds, as everywhere, for scripts.
    return [{"ms" if name == "seconds" else name: 1e3 * value if name == "seconds" else value
             for name, value in row.items()} for row in found]


def _recent(arguments: argparse.Namespace) -> Rows:
    import numpy as np

    from gen.bench import zoo
    from gen.options import CompileOptions
    from gen.run.application import open_application
    from gen.run.inputs import Samples
    from gen.run.runner import run_model
    from gen.zoo.builder import pictures
    from gen.zoo.registry import get_network

    config, rows = chosen_config(arguments), []
    for name in zoo.RECENT:
        network = get_network(name)
        with status(network.title) as remark:
            application = open_application(Path(f"{name}.onnx"), config, CompileOptions(keep_all=True),
                                           content=zoo.quantised(name, remark))
            work, speed = work_of(application), speed_of(application, chosen_board(arguments))
            remark("on the functional simulator")
            image = pictures(np.random.default_rng(2), 1, (network.channels, *network.size))
            run = run_model(application, Samples({"image": image}, None), "functional")
        left = 0 if application.partition is None else len(application.partition.host)
        rows.append({
            "network": network.title, "MMACs": work["multiplications"] / 1e6,
            "accelerated_%": 100 * work["accelerated_multiplications"] / work["multiplications"],
            "segments": work["segments"], "processor_nodes": left, "cycles": speed["cycles"],
            "used_%": 100 * speed["utilisation"], "fps": speed["fps"], "clock": speed["clock"], "values": run.compared,
            "wrong": run.mismatches})
    return rows


def _compared(arguments: argparse.Namespace) -> Rows:
    from gen.bench.models import measure

    folder = models_folder(arguments)
    if folder is None:
        return []
    with status("models") as remark:
        return [dataclasses.asdict(row) for row in measure(folder, chosen_config(arguments), remark)]


def _quantization(arguments: argparse.Namespace) -> Rows:
    from gen.bench.quantization import NETWORKS, measure
    from gen.quantize.options import QuantizeOptions

    folder = models_folder(arguments)
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


def _accuracy(arguments: argparse.Namespace) -> Rows:
    """What is trained is kept, and a training that was interrupted goes on."""
    from gen.bench.accuracy import Cifar, measure
    from gen.bench.accuracy_networks import NETWORKS

    folder = models_folder(arguments)
    if folder is None or not has_torch():
        return []
    kept, rows = cache_folder() / "accuracy", []
    with status("reading the images") as remark:
        images = Cifar.of(folder, kept)
        for network in NETWORKS:
            for row in measure(network, images, remark):
                shares = {"float_%": row.float_right, "auto_%": row.auto_right, "entropy_%": row.entropy_right,
                          "trained_%": row.trained_right}
                rows.append({
                    "network": f"{row.network}: {row.sparsity}", "zeros_%": 100 * row.zeros,
                    "parameters": row.parameters, "cycles": row.cycles,
                    **{name: None if share is None else 100 * share for name, share in shares.items()}})
    return rows


def _partition(arguments: argparse.Namespace) -> Rows:
    from gen.bench.partition import measure

    with status("SSD-MobileNetV1") as remark:
        return [dataclasses.asdict(row) for row in measure(chosen_board(arguments), remark)]


def _driver(arguments: argparse.Namespace) -> Rows:
    from gen.bench.driver import measure

    with status("driver") as remark:
        return [dataclasses.asdict(row) for row in measure(chosen_board(arguments), remark)]


PARTS = (
    Part("networks", "networks, whole inferences in the RTL, beside the time model and its worst layer", _networks),
    Part("memory", "networks on the memories of all boards, by the time model; lost: percent of the cycles that an "
         "ideal memory does not need", _memory),
    Part("zoo", "networks of the zoo on the memories of all boards that hold the machine (of one with --board), by the "
         "time model; lost: percent of the cycles that an ideal memory does not need, waits: of those in which the "
         "array waits for data, waiting layers: of those of layers that are bound by that", _zoo, _PLOT),
    Part("recent", "networks of the zoo of after 2019, by the time model; accelerated: percent of the multiplications, "
         "wrong: of the values, by the functional simulator", _recent),
    Part("models", "every quantised model of the folder: cycles by the time model, values of layers that differ from "
         "onnxruntime's, values of the simulator that differ from the reference", _compared),
    Part("quantization", "float networks quantised: shares of right labels, noise of the output, values of layers that "
         "differ from onnxruntime's", _quantization),
    Part("accuracy", "narrow networks trained on CIFAR-10's images and tested on others, by percent of sparsity: right "
         "labels, float, quantised in two ways, and trained through the first; cycles by the time model, 64 MACs; half "
         "an hour the first time", _accuracy),
    Part("partition", "a model of which a part is on the processor, before and after reconstruction; the accelerator's "
         "time by its board's clock, the processor's on this one", _partition),
    Part("driver", "inferences a second through the driver: the device's time by the time model and its board's clock, "
         "the processor's on this computer; published: frames a second on the ZU3EG", _driver),
)
