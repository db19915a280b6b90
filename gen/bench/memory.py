"""Networks on the memories of all boards, beside an ideal one, by the time model."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from boards.registry import BOARDS
from cores.config import NpuConfig
from gen.bench.networks import NETWORKS
from gen.bench.waits import Bound, bound_of, waits_of
from gen.hw.clock import clock_of
from gen.options import CompileOptions
from gen.run.memory import bus_of
from gen.run.workload import open_workload

__all__ = ["Row", "measure"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """``lost``: percent of the cycles that an ideal memory does not need; ``waits``: of those in which the array waits
    for data.
    """

    network: str
    ideal: int
    cycles: int
    lost: float
    waits: float
    fps: float
    mhz: float
    clock: str
    bound: Bound


def measure(folder: Path, config: NpuConfig, progress: Callable[[str], None] = lambda remark: None) -> Iterator[Row]:
    """A row for each board and network, of the machine as it would be on the board, at the clock known of it there."""
    for board in BOARDS.values():
        machine = replace(config, **board.machine_fields)
        clock = clock_of(board, machine)
        bus = bus_of(board, machine, clock.mhz)
        for network in NETWORKS:
            progress(f"{board.name}, {network.title}")
            program = open_workload(folder / f"{network.file}.onnx", machine, CompileOptions()).program
            ideal, real = (waits_of(program, dram) for dram in (None, bus.dram))
            yield Row(network=f"{board.name}: {network.title}", ideal=ideal.cycles, cycles=real.cycles,
                      lost=100 * (real.cycles - ideal.cycles) / real.cycles, waits=100 * real.waits / real.cycles,
                      fps=clock.per_second(real.cycles), mhz=clock.mhz, clock=str(clock), bound=bound_of(ideal, real))
