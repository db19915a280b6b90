"""What a stochastic COMPUTE adds (docs/stochastic.md)."""

import numpy as np

from cores.arch.instruction import Instruction
from cores.arch.isa import WordForm

from .errors import HazardError
from .machine import Machine
from .stochastic.fast import accumulate
from .stochastic.streams import Streams

__all__ = ["check_stochastic", "multiply_stochastic"]


def check_stochastic(machine: Machine, index: int, geometry: Instruction, instruction: Instruction) -> None:
    """Raise HazardError for a stochastic COMPUTE whose fields have no meaning together."""
    groups = machine.config.stochastic_groups
    for wrong, message in [
        (geometry["words"] != WordForm.PIXELS or geometry["shift"], "words of streams are plain"),
        (instruction["groups"] != groups, f"{instruction['groups']} groups of output lanes, not {groups}"),
        (instruction["made"] > instruction["length"], "more bits are made than streams have"),
    ]:
        if wrong:
            raise HazardError(index, message)


def multiply_stochastic(machine: Machine, instruction: Instruction, places: np.ndarray, inputs: np.ndarray, first: int,
                        steps: np.ndarray) -> None:
    """Add to the accumulators the sums of products that streams make.

    ``inputs``: (output pixels, taps) places in the input buffer; ``steps``: uint8 (n, bytes), the first of which is the
    ``first``th of its tap; ``places``: (output pixels, groups of tn lanes) of the sums.
    """
    config, streams = machine.config, Streams.of_fields(instruction.fields)
    rows, groups = config.stochastic_rows, config.stochastic_groups
    numbers = first + np.arange(len(steps))
    sums = np.zeros((len(inputs), config.oc_lanes), np.int64)
    weights = steps.reshape(len(steps), rows, config.beat_bytes).view(np.int8)
    for tap in range(inputs.shape[1]):
        mine = np.flatnonzero(numbers // groups == tap)
        found = accumulate(config.circuit, machine.input[inputs[:, tap]], weights[mine].reshape(-1, config.ic_lanes),
                           streams, fan_in=config.ic_lanes)
        start = int(numbers[mine[0]] % groups) * rows
        sums[:, start:start + found.shape[1]] += found
    accumulators, bank = machine.accumulators, instruction["bank"]
    added = sums.reshape(-1, config.oc_groups, config.ic_lanes)
    accumulators.sums[bank, places] = accumulators.wrap(accumulators.sums[bank, places] + added)
