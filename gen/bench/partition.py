"""SSD-MobileNetV1 with its boxes decoded and selected, before and after reconstruction, on machines of three sizes."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from boards.board import Board
from cores.config import NpuConfig
from gen.hw.clock import clock_of
from gen.ir import reference
from gen.onnx.read import parse
from gen.options import CompileOptions
from gen.partition.partition import Partition, partition
from gen.quantize.calibrate import distributions
from gen.quantize.options import QuantizeOptions
from gen.quantize.quantize import quantize
from gen.run.application import Application, of_partition
from gen.run.host import HostSegment
from gen.zoo.builder import pictures
from gen.zoo.network import make
from gen.zoo.registry import get_network
from sim.cycles import estimate

__all__ = ["DENSITY", "MACS", "Row", "machine_of", "measure", "ssd_cuts"]

MACS = (64, 128, 256)
#: As the published system has them: three of four weights are zero; and depthwise layers share the array.
DENSITY, _FEATURES = 0.25, ("fusion", "gather")
#: Seeded pictures that scales are from; times that the processor's part is run.
_PICTURES, _RUNS = 16, 9


@dataclass(frozen=True, kw_only=True)
class Row:
    """``cycles`` by the time model, ``accelerator_ms`` by ``clock``.

    ``host_ms``: on the processor that this runs on, the least of several runs.
    """

    network: str
    macs: int
    subgraphs: int
    switches: int
    host_products: int
    host_nodes: int
    cycles: int
    accelerator_ms: float
    clock: str
    host_ms: float


def ssd_cuts(progress: Callable[[str], None]) -> tuple[Path, dict[str, Partition], dict[str, np.ndarray]]:
    """The model's name, how it is cut before and after reconstruction, and pictures.

    Of the model only the inputs of quantised operators are quantised, as some training frameworks export it: what the
    processor alone reads, here the results of the twelve heads, stays float.
    """
    network = get_network("ssd-mobilenetv1")
    progress(f"making {network.title}")
    samples = {"image": pictures(np.random.default_rng(1), _PICTURES, (network.channels, *network.size))}
    progress("quantising")
    quantized = quantize(make(network).model, samples, QuantizeOptions(method="mse")).model
    path = Path(f"{network.name}.onnx")
    content = _as_trained(path, quantized).SerializeToString()

    def ranges(model: onnx.ModelProto, names: Sequence[str]) -> dict[str, tuple[float, float]]:
        found = distributions(model, dict.fromkeys(names, ""), samples, lambda done, total, what: None)
        return {name: (min(one.low, 0.0), max(one.high, 0.0)) for name, one in found.items()}

    model = parse(str(path), content)
    cuts = {"before": partition(model, rebuild=False), "after": partition(model, ranges=ranges)}
    return path, cuts, samples


def measure(board: Board, progress: Callable[[str], None] = lambda remark: None) -> Iterator[Row]:
    """A row before and one after reconstruction for each of `MACS`."""
    path, cuts, samples = ssd_cuts(progress)
    title = get_network(path.stem).title
    for macs in MACS:
        for state, cut in cuts.items():
            progress(f"{macs} MACs, {state}")
            application = of_partition(path, cut, machine_of(board, macs), CompileOptions(density=DENSITY))
            yield _row(f"{title}, {state}", board, cut, application, samples)


def machine_of(board: Board, macs: int) -> NpuConfig:
    """With the units that the published system's machine has."""
    plain = board.config(macs)
    return board.config(macs, **plain.feature_fields(_FEATURES))


def _as_trained(path: Path, model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with quantisation only of what a convolution depends on."""
    found = parse(str(path), model.SerializeToString()).proto
    makers = {name: node for node in found.graph.node for name in node.output}
    needed: set[str] = set()
    for node in reversed(found.graph.node):
        if node.op_type == "Conv" or not needed.isdisjoint(node.output):
            needed.update(node.input)
    exact: dict[str, str] = {}      # dequantised value -> the one that was quantised
    for node in found.graph.node:
        source = makers.get(node.input[0]) if node.op_type == "DequantizeLinear" else None
        if source is not None and source.op_type == "QuantizeLinear" and node.output[0] not in needed:
            exact[node.output[0]] = source.input[0]
        node.input[:] = [exact.get(name, name) for name in node.input]
    return found


def _row(state: str, board: Board, cut: Partition, application: Application, samples: dict[str, np.ndarray]) -> Row:
    programs = [workload.program for workload in application.workloads]
    cycles = sum(estimate(program.config, program.code).cycles for program in programs)
    clock = clock_of(board, programs[0].config)
    seconds = [_host_seconds(application, {name: array[:1] for name, array in samples.items()}) for _ in range(_RUNS)]
    return Row(
        network=state, macs=programs[0].config.macs, subgraphs=cut.subgraphs, switches=cut.switches,
        host_products=cut.host_products, host_nodes=len(cut.host), cycles=cycles,
        accelerator_ms=round(1e3 / clock.per_second(cycles), 2), clock=str(clock), host_ms=round(1e3 * min(seconds), 2))


def _host_seconds(application: Application, inputs: dict[str, np.ndarray]) -> float:
    """Of the processor's segments, on what the reference hands them."""
    values, total = dict(inputs), 0.0
    for segment in application.segments:
        began = time.perf_counter()
        if isinstance(segment, HostSegment):
            values.update(segment.run(values))
            total += time.perf_counter() - began
        else:
            values.update(reference.run(segment.graph, {name: values[name] for name in segment.inputs})[0])
    return total
