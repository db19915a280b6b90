"""COMPUTEs of the units beside the multiplier array, whose steps have a beat of weights for each of their rows."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from cores.arch.instruction import Instruction
from cores.arch.isa import StepKind, WordForm
from sim.errors import HazardError
from sim.machine import Machine

__all__ = ["UnitModel"]


def _none(_instruction: Instruction) -> Iterator[str]:
    yield from ()


@dataclass(frozen=True)
class UnitModel:
    """What a unit makes of COMPUTEs of its ``kind``.

    ``sums``: of a machine, the COMPUTE, places (pixels,) in its input buffer and rows, uint8 (n, beat_bytes): what each
    pixel adds to the sums of each row, int64 (pixels, n). ``problems``: what of its own fields makes no sense.
    """

    kind: StepKind
    sums: Callable[[Machine, Instruction, np.ndarray, np.ndarray], np.ndarray]
    problems: Callable[[Instruction], Iterator[str]] = _none

    def check(self, machine: Machine, index: int, geometry: Instruction, instruction: Instruction) -> None:
        """Raise HazardError for a COMPUTE whose fields have no meaning together."""
        groups = machine.config.unit_groups(self.kind)
        if geometry["words"] != WordForm.PIXELS or geometry["shift"]:
            raise HazardError(index, f"words of {self.kind.name} steps are plain")
        if instruction["groups"] != groups:
            raise HazardError(index, f"{instruction['groups']} groups of output lanes, not {groups}")
        for problem in self.problems(instruction):
            raise HazardError(index, problem)

    def multiply(self, machine: Machine, instruction: Instruction, places: np.ndarray, inputs: np.ndarray, first: int,
                 steps: np.ndarray) -> None:
        """Add what some steps make to the accumulators.

        ``inputs``: (output pixels, taps) places in the input buffer; ``steps``: uint8 (n, bytes), the first of which is
        the ``first``th of its tap; ``places``: (output pixels, groups of tn lanes) of the sums.
        """
        config, rows = machine.config, machine.config.unit_rows[self.kind]
        groups, numbers = config.unit_groups(self.kind), first + np.arange(len(steps))
        sums = np.zeros((len(inputs), config.oc_lanes), np.int64)
        weights = steps.reshape(len(steps), rows, config.beat_bytes)
        for tap in range(inputs.shape[1]):
            mine = np.flatnonzero(numbers // groups == tap)
            found = self.sums(machine, instruction, inputs[:, tap], weights[mine].reshape(-1, config.beat_bytes))
            start = int(numbers[mine[0]] % groups) * rows
            sums[:, start:start + found.shape[1]] += found
        accumulators, bank = machine.accumulators, instruction["bank"]
        added = sums.reshape(-1, config.oc_groups, config.ic_lanes)
        accumulators.sums[bank, places] = accumulators.wrap(accumulators.sums[bank, places] + added)
