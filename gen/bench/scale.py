"""Presets from 64 to 1,024 MACs: what they take, how fast they are clocked, and what networks make of them.

Cycles are by the time model. Of VGG16 there are the convolutions and pools: its fully connected layers wait for their
weights on any machine.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import onnx

from boards.board import Board
from boards.clock import Clock
from cores.config import NpuConfig
from cores.emit import emit_verilog
from gen.bench.zoo import ZooNetwork, quantised
from gen.files.colours import COMPARED
from gen.files.figure import new_figure
from gen.hw.area import area_of
from gen.hw.clock import clock_of
from gen.hw.remembered import remember_synthesis, synthesis_of
from gen.hw.synth import synthesize
from gen.hw.timing import measure_timing
from gen.options import CompileOptions
from gen.run.workload import open_workload
from sim.cycles import MEMORY, estimate
from sim.timing.dram import TICKS, DramTiming

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["MACS", "NETWORKS", "PUBLISHED", "Inference", "Published", "Size", "infer", "plot", "size_of", "synthesise"]

MACS = (64, 128, 256, 512, 1024)
NETWORKS = tuple(ZooNetwork(name, density) for name in ("vgg16", "resnet18", "mobilenetv1") for density in (None, 0.25))


class Published(NamedTuple):
    """A sparse accelerator on a ZU3EG at ``mhz``; ``gops`` count the dense network's operations."""

    macs: int
    gops: float
    lut: int
    dsp: int
    bram36: int
    mhz: float

    @property
    def gops_a_klut(self) -> float:
        return 1000 * self.gops / self.lut


#: SAF-CNN, 75 % sparse.
PUBLISHED = (Published(64, 128.0, 21_800, 130, 71, 333), Published(128, 254.9, 28_900, 201, 107, 333),
             Published(256, 494.3, 45_700, 330, 178, 333))


@dataclass(frozen=True, kw_only=True)
class Size:
    """A machine. ``lanes``: ``oc_lanes`` x ``ic_lanes`` -> ``nnz_lanes``, each for two pixels, and the bus in bits.

    ``area``: how its resources are known. ``levels``: LUTs in series; None where it has not been synthesised as it is.
    """

    macs: int
    lanes: str
    bus: int
    resources: dict[str, float]
    area: str
    levels: int | None
    clock: Clock


@dataclass(frozen=True, kw_only=True)
class Inference:
    """``used``: percent of the multipliers; pruned weights do not count. ``gops`` count the dense network's operations.

    ``one_port``: cycles where the board's widest memory port brings less than a beat a cycle and reads have only one;
    None where it brings a beat.
    """

    network: str
    density: float | None
    macs: int
    cycles: int
    used: float
    gops: float
    gops_a_klut: float
    per_second: float
    one_port: int | None


def size_of(board: Board, config: NpuConfig) -> Size:
    """As synthesis has found it, if it has been run, else reckoned."""
    found = synthesis_of(board, config)
    reckoned = area_of(config, board.family)
    counts = dict(reckoned.totals) if found is None else found.totals
    known = "synthesised" if found else str(reckoned).split(", ", len(counts))[-1]
    return Size(
        macs=config.macs, lanes=f"{config.oc_lanes} x {config.ic_lanes} -> {config.nnz_lanes}", bus=config.beat_bits,
        resources=counts, area=known, levels=found.levels if found else None, clock=clock_of(board, config))


def synthesise(board: Board, config: NpuConfig, cache: Path,
               progress: Callable[[str], None] = lambda remark: None) -> None:
    """Map the machine, unless that is remembered: minutes, many for the large ones."""
    if synthesis_of(board, config) is not None:
        return
    progress(f"{config.macs} MACs")
    verilog = emit_verilog(config)
    timing = measure_timing(verilog, "npu", board.family, cache=cache, progress=progress)
    area = synthesize(verilog, "npu", board.family, cache=cache, progress=progress)
    remember_synthesis(board, config, area, timing)


def infer(board: Board, sizes: Sequence[tuple[NpuConfig, Size]], networks: Sequence[ZooNetwork],
          progress: Callable[[str], None] = lambda remark: None) -> Iterator[Inference]:
    """Run the networks, in order, on each machine by the time model; networks of one name are quantised once."""
    contents: dict[str, bytes] = {}
    for network in networks:
        if network.name not in contents:
            contents[network.name] = quantised(network.name, progress, _without_classifier(network.name))
        for config, size in sizes:
            progress(f"{network.title}, {config.macs} MACs")
            yield _inference(board, config, size, network, contents[network.name])


def _inference(board: Board, config: NpuConfig, size: Size, network: ZooNetwork, content: bytes) -> Inference:
    options = CompileOptions(density=network.density)
    program = open_workload(Path(f"{network.name}.onnx"), config, options, content=content).program
    cycles = estimate(config, program.code).cycles
    port = max(board.memory_bus_bits)
    per_second = size.clock.per_second(cycles)
    gops = 2 * sum(layer.macs for layer in program.layers) * per_second / 1e9
    return Inference(
        network=network.title, density=network.density, macs=config.macs, cycles=cycles,
        used=100 * sum(layer.useful_macs for layer in program.layers) / config.macs / cycles, gops=gops,
        gops_a_klut=1000 * gops / size.resources["lut"], per_second=per_second,
        one_port=estimate(config, program.code, dram=_slow(config.beat_bits / port)).cycles
        if config.beat_bits > port else None)


def _slow(cycles: float) -> DramTiming:
    """A memory like the ideal one but that a beat takes so many cycles, in each direction."""
    never = 1 << 39
    return DramTiming(latency=MEMORY, beat=round(cycles * TICKS), row_bytes=1 << 30, banks=1, row_miss=0,
                      refresh_interval=never, refresh=0, turn=0, shared=False)


def _without_classifier(name: str) -> Callable[[onnx.ModelProto], onnx.ModelProto]:
    """Of VGG16 what is in front of its fully connected layers; other networks as they are."""
    def part(model: onnx.ModelProto) -> onnx.ModelProto:
        last = [node.output[0] for node in model.graph.node if node.op_type == "MaxPool"][-1]
        shaped = onnx.shape_inference.infer_shapes(model)
        return onnx.utils.Extractor(shaped).extract_model([model.graph.input[0].name], [last])

    return part if name == "vgg16" else lambda model: model


def plot(sizes: Sequence[Size], rows: Sequence[Inference]) -> "Figure":
    """Over the MACs, what is used of the multipliers, and GOPS for each 1,000 LUTs beside the published."""
    figure = new_figure(11, 4.5)
    used, worth = figure.subplots(1, 2)
    for number, name in enumerate(dict.fromkeys(row.network for row in rows)):
        own = [row for row in rows if row.network == name]
        look = {"marker": "o", "label": name, "color": COMPARED[2 + number // 2],
                "linestyle": "-" if own[0].density is None else "--"}
        used.plot([row.macs for row in own], [row.used for row in own], **look)
        worth.plot([row.macs for row in own], [row.gops_a_klut for row in own], **look)
    worth.scatter([one.macs for one in PUBLISHED], [one.gops_a_klut for one in PUBLISHED], color="black", marker="x",
                  label="SAF-CNN, published", zorder=3)
    used.set(ylabel="multipliers in use, %", ylim=(0, 100))
    worth.set(ylabel="GOPS of the dense network a 1,000 LUTs", ylim=(0, None))
    for axes in (used, worth):
        axes.set(xlabel="MACs", xscale="log")
        axes.set_xticks([size.macs for size in sizes], [f"{size.macs:,}" for size in sizes])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    # There nothing is drawn; the right one has all lines.
    used.legend(*worth.get_legend_handles_labels(), fontsize="small", loc="lower left")
    return figure
