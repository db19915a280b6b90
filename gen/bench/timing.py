"""Clock of machines by the mapped netlist, and what it makes of their multipliers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from boards.board import Board
from boards.clock import Clock
from cores.config import COMPUTING_FEATURES, NpuConfig
from cores.emit import emit_verilog
from gen.files.figure import new_figure
from gen.hw.remembered import remember_synthesis
from gen.hw.synth import synthesize
from gen.hw.timing import TimingReport, measure_timing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Row", "measure", "plot"]

_MACS = (64, 256)


@dataclass(frozen=True, kw_only=True)
class Row:
    """``gops``: two operations a multiply-accumulate, all multipliers in use.

    ``histogram``: endpoints by LUT levels; ``over_5`` of them have more than five. ``cell_ns``: Yosys's own timing,
    without wires.
    """

    machine: str
    levels: int
    over_5: int
    slowest_ns: float
    cell_ns: float | None
    clock: str
    gops: float
    gops_a_klut: float
    histogram: dict[int, int]


def measure(board: Board, cache: Path, progress: Callable[[str], None] = lambda remark: None) -> Iterator[Row]:
    """A row for each size, without optional units and with all of them that the size can have."""
    for macs in _MACS:
        plain = board.config(macs)
        for name, features in (("", ()), (", all units", COMPUTING_FEATURES)):
            config = board.config(macs, **plain.feature_fields(features))
            yield _row(f"{macs} MACs{name}", board, config, cache, progress)


def _row(machine: str, board: Board, config: NpuConfig, cache: Path, progress: Callable[[str], None]) -> Row:
    verilog = emit_verilog(config)

    def remark(step: str) -> None:
        progress(f"{machine}: {step}")

    timing = measure_timing(verilog, "npu", board.family, cache=cache, progress=remark)
    area = synthesize(verilog, "npu", board.family, cache=cache, progress=remark)
    clock = Clock(timing.estimated_mhz, "estimated")
    remember_synthesis(board, config, area, timing)
    gops = 2 * config.macs * clock.mhz / 1000
    return Row(machine=machine, levels=timing.levels, over_5=_over(timing, 5), slowest_ns=timing.delay_ns,
               cell_ns=timing.cell_ns, clock=str(clock), gops=gops, gops_a_klut=1000 * gops / area.totals["lut"],
               histogram=timing.histogram)


def _over(timing: TimingReport, levels: int) -> int:
    return sum(count for number, count in timing.histogram.items() if number > levels)


def plot(rows: list[Row]) -> "Figure":
    """Endpoints by LUT levels, a line a machine."""
    figure = new_figure(7, 4)
    axes = figure.subplots()
    for row in rows:
        axes.plot(list(row.histogram), list(row.histogram.values()), marker="o", label=f"{row.machine}: {row.clock}")
    axes.set(xlabel="LUT levels of an endpoint's longest path", ylabel="endpoints", yscale="log")
    axes.legend()
    return figure
