"""Networks on the memories of all boards, beside an ideal one, by the time model."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from boards.registry import BOARDS
from cores.config import NpuConfig
from gen.bench.networks import NETWORKS
from gen.hw.clock import clock_of
from gen.options import CompileOptions
from gen.run.memory import bus_of
from gen.run.workload import open_workload
from sim.cycles import estimate

__all__ = ["Row", "measure"]

#: More than this share of the cycles is the memory's doing: then it is what bounds the network.
_BOUND = 0.1


@dataclass(frozen=True, kw_only=True)
class Row:
    """``lost``: percent of the cycles that an ideal memory does not need."""

    network: str
    ideal: int
    cycles: int
    lost: float
    fps: float
    mhz: float
    clock: str
    bound: Literal["compute", "memory"]


def measure(folder: Path, config: NpuConfig, progress: Callable[[str], None] = lambda remark: None) -> Iterator[Row]:
    """A row for each board and network, of the machine as it would be on the board, at the clock known of it there."""
    for board in BOARDS.values():
        machine = replace(config, multiplier_width=board.multiplier_width, address_width=board.address_width)
        clock = clock_of(board, machine)
        bus = bus_of(board.memory, machine, clock.mhz)
        for network in NETWORKS:
            progress(f"{board.name}, {network.title}")
            code = open_workload(folder / f"{network.file}.onnx", machine, CompileOptions()).program.code
            ideal, cycles = (estimate(machine, code, dram=dram).cycles for dram in (None, bus.dram))
            share = (cycles - ideal) / cycles
            yield Row(network=f"{board.name}: {network.title}", ideal=ideal, cycles=cycles, lost=100 * share,
                      fps=clock.per_second(cycles), mhz=clock.mhz, clock=str(clock),
                      bound="memory" if share > _BOUND else "compute")
