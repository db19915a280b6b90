"""Networks of the zoo in full size on the memories of boards, beside an ideal one, by the time model.

Their weights are drawn, and quantised on a few drawn pictures: cycles depend on shapes and densities alone.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx

from boards.board import Board
from boards.clock import Basis, Clock
from cores.config import NpuConfig
from gen.bench.partition import ssd_cuts
from gen.bench.waits import Bound, Waits, bound_of, waits_of
from gen.files.colours import CAUSES
from gen.files.figure import new_figure
from gen.hw.area import area_of
from gen.hw.clock import clock_of
from gen.options import CompileOptions
from gen.program.program import Program
from gen.quantize.options import QuantizeOptions
from gen.quantize.quantize import quantize
from gen.run.application import of_partition
from gen.run.memory import bus_of
from gen.run.workload import open_workload
from gen.zoo.builder import pictures
from gen.zoo.network import make
from gen.zoo.registry import get_network
from sim.timing.dram import DramTiming

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["NETWORKS", "RECENT", "Fitted", "Row", "ZooNetwork", "measure", "fitted", "plot", "quantised"]

_SSD = "ssd-mobilenetv1"
#: Pictures that scales are from.
_PICTURES = 2


@dataclass(frozen=True)
class ZooNetwork:
    """A network of `gen.zoo` by ``name``; ``density``: the share of weights that pruning leaves."""

    name: str
    density: float | None = None

    @property
    def title(self) -> str:
        dense = "" if self.density is None else f", {100 * self.density:g} % of the weights"
        return get_network(self.name).title + dense


NETWORKS = (ZooNetwork("vgg16", 0.25), ZooNetwork("resnet18"), ZooNetwork("resnet18", 0.25), ZooNetwork("mobilenetv1"),
            ZooNetwork("mobilenetv2"), ZooNetwork(_SSD, 0.25))

#: Of after 2019.
RECENT = ("vit-tiny", "deit-tiny", "kwt-1", "convnext-atto", "mobilevit-xxs", "yolo11n")


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A machine on a board, at the clock that is known of it there, on the memory that the board has."""

    board: Board
    config: NpuConfig
    clock: Clock
    dram: DramTiming | None


@dataclass(frozen=True, kw_only=True)
class Row:
    """``lost``: percent of the cycles that an ideal memory does not need; ``waits``: of those in which the array waits
    for data; ``waiting_layers``: of those of layers that are bound by that. ``seconds``: of an inference, by ``clock``.
    """

    network: str
    macs: int
    ideal: int
    cycles: int
    lost: float
    waits: float
    waiting_layers: float
    bound: Bound
    seconds: float
    clock_mhz: float
    clock: Basis


def fitted(config: NpuConfig, boards: Iterable[Board]) -> tuple[list[Fitted], list[Board]]:
    """``config`` as it would be on boards, and boards that it does not fit; of those that do not differ, the first."""
    found: dict[tuple[object, ...], Fitted] = {}
    small = []
    for board in boards:
        machine = replace(config, **board.machine_fields)
        if area_of(machine, board.family).too_much(board):
            small.append(board)
            continue
        clock = clock_of(board, machine)
        one = Fitted(board=board, config=machine, clock=clock, dram=bus_of(board, machine, clock.mhz).dram)
        found.setdefault((machine, clock, one.dram), one)
    return list(found.values()), small


def measure(where: Sequence[Fitted], networks: Sequence[ZooNetwork],
            progress: Callable[[str], None] = lambda remark: None) -> Iterator[Row]:
    """A row for each network and machine."""
    for network in networks:
        compiled: dict[NpuConfig, tuple[list[Program], Waits]] = {}
        compile_for = _compiler(network, progress)
        for one in where:
            progress(f"{one.board.name}, {network.title}")
            if one.config not in compiled:
                programs = compile_for(one.config)
                compiled[one.config] = programs, _total(programs, None)
            programs, ideal = compiled[one.config]
            yield _row(network, one, ideal, _total(programs, one.dram))


def _total(programs: Sequence[Program], dram: DramTiming | None) -> Waits:
    return reduce(add, (waits_of(program, dram) for program in programs))


def _row(network: ZooNetwork, one: Fitted, ideal: Waits, real: Waits) -> Row:
    return Row(
        network=f"{one.board.name}: {network.title}", macs=one.config.macs, ideal=ideal.cycles, cycles=real.cycles,
        lost=100 * (real.cycles - ideal.cycles) / real.cycles, waits=100 * real.waits / real.cycles,
        waiting_layers=100 * real.in_layers / real.cycles, bound=bound_of(ideal, real),
        seconds=1 / one.clock.per_second(real.cycles), clock_mhz=one.clock.mhz, clock=one.clock.basis)


def _compiler(network: ZooNetwork, progress: Callable[[str], None]) -> Callable[[NpuConfig], list[Program]]:
    """What compiles the network for a machine; of SSD, what the accelerator has of it (`gen.bench.partition`)."""
    options = CompileOptions(density=network.density)
    if network.name == _SSD:
        named, cuts, _ = ssd_cuts(progress)
        return lambda config: [work.program for work in of_partition(named, cuts["after"], config, options).workloads]
    path, content = Path(f"{network.name}.onnx"), quantised(network.name, progress)
    return lambda config: [open_workload(path, config, options, content=content).program]


def quantised(name: str, progress: Callable[[str], None] = lambda remark: None,
              part: Callable[[onnx.ModelProto], onnx.ModelProto] = lambda model: model) -> bytes:
    """The ONNX file of a network of the zoo, or of a ``part`` of it, quantised on drawn pictures."""
    known = get_network(name)
    progress(f"making {known.title}")
    samples = {"image": pictures(np.random.default_rng(1), _PICTURES, (known.channels, *known.size))}
    model = part(make(known).model)
    progress(f"quantising {known.title}")
    return quantize(model, samples, QuantizeOptions(method="mse")).model.SerializeToString()


def plot(rows: Sequence[Row]) -> "Figure":
    """A bar for each network: its time on an ideal memory, and what the board's memory adds to that."""

    names = [f"{row.network} ({Clock(row.clock_mhz, row.clock)})" for row in rows]
    ideal = [1e3 * row.seconds * row.ideal / row.cycles for row in rows]
    figure = new_figure(9, 1.2 + 0.3 * len(rows))
    axes = figure.subplots()
    axes.barh(names, ideal, label="on an ideal memory", color=CAUSES["useful"])
    axes.barh(names, [1e3 * row.seconds - time for row, time in zip(rows, ideal, strict=True)], left=ideal,
              label="what the board's memory takes on top", color=CAUSES["wait_load"])
    axes.invert_yaxis()
    axes.set(xlabel="milliseconds of an inference")
    axes.legend()
    return figure
