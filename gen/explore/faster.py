"""What would make a model faster on a machine: each unit that it lacks, tried on the time model."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from boards.board import Board
from cores.config import FEATURES, UNITS, ConfigError, NpuConfig
from cores.errors import NpugenError
from gen.hw.area import area_of, growth
from gen.run.application import Application
from gen.run.memory import bus_of
from gen.run.workload import Workload, of_model
from sim import cycles

__all__ = ["Faster", "faster"]

#: Share of the cycles from which on a unit is worth a word.
_WORTH = 0.02


@dataclass(frozen=True)
class Faster:
    """``option``: what gives the machine this unit too. ``cycles``: of an inference then, ``before`` without it.
    ``lut``: share of the machine's LUTs that it takes more, reckoned; ``fits``: whether the board has room for it.
    """

    feature: str
    option: str
    cycles: int
    before: int
    lut: float
    fits: bool

    @property
    def share(self) -> float:
        """Of the cycles, how many fewer."""
        return 1 - self.cycles / self.before

    def __str__(self) -> str:
        """Such as ``depthwise: 23 % fewer cycles for 4 % more LUTs (--features depthwise)``."""
        room = "" if self.fits else "; the board may be too small"
        return (f"{self.feature}: {100 * self.share:.0f} % fewer cycles for {100 * self.lut:.0f} % more LUTs "
                f"({self.option}){room}")


def faster(application: Application, board: Board, *, memory: Board | None = None, mhz: float | None = None,
           progress: Callable[[str], None] = lambda text: None) -> list[Faster]:
    """Units that the machine lacks and that would save cycles, those that save most first; each by itself.

    Of a model of which the processor runs a part, units that leave it less are not tried (`gen.partition.missing`).
    Nothing that changes values is.
    ``memory``: None for an ideal one; ``mhz``: the clock, for ``memory``; ``progress`` hears the unit. There are none
    for a program, which is of its machine.
    """
    workloads = application.workloads
    if any(workload.compiled is not None for workload in workloads):
        return []
    config = workloads[0].config
    dram = bus_of(memory, config, mhz or board.clock_mhz).dram
    before = sum(cycles.estimate(config, workload.program.code, dram=dram).cycles for workload in workloads)
    found = []
    for name, larger in _machines(config, whole=application.partition is None):
        progress(f"trying the unit {name}")
        try:
            tried = [of_model(workload.imported, larger, workload.options) for workload in workloads]
            if larger.own_stage == config.own_stage and all(map(_as_before, workloads, tried)):
                continue
            programs = [workload.program for workload in tried]
        except NpugenError:     # a machine that cannot have the model
            continue
        now = sum(cycles.estimate(larger, program.code, dram=dram).cycles for program in programs)
        if now <= (1 - _WORTH) * before:
            found.append(Faster(name, _option(larger), now, before, *_price(config, larger, board)))
    # A unit that brings another one has to be worth more than that.
    return sorted((one for one in found if not any(
        set(FEATURES[other.feature]) < set(FEATURES[one.feature]) and other.cycles * (1 - _WORTH) <= one.cycles
        for other in found)), key=lambda one: one.cycles)


def _as_before(workload: Workload, tried: Workload) -> bool:
    """Whether all layers are computed in the ways of the machine without the unit: the time is the same, then."""
    return [layer.mode for step in tried.mapped.steps for layer in step.layers] == [
        layer.mode for layer in workload.program.layers]


def _price(config: NpuConfig, larger: NpuConfig, board: Board) -> tuple[float, bool]:
    """Share of LUTs, the first resource of each family, and whether it fits."""
    lut, before = next(iter(area_of(config, board.family).totals.items()))
    return (growth(config, larger, board.family)[lut] / before,
            not area_of(larger, board.family).too_much(board))


def _machines(config: NpuConfig, *, whole: bool) -> Iterator[tuple[str, NpuConfig]]:
    """Units that can be had beside those that are there, and the machine with each."""
    for unit in UNITS:
        if unit.computes and (whole or not unit.imports) and unit.name not in config.features:
            try:
                yield unit.name, replace(config, **config.feature_fields([*config.features, unit.name]))
            except ConfigError:
                continue


def _option(config: NpuConfig) -> str:
    names = [name for name in config.features
             if not any(set(FEATURES[name]) < set(FEATURES[other]) for other in config.features)]
    return f"--features {','.join(names)}"
