"""Levels of compiled programs: what each takes, and how often it is right."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cores.arch.stochastic import Circuit
from cores.config import NpuConfig
from cores.errors import NpugenError
from gen.energy.levels import Level as Setting
from gen.energy.unit_energy import INPUTS, measure_energy
from gen.run.application import Application
from gen.run.inputs import Samples
from gen.run.runner import run_model
from npudriver.levels import FULL, Level
from sim.cycles import estimate
from sim.profile import layer_timings

__all__ = ["GovernError", "ProgramVariant", "energy_of", "levels_of", "time_ns", "variant"]

#: Energy of the first level, where energies are relative.
RELATIVE = 1_000_000


class GovernError(NpugenError, ValueError):
    """Programs and samples of which no levels can be made; the message is for the user."""

    code = "no-levels"


@dataclass(frozen=True, eq=False)
class ProgramVariant:
    """A program with its streams shorter by ``shift`` powers of two.

    ``outputs``: what the reference makes of the samples, name -> (N, ...); ``right``: of each of them, bool (N,).
    ``cycles``: of an inference, by the time model.
    """

    program: int
    name: str
    shift: int
    cycles: int
    outputs: Mapping[str, np.ndarray]
    right: np.ndarray


def variant(number: int, name: str, application: Application, shift: int, samples: Samples,
            progress: Callable[[int, str], None] = lambda done, present: None) -> ProgramVariant:
    """``name``: of the program. Raises GovernError where it cannot be said which answers are right."""
    found = run_model(application, samples, "reference", stream_shifts=(shift,), progress=progress)
    if found.labels is None or len(found.judged) != 1 or len(found.outputs) != 1 or (found.labels < 0).any():
        raise GovernError(f"{name}: samples need a `label` each, and the model one output of scores")
    (scores,) = found.outputs.values()
    right = scores.reshape(len(scores), -1).argmax(axis=1) == found.labels
    cycles = sum(estimate(one.config, one.code, stream_shift=shift).cycles for one in application.programs())
    return ProgramVariant(number, name, shift, cycles, found.outputs, right)


def energy_of(application: Application, shift: int, family: str, cache: Path,
              progress: Callable[[str], None] = lambda step: None) -> float:
    """Of an inference at 1 V, relative: cycles of layers in streams and of all others, each times the energy of a cycle
    of the unit that is at work, as `gen battery` reckons.
    """
    total = 0.0
    for program in application.programs():
        timing = estimate(program.config, program.code, stream_shift=shift)
        cycles = {True: 0, False: 0}
        for layer in layer_timings(program, timing, timing.cycles):
            cycles[layer.name in program.streams] += layer.cycles
        for streams, count in cycles.items():
            if count:
                total += count * _a_cycle(program.config, streams, family, cache, progress)
    return total


def _a_cycle(config: NpuConfig, streams: bool, family: str, cache: Path, progress: Callable[[str], None]) -> float:
    if not streams:
        return measure_energy(None, family, cache, progress).per_product() * config.macs
    products = INPUTS * config.stochastic_rows * config.pixel_lanes * config.stochastic_bits
    return measure_energy(Circuit(config.stochastic_circuit), family, cache, progress).per_product() * products


def levels_of(variants: Sequence[ProgramVariant], settings: Sequence[Setting], energies: Sequence[float], *,
              relative: bool) -> list[Level]:
    """A level for each variant at its setting of clock, voltage and charge; ``energies``: of an inference of each.

    ``relative``: they are scaled to whole numbers, else they are whole numbers of some unit.
    """
    scale = RELATIVE / max(energies) if relative else 1
    return [Level(
        name="-".join(part for part in (setting.name, one.name[:40], f"shift{one.shift}") if part),
        program=one.program, shift=one.shift, clock_khz=round(1000 * setting.mhz),
        millivolts=round(1000 * setting.volts), time_ns=time_ns(one.cycles, round(1000 * setting.mhz)),
        energy=max(1, round(energy * scale)), right=int(10_000 * one.right.mean()),
        above_ppm=round(FULL * (setting.above or 0)))
        for one, setting, energy in zip(variants, settings, energies, strict=True)]


def time_ns(cycles: int, clock_khz: int) -> int:
    """Nanoseconds, rounded up."""
    return -(-cycles * 1_000_000 // clock_khz)
